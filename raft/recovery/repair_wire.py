"""Questions between members about damaged entries, and the answers. Pure, apart from the log that is read.

Nothing in an answer is a guess: a term that is not known is None, and what is known of it are its bounds.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import (
    Message,
    flag,
    list_of,
    long_list_of,
    member_of,
    number,
    octets,
    optional,
    protocol,
    unpack_any,
)
from jetraft.raft.mesh.rpc import RemoteCallError
from jetraft.raft.recovery import bounds
from jetraft.store.frames._frame import parse_header, verify
from jetraft.store.frames.format import FRAME_BYTES_MAX, FRAME_HEADER_BYTES
from jetraft.store.frames.placeholder import is_placeholder_frame
from jetraft.store.model.files import index_ranges
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import GroupLog

ANSWER_BYTES_MAX: Final = 4 << 20  # at least one frame; a damaged block takes a few calls
FRAMES_MAX: Final = ANSWER_BYTES_MAX // FRAME_HEADER_BYTES + 1

Bounds = tuple[int, int]


@protocol("a repair request", bytes_max=1024)
@attrs.frozen(kw_only=True, slots=True)
class RepairRequest(Message):
    """A question for the entries first..last.

    A member that has none of them promises to hear no leader below `fence_term`.
    """

    group_id: GroupId = attrs.field(metadata=bounds.group_name())
    incarnation: int = attrs.field(metadata=bounds.incarnation())
    first: int = attrs.field(metadata=number(1, bounds.INDEX_MAX))
    last: int = attrs.field(metadata=number(1, bounds.INDEX_MAX))
    fence_term: int = attrs.field(default=0, metadata=bounds.term())


@protocol("a repair answer", bytes_max=ANSWER_BYTES_MAX + FRAME_BYTES_MAX + 1024)
@attrs.frozen(kw_only=True, slots=True)
class RepairAnswer(Message):
    """Another member's entries from the first one asked for on."""

    frames: tuple[bytes, ...] = attrs.field(metadata=long_list_of(octets(FRAME_BYTES_MAX), FRAMES_MAX))
    term_before: int | None = attrs.field(metadata=optional(bounds.term()))  # of the entry before the first asked for
    term_behind: int | None = attrs.field(metadata=optional(bounds.term()))  # of the entry behind the last asked for
    commit_index: int = attrs.field(metadata=bounds.log_index())
    first_index: int = attrs.field(metadata=bounds.log_index())
    last_index: int = attrs.field(metadata=bounds.log_index())
    is_thinned: bool = attrs.field(metadata=flag())  # it has the first entry, without the messages that are gone
    is_damaged: bool = attrs.field(metadata=flag())  # it has lost the first entry, too
    term_bounds: Bounds | None = attrs.field(metadata=optional(list_of(bounds.term(), 2)))  # of the first entry
    term: int = attrs.field(metadata=bounds.term())  # it hears no leader of a lower one, durably
    is_voter: bool = attrs.field(metadata=flag())  # of a group that runs: what it lacks, it does not help to commit

    def followed_by(self, more: "RepairAnswer") -> "RepairAnswer":
        """One answer from two of the same member, of which the second goes on where this one ends."""
        return attrs.evolve(
            self,
            frames=(*self.frames, *more.frames),
            commit_index=max(self.commit_index, more.commit_index),
        )


@protocol("a question about the end of a log", bytes_max=1024)
@attrs.frozen(kw_only=True, slots=True)
class EndRequest(Message):
    """A question for the last entry up to an index and a term; its receiver hears no leader below `fence_term`."""

    group_id: GroupId = attrs.field(metadata=bounds.group_name())
    incarnation: int = attrs.field(metadata=bounds.incarnation())
    what: str = attrs.field(default="end", metadata=member_of({"end": "end"}))
    index_max: int = attrs.field(metadata=bounds.log_index())
    term_max: int = attrs.field(metadata=number(high=bounds.INDEX_MAX))
    fence_term: int = attrs.field(default=0, metadata=bounds.term())


@protocol("an answer about the end of a log", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class EndAnswer(Message):
    """How far the log of another member goes, as far as the question goes."""

    last_index: int = attrs.field(metadata=bounds.log_index())  # of the last entry whose term is known
    last_term: int = attrs.field(metadata=bounds.term())
    term: int = attrs.field(metadata=bounds.term())  # it hears no leader of a lower one, durably
    # In its newest configuration; none unless it is one of them, and its group runs.
    voters: tuple[NodeId, ...] = attrs.field(metadata=bounds.nodes())

    @property
    def end(self) -> tuple[int, int]:
        """The end of a log, which votes compare."""
        return self.last_term, self.last_index


NOTHING_LEFT: Final = EndAnswer(last_index=0, last_term=0, term=0, voters=())  # of who has lost its log


def unpack_request(payload: bytes) -> RepairRequest | EndRequest:
    """Raises RemoteCallError, which goes to the node that asked."""
    try:
        request = unpack_any(payload, EndRequest, RepairRequest)
    except RemoteProtocolError as error:
        raise RemoteCallError(str(error)) from error
    if isinstance(request, EndRequest):
        return request
    assert isinstance(request, RepairRequest)
    if request.first > request.last:
        raise RemoteCallError("a repair request for no entries")
    return request


def answer_of(log: GroupLog, request: RepairRequest, *, commit_index: int, is_voter: bool) -> RepairAnswer:
    """This node's answer about a range of a log; its term is still to be set. Raises StoreCorrupt, OSError."""
    first = request.first
    frames = _frames(log, first, request.last)
    return RepairAnswer(
        frames=tuple(frames),
        term_before=log.term_at(first - 1),
        term_behind=log.term_at(request.last + 1),
        commit_index=commit_index,
        first_index=log.first_index,
        last_index=log.last_index,
        is_thinned=not frames and log.is_compacted(first),
        is_damaged=index_ranges.covers(log.damaged_entries, first, first),
        term_bounds=log.term_bounds(first),
        term=0,
        is_voter=is_voter,
    )


def end_answer_of(log: GroupLog, request: EndRequest, *, term: int, voters: Sequence[NodeId]) -> EndAnswer:
    """How far a log of this node goes. A term that is not known is not told: the answer then ends before it."""
    boundary_index, boundary_term = log.boundary
    indexes = range(boundary_index + 1, min(log.last_index, request.index_max) + 1)
    index = boundary_index + bisect_right(indexes, request.term_max, key=lambda at: (log.term_bounds(at) or (0, 0))[0])
    while index > boundary_index and log.term_at(index) is None:
        index -= 1
    return EndAnswer(
        last_index=min(index, request.index_max),
        last_term=log.term_at(index) or boundary_term,
        term=term,
        voters=tuple(voters),
    )


def _frames(log: GroupLog, first: int, last: int) -> list[bytes]:
    """The frames from `first` on; none when that one is damaged, and as far as they can be read behind it.

    The stand-in for a lost entry is given where it counts, as the entry that it is for all members. Where the log
    begins behind it, it only holds a place here. Raises StoreCorrupt, OSError when the first one turns out to be
    damaged.
    """
    found: list[bytes] = []
    size = 0
    for _, entry in log.frames(first, min(last, log.last_index)):
        size += len(entry.frame)
        if entry.index != first + len(found) or (found and size > ANSWER_BYTES_MAX):
            break
        if (entry.index < log.first_index and is_placeholder_frame(entry.frame)) or log.is_compacted(entry.index):
            break
        found.append(entry.frame)
    return found


def unpack_answer(data: bytes, request: RepairRequest) -> RepairAnswer:
    """Only frames that hold and are the entries asked for, in order. Raises RemoteProtocolError."""
    answer = RepairAnswer.unpack(data)
    if len(answer.frames) > request.last - request.first + 1:
        raise RemoteProtocolError("a repair answer with more than the entries asked for")
    if answer.term_bounds is not None and len(answer.term_bounds) != len(("lowest", "highest")):
        raise RemoteProtocolError("a repair answer with bounds that are no pair")
    _check_frames(answer.frames, request)
    return answer


def unpack_end_answer(data: bytes, request: EndRequest) -> EndAnswer:
    """Raises RemoteProtocolError."""
    answer = EndAnswer.unpack(data)
    if answer.last_index > request.index_max:
        raise RemoteProtocolError("an answer about the end of a log beyond the question")
    return answer


def _check_frames(frames: Sequence[bytes], request: RepairRequest) -> None:
    term = 0
    for index, frame in enumerate(frames, request.first):
        if len(frame) < FRAME_HEADER_BYTES or not verify(frame):
            raise RemoteProtocolError(f"entry {index}: a damaged frame")
        header = parse_header(frame)
        stated = (header.length, header.log_index, header.incarnation)
        if stated != (len(frame), index, request.incarnation) or header.term < term:
            raise RemoteProtocolError(f"entry {index}: another entry's frame")
        term = header.term
