"""Questions between the members of a stream's group that compare their replicas (cluster/upkeep/comparer.py).

stream.digest: DigestQuestion -> DigestAnswer        stream.mend:  MendQuestion -> nothing
stream.detail: DetailQuestion -> DetailAnswer        stream.state: StateQuestion -> StateAnswer
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.raft.mesh.messages import Message, list_of, message_of, number, octets, protocol, text
from jetraft.store.model.limits import NAME_BYTES_MAX

if TYPE_CHECKING:
    from jetraft.store.model.ids import NodeId

DIGEST: Final = "stream.digest"
DETAIL: Final = "stream.detail"
MEND: Final = "stream.mend"
STATE: Final = "stream.state"
QUESTION_BYTES_MAX: Final = 4096
DIGEST_BYTES_MAX: Final = 64
ROWS_MAX: Final = 1024  # a slice has 1000 messages
DETAIL_BYTES_MAX: Final = ROWS_MAX * (DIGEST_BYTES_MAX + 16)
STATE_BYTES_MAX: Final = 1 << 30
MEND_ANSWER: Final = b"\xc0"  # nil, in msgpack; the receiver does not read it


@protocol("a question for the digests of an entry", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class DigestQuestion(Message):
    """What did you have when you applied this entry?"""

    group_id: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())
    index: int = attrs.field(metadata=number())


@protocol("digests of an entry", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class DigestAnswer(Message):
    """Of the slice's messages and consumers; empty when something could not be read."""

    messages: bytes = attrs.field(metadata=octets(DIGEST_BYTES_MAX))
    consumers: bytes = attrs.field(metadata=octets(DIGEST_BYTES_MAX))


@protocol("a question for digests of messages", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class DetailQuestion(Message):
    """What are these messages?"""

    group_id: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())
    first_seq: int = attrs.field(metadata=number())
    last_seq: int = attrs.field(metadata=number())


@protocol("the digest of a message", bytes_max=DETAIL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class MessageDigest(Message):
    """A message, by its sequence."""

    seq: int = attrs.field(metadata=number())
    digest: bytes = attrs.field(metadata=octets(DIGEST_BYTES_MAX))


@protocol("digests of messages", bytes_max=DETAIL_BYTES_MAX, bare=True)
@attrs.frozen(kw_only=True, slots=True)
class DetailAnswer(Message):
    """Those that are there."""

    rows: tuple[MessageDigest, ...] = attrs.field(metadata=list_of(message_of(MessageDigest), ROWS_MAX))


@protocol("a request to repair a replica", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class MendQuestion(Message):
    """A majority has these messages otherwise, and `whom` is one of it."""

    group_id: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())
    first_seq: int = attrs.field(metadata=number())
    last_seq: int = attrs.field(metadata=number())
    whom: NodeId = attrs.field(metadata=text(NAME_BYTES_MAX, chars_min=1))


@protocol("a question for a replica's state", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class StateQuestion(Message):
    """What is your newest checkpoint?"""

    group_id: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())


@protocol("a replica's state", bytes_max=STATE_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class StateAnswer(Message):
    """A checkpoint."""

    index: int = attrs.field(metadata=number())
    term: int = attrs.field(metadata=number())
    members: bytes = attrs.field(metadata=octets(STATE_BYTES_MAX))
    state: bytes = attrs.field(metadata=octets(STATE_BYTES_MAX))
