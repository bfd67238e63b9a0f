"""What members ask each other about damaged entries, and what they say. Pure, apart from the log that is read.

    request (msgpack): group, incarnation, first, last, term to promise (0: none)
    answer (msgpack):  [frames from `first` on, term before `first`, term behind `last`, committed index, first index,
                        last index, is thinned, is damaged, bounds of the term of `first`, durable term, is voter]

Nothing in an answer is a guess: a term that is not known is None, and what is known of it are its bounds.
"""

from collections.abc import Sequence
from typing import Any, Final

import attrs
import msgpack

from jetraft.raft.rpc import RemoteCallError
from jetraft.raft.wire import RemoteProtocolError
from jetraft.store import trimmed
from jetraft.store._frame import parse_header, verify
from jetraft.store.model.ids import GroupId
from jetraft.store.port import GroupLog
from jetraft.store.stand_in import stands_in

ANSWER_BYTES_MAX: Final = 4 << 20  # at least one frame; a damaged block takes a few calls
NUMBER_MAX: Final = (1 << 63) - 1

Bounds = tuple[int, int]


@attrs.frozen(kw_only=True, slots=True)
class Request:
    """A question for the entries first..last. Who has none of them promises to hear no leader below `fence_term`."""

    group_id: GroupId
    incarnation: int
    first: int
    last: int
    fence_term: int = 0

    def pack(self) -> bytes:
        """Its bytes."""
        packed: bytes = msgpack.packb((self.group_id, self.incarnation, self.first, self.last, self.fence_term))
        return packed


@attrs.frozen(kw_only=True, slots=True)
class Answer:
    """What another member has from the first entry asked for on."""

    frames: tuple[bytes, ...]
    term_before: int | None  # of the entry before the first one asked for
    term_behind: int | None  # of the entry behind the last one asked for
    commit_index: int
    first_index: int
    last_index: int
    is_thinned: bool  # it has the first entry, without the messages that are gone
    is_damaged: bool  # it has lost the first entry, too
    term_bounds: Bounds | None  # of the first entry
    term: int  # it hears no leader of a lower one, durably
    is_voter: bool  # of a group that runs: what it does not have, it does not help to commit

    def pack(self) -> bytes:
        """Its bytes."""
        packed: bytes = msgpack.packb(attrs.astuple(self))
        return packed

    def followed_by(self, more: "Answer") -> "Answer":
        """One answer from two of the same member, of which the second goes on where this one ends."""
        return attrs.evolve(
            self,
            frames=(*self.frames, *more.frames),
            commit_index=max(self.commit_index, more.commit_index),
        )


def unpack_request(payload: bytes) -> Request:
    """Raises RemoteCallError, which goes to the node that asked."""
    try:
        group_id, *numbers = msgpack.unpackb(payload, raw=False)
        incarnation, first, last, fence_term = numbers
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteCallError("no repair request") from error
    is_right = isinstance(group_id, str) and all(_is_number(number) for number in numbers)
    if not is_right or not 0 < first <= last:
        raise RemoteCallError("no repair request")
    return Request(group_id=GroupId(group_id), incarnation=incarnation, first=first, last=last, fence_term=fence_term)


def answer_of(log: GroupLog, request: Request, *, commit_index: int, is_voter: bool) -> Answer:
    """What this node says about a range of a log; its term is still to be set. Raises StoreCorrupt, OSError."""
    first = request.first
    frames = _frames(log, first, request.last)
    return Answer(
        frames=tuple(frames),
        term_before=log.term_at(first - 1),
        term_behind=log.term_at(request.last + 1),
        commit_index=commit_index,
        first_index=log.first_index,
        last_index=log.last_index,
        is_thinned=not frames and log.is_compacted(first),
        is_damaged=trimmed.covers(log.faulty, first, first),
        term_bounds=log.term_bounds(first),
        term=0,
        is_voter=is_voter,
    )


def _frames(log: GroupLog, first: int, last: int) -> list[bytes]:
    """The frames from `first` on; none when that one is faulty, and as far as they can be read behind it.

    What stands for a lost entry is given where it counts, as the entry that it is for all members. Where the log begins
    behind it, it only holds a place here. Raises StoreCorrupt, OSError when the first one turns out to be damaged.
    """
    found: list[bytes] = []
    size = 0
    for _, entry in log.frames(first, min(last, log.last_index)):
        size += len(entry.frame)
        if entry.index != first + len(found) or (found and size > ANSWER_BYTES_MAX):
            break
        if (entry.index < log.first_index and stands_in(entry.frame)) or log.is_compacted(entry.index):
            break
        found.append(entry.frame)
    return found


def unpack_answer(data: bytes, request: Request) -> Answer:
    """Only frames that hold and are the entries asked for, in order. Raises RemoteProtocolError."""
    try:
        fields: Any = msgpack.unpackb(data)
        frames, before, behind, commit, first, last, is_thinned, is_damaged, bounds, term, is_voter = fields
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError("no repair answer") from error
    flags, numbers = (is_thinned, is_damaged, is_voter), (commit, first, last, term)
    is_right = all(isinstance(flag, bool) for flag in flags) and all(_is_number(number) for number in numbers)
    is_right = is_right and all(found is None or _is_number(found) for found in (before, behind))
    if not is_right or not isinstance(frames, list) or len(frames) > request.last - request.first + 1:
        raise RemoteProtocolError("no repair answer")
    _check_frames(frames, request)
    return Answer(
        frames=tuple(frames),
        term_before=before,
        term_behind=behind,
        commit_index=commit,
        first_index=first,
        last_index=last,
        is_thinned=is_thinned,
        is_damaged=is_damaged,
        term_bounds=_bounds(bounds),
        term=term,
        is_voter=is_voter,
    )


def _check_frames(frames: Sequence[object], request: Request) -> None:
    term = 0
    for index, frame in enumerate(frames, request.first):
        if not isinstance(frame, bytes) or not verify(frame):
            raise RemoteProtocolError(f"entry {index}: a damaged frame")
        header = parse_header(frame)
        stated = (header.length, header.log_index, header.incarnation)
        if stated != (len(frame), index, request.incarnation) or header.term < term:
            raise RemoteProtocolError(f"entry {index}: another entry's frame")
        term = header.term


def _bounds(found: object) -> Bounds | None:
    if found is None:
        return None
    if not isinstance(found, list) or [_is_number(number) for number in found] != [True, True]:
        raise RemoteProtocolError("no repair answer")
    return found[0], found[1]


def _is_number(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= NUMBER_MAX
