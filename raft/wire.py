"""Engine messages as bytes: the payload of the RAFT channel of a link.

A payload is a run of messages of many groups. Each is 24 fixed bytes, the group's name, its numbers and its body:

    u32 length (whole message) | u8 type | u8 name bytes | u16 flags | u64 incarnation | u64 term
    group name | u64 numbers, as many as the type has | body: raw frames (append), a configuration (snapshot offer)

Frames travel as they stand in the log: they are joined, never packed again. A payload is decoded whole before the first
message is stepped, so a damaged one changes nothing. All integers are little endian; nothing is pickled (rule 22).
"""

import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.raft.engine.membership import BadConfigurationError, Configuration
from jetraft.raft.engine.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    LeaderSeen,
    Message,
    PreVoteGrant,
    PreVoteRequest,
    ReadProbe,
    ReadProbeSeen,
    Removed,
    Resigned,
    SnapshotOffer,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.frames._frame import parse_header, sound_entry
from jetraft.store.frames.format import FRAME_HEADER_BYTES, FRAME_VERSION, Kind
from jetraft.store.model.ids import GroupId
from jetraft.store.port import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

_FIXED = struct.Struct("<IBBHQQ")
_NUMBERS = tuple(struct.Struct(f"<{count}Q") for count in range(4))
_FLAG_TRANSFER = 1
_CONFIGURATION: Final = int(Kind.RAFT_CONFIG)
GROUP_NAME_BYTES_MAX = 64
# Leaves room for elections after a term out of the blue, and fits the signed 64 bits in which a term is kept.
TERM_MAX = 1 << 62


@attrs.define(kw_only=True, unsafe_hash=True)
class Addressed:
    """One message and the group that it is for."""

    group_id: GroupId
    incarnation: int
    message: Message


# Type number, message class and the names of its numbers. The numbers on the wire never change their meaning.
_TYPES: tuple[tuple[int, type, tuple[str, ...]], ...] = (
    (1, PreVoteRequest, ("last_index", "last_term")),
    (2, PreVoteGrant, ()),
    (3, VoteRequest, ("last_index", "last_term")),
    (4, VoteGrant, ()),
    (5, TermNotice, ()),
    (6, Append, ("prev_index", "prev_term", "commit_index")),
    (7, AppendAccepted, ("prev_index", "verified_index")),
    (8, AppendRejected, ("prev_index", "hint_index")),
    (9, LeaderSeen, ()),
    (10, CommitNotice, ("commit_index",)),
    (11, Resigned, ()),
    (12, TransferNow, ()),
    (13, ReadProbe, ("round",)),
    (14, ReadProbeSeen, ("round",)),
    (15, SnapshotOffer, ("index", "index_term")),
    (16, Removed, ()),
)
_CLASSES: dict[int, tuple[type, tuple[str, ...]]] = {code: (cls, names) for code, cls, names in _TYPES}


def _numbers_of(names: tuple[str, ...]) -> "Callable[[Message], tuple[int, ...]]":
    """A function that gives the numbers of a message in order."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda message: (getattr(message, names[0]),)) if names else lambda _message: ()


_CODES = {message_type: (code, _NUMBERS[len(names)], _numbers_of(names)) for code, message_type, names in _TYPES}


def encode(group_name: bytes, incarnation: int, message: Message) -> list[bytes]:
    """The message as parts to be joined; `group_name` is the encoded group id."""
    code, numbers_struct, numbers_of = _CODES[type(message)]
    head = group_name + numbers_struct.pack(*numbers_of(message))
    length, flags = _FIXED.size + len(head), 0
    body: list[bytes] = []
    if isinstance(message, Append):
        for entry in message.entries:
            body.append(entry.frame)
            length += len(entry.frame)
    elif isinstance(message, SnapshotOffer):
        body = [message.members]
        length += len(message.members)
    elif isinstance(message, VoteRequest) and message.transfer:
        flags = _FLAG_TRANSFER
    fixed = _FIXED.pack(length, code, len(group_name), flags, incarnation, message.term)
    return [fixed + head, *body]


def decode(payload: memoryview) -> list[Addressed]:
    """All messages of a payload. Raises RemoteProtocolError."""
    found: list[Addressed] = []
    offset, end = 0, len(payload)
    while offset < end:
        if end - offset < _FIXED.size:
            raise RemoteProtocolError("a raft payload ends inside a message")
        length = int.from_bytes(payload[offset : offset + 4], "little")
        if length < _FIXED.size or length > end - offset:
            raise RemoteProtocolError("a raft message has an impossible length")
        found.append(_decode_one(payload[offset : offset + length]))
        offset += length
    return found


def _decode_one(data: memoryview) -> Addressed:
    _, code, name_bytes, flags, incarnation, term = _FIXED.unpack_from(data)
    if term > TERM_MAX:
        raise RemoteProtocolError(f"a raft message of term {term}")
    known = _CLASSES.get(code)
    if known is None:
        raise RemoteProtocolError(f"unknown raft message type {code}")
    message_type, names = known
    numbers_struct = _NUMBERS[len(names)]
    numbers_at = _FIXED.size + name_bytes
    body_at = numbers_at + numbers_struct.size
    if body_at > len(data) or not 0 < name_bytes <= GROUP_NAME_BYTES_MAX:
        raise RemoteProtocolError("a raft message ends inside its fields")
    try:
        group_id = GroupId(str(data[_FIXED.size : numbers_at], "ascii"))
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a group name is not ASCII") from error
    numbers = numbers_struct.unpack_from(data, numbers_at)
    fields: dict[str, object] = dict(zip(names, numbers, strict=True))
    if message_type is Append:
        fields["entries"] = split_frames(data[body_at:], numbers[0], numbers[1], incarnation, term)
    elif message_type is SnapshotOffer:
        fields["members"] = _checked_configuration(bytes(data[body_at:]))
    elif body_at < len(data):
        raise RemoteProtocolError(f"raft message type {code} has a body")
    if message_type is VoteRequest:
        fields["transfer"] = bool(flags & _FLAG_TRANSFER)
    build: Callable[..., Message] = message_type
    return Addressed(group_id=group_id, incarnation=incarnation, message=build(term=term, **fields))


def _checked_configuration(body: bytes) -> bytes:
    """The body itself. A group takes a configuration into force as it comes, so it is judged here."""
    try:
        Configuration.decode(body)
    except BadConfigurationError as error:
        raise RemoteProtocolError(str(error)) from error
    return body


def split_frames(body: memoryview, prev_index: int, prev_term: int, incarnation: int, term: int) -> list[Entry]:
    """The entries of an append, each checked: checksum, place in the log, group, and terms that never go back."""
    entries: list[Entry] = []
    offset, end = 0, len(body)
    index, entry_term = prev_index, prev_term
    while offset < end:
        length = int.from_bytes(body[offset : offset + 4], "little")
        if length < FRAME_HEADER_BYTES or length > end - offset:
            raise RemoteProtocolError("a frame has an impossible length")
        frame = bytes(body[offset : offset + length])
        index += 1
        found = sound_entry(frame, index, incarnation)
        if found is None:
            raise _unsound(frame, index, incarnation)
        frame_term, kind, version = found
        if not entry_term <= frame_term <= term:
            raise RemoteProtocolError(f"frame {index} has term {frame_term} after {entry_term} in an append of {term}")
        if version > FRAME_VERSION:
            raise RemoteProtocolError(f"frame {index} has version {version}, newer than {FRAME_VERSION}")
        if kind == _CONFIGURATION:
            _checked_configuration(frame[FRAME_HEADER_BYTES:])
        entry_term = frame_term
        entries.append(Entry(index=index, term=entry_term, kind=kind, frame=frame))
        offset += length
    return entries


def _unsound(frame: bytes, index: int, incarnation: int) -> RemoteProtocolError:
    """The fault of a frame that is not the sound entry of this index."""
    header = parse_header(frame)
    if header.log_index != index or header.incarnation != incarnation:
        return RemoteProtocolError(f"frame of index {header.log_index} arrived where {index} belongs")
    return RemoteProtocolError(f"frame {index} has a wrong checksum")
