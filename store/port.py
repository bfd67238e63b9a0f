"""The interface of a group's log (`GroupLog`), and the errors of the store.

`store/log/file_log.py` implements it in files, `store/log/mem_log.py` in memory.

A log has the entries `first_index..last_index` without a gap, and the term of the entry before them (the boundary).
Appended entries can be read immediately and are durable later: the caller takes a `token()`, calls `submit()`, and may
rely on durability (acknowledge, vote) when `durable_token` reaches that token. `on_durable` is called when it changes.

Messages are read from the same frames, by (block, offset). Numbers of blocks are unique in a process, so a reference
stays valid until the block is trimmed or the entry is cut. Blocks with live messages may stay below `first_index` after
blocks between them were dropped; Raft does not read them, but messages are read from them.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Protocol

import attrs

from jetraft.store.model.files.manifest import Manifest
from jetraft.store.model.ids import NodeId


class StoreError(Exception):
    """An error of the store. The message is one line with the file or the index."""


class StoreCorrupt(StoreError):  # noqa: N818  (the name is the state; an Error suffix adds nothing)
    """Data on disk is damaged, and not as a torn tail after a crash. Nothing was changed on disk."""


class StoreRefused(StoreError):  # noqa: N818  (the name is the state; an Error suffix adds nothing)
    """The file is sound, but belongs to another node or group, or was written by a newer version."""


class StoreMisplaced(StoreRefused):
    """A sound file of another node, group or kind is here: a misdirected write, or a directory from another node.

    The expected file is lost, like a damaged one; the file that is here is not changed.
    """


class StoreNewer(StoreRefused):
    """The file was written by a newer version and must not be changed."""


class HardStateLost(StoreError):  # noqa: N818  (the name is the state; an Error suffix adds nothing)
    """Term and vote are unknown: this member must not vote again under its old identity."""


class StoreFailed(StoreError):  # noqa: N818  (the name is the state; an Error suffix adds nothing)
    """A write or fsync failed earlier. The log accepts no more writes; open it again to see what is on disk."""


# `Entry` and `FrameRef` are made for every message and never changed; a frozen class takes three times as long to make.
@attrs.define(kw_only=True, unsafe_hash=True)
class Entry:
    """One Raft entry. `frame` is the whole frame with its header (layout: store/frames/format.py)."""

    index: int
    term: int
    kind: int
    frame: bytes


@attrs.frozen(kw_only=True, slots=True)
class HardState:
    """The highest term that a member has seen and its vote in that term (Raft paper, figure 2); must be durable."""

    term: int
    vote: NodeId | None


@attrs.frozen(kw_only=True, slots=True)
class Checkpoint:
    """The state after `index` was applied: of Raft (`members`) and of the state machine; both opaque to the store."""

    index: int
    term: int
    members: bytes
    state: bytes

    def whole(self) -> "Checkpoint":
        """Itself: see PendingCheckpoint."""
        return self


class DeferredState:
    """State of a machine of which a part is made later, in any thread, from what does not change any more."""

    __slots__ = ("_lock", "_made", "_make", "bytes_about")

    def __init__(self, bytes_about: int, make: Callable[[], bytes]) -> None:
        self.bytes_about = bytes_about
        self._make: Callable[[], bytes] | None = make
        self._made = b""
        self._lock = Lock()

    def made(self) -> bytes:
        """The whole state; it is made once."""
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
            return self._made


@attrs.frozen(kw_only=True, slots=True, eq=False)
class PendingCheckpoint:
    """A checkpoint whose state is made when it is written."""

    index: int
    term: int
    members: bytes
    deferred: DeferredState

    def whole(self) -> Checkpoint:
        """With its state, which may take a while: in any thread."""
        return Checkpoint(index=self.index, term=self.term, members=self.members, state=self.deferred.made())


AnyCheckpoint = Checkpoint | PendingCheckpoint


def checkpoint_of(index: int, term: int, members: bytes, state: bytes | DeferredState) -> AnyCheckpoint:
    """A checkpoint, with its state or without."""
    if isinstance(state, DeferredState):
        return PendingCheckpoint(index=index, term=term, members=members, deferred=state)
    return Checkpoint(index=index, term=term, members=members, state=state)


@attrs.define(unsafe_hash=True)
class FrameRef:
    """A reference to a frame: the number of its block in this process, and the offset in the block in bytes."""

    block: int
    offset: int


@attrs.frozen(kw_only=True, slots=True)
class FrameRun:
    """Frames of one block, one behind the other in `data`, as they are stored."""

    block: int
    data: bytes
    places: "array[int]"  # of each frame in `data`, ascending
    offsets: "array[int]"  # of each frame in the block, as a FrameRef has it
    indexes: Sequence[int]  # of their entries
    incarnation: int | None  # which the frames must have when they are verified; None: they need not be verified


def run_of_one(entry: "Entry", place: FrameRef) -> FrameRun:
    """A run of one frame that is verified and open."""
    offsets = array("I", [place.offset])
    return FrameRun(
        block=place.block,
        data=entry.frame,
        places=array("I", [0]),
        offsets=offsets,
        indexes=(entry.index,),
        incarnation=None,
    )


@attrs.frozen(kw_only=True, slots=True)
class LogStatistics:
    """A snapshot of a log's figures."""

    first_index: int
    last_index: int
    durable_index: int
    blocks: int
    bytes_used: int  # frames and heads
    bytes_on_disk: int  # with preallocated ones; 0 in memory
    batches: int  # written and fsynced so far
    bytes_written: int
    pieces_prepared: int  # parts of blocks that were filled with zeros in advance (store/log/preallocate.py)
    checkpoint_index: int
    failed: str | None


class Staging(Protocol):
    """A copy of a log that is being received."""

    def missing(self) -> tuple[int, int, int] | None:
        """(block, offset, size) of the next piece to fetch; None when the copy is complete."""
        ...

    def put_chunk(self, block: int, offset: int, data: bytes) -> None:
        """Add the piece that `missing` asked for, or the beginning of it. Raises ValueError for any other piece."""
        ...

    def finish(self) -> "GroupLog":
        """Verify the copy, put it in place of the old log, and open it. The old log must be closed.

        The next start finds the new log once everything up to its `token()` is durable; until then a crash leaves the
        old log, so the copy must not be acknowledged before. Blocking for files: call it in a thread. Raises
        PartDamagedError when a frame is damaged, and InstallRefusedError when the old log covers the new one by now;
        the old log is then unchanged and can be opened again.
        """
        ...

    def abandon(self) -> None:
        """Delete what was gathered."""
        ...


@attrs.define(eq=False)
class LogProgress:
    """How far a log has come. Only the log changes it; attributes, because each turn of a group asks a dozen times."""

    token: int = 0
    """Counts changes. Grows with every change of the log, never goes back."""

    durable_token: int = 0
    """Every change up to this token is on disk. Never goes back."""

    durable_index: int = 0
    """The highest index that is on disk and still in the log."""

    failed: Exception | None = None
    """The first write error. Final: from then on nothing is handed to the writer, and nothing counts as durable."""


class GroupLog(Protocol):
    """The ordered log of one Raft group. All methods are synchronous and belong to the one trio thread."""

    @property
    def damaged_entries(self) -> tuple[tuple[int, int], ...]:
        """Ranges (first, last) of damaged entries, which cannot be read: ascending, not adjacent.

        While there are any, the member must not lead and must not vote: without its copy, an entry may not have been
        committed by a majority.
        """
        ...

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """Damaged entries that no member has; placeholders replace them."""
        ...

    @property
    def sums_records(self) -> bool:
        """Whether frames should have a checksum for each record, with which a damaged frame can be salvaged."""
        ...

    on_durable: Callable[[], None] | None
    """Called in the trio thread after `durable_token` increased, or after `failed` was set."""

    @property
    def first_index(self) -> int:
        """The lowest index that `entries` can read; last_index + 1 when there is none."""
        ...

    @property
    def last_index(self) -> int:
        """The highest index; 0 when nothing was ever appended, the boundary's when everything was trimmed or cut."""
        ...

    @property
    def boundary(self) -> tuple[int, int]:
        """(index, term) of the entry before `first_index`; (0, 0) at the start."""
        ...

    @property
    def hard_state(self) -> HardState:
        """The last one that was set, durable or not."""
        ...

    @property
    def hard_state_token(self) -> int:
        """The token right after the last `set_hard_state`."""
        ...

    @property
    def progress(self) -> LogProgress:
        """The next three and `token`, for callers that ask in every turn: the same object as long as the log lives."""
        ...

    @property
    def durable_token(self) -> int:
        """Every change up to this token is on disk. Never decreases."""
        ...

    @property
    def durable_index(self) -> int:
        """The highest index that is on disk and still in the log."""
        ...

    @property
    def failed(self) -> Exception | None:
        """The first write or fsync error. Final; set before `on_durable` is called."""
        ...

    @property
    def is_starved(self) -> bool:
        """Whether a write waits because the process has no free file descriptor. `submit` tries again."""
        ...

    def term_at(self, index: int) -> int | None:
        """The term of an entry or of the boundary; None outside, and for a damaged entry of unknown term."""
        ...

    def term_bounds(self, index: int) -> tuple[int, int] | None:
        """The lowest and the highest term that an entry can have, equal if it is known. None outside."""
        ...

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Entries lo..hi (inclusive, inside the log) in order: at least one, up to `bytes_max` bytes.

        Raises StoreCorrupt when a frame on disk is damaged.
        """
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries that continue the log. Readable at once, durable when `durable_token` reaches `token()`.

        Raises StoreFailed after a write error.
        """
        ...

    def cut_from(self, index: int) -> None:
        """Remove `index` and everything after it: an uncommitted tail that the leader does not have."""
        ...

    def set_hard_state(self, hard_state: HardState) -> None:
        """Replace term and vote. Do not act on them before `durable_token` reaches `hard_state_token`."""
        ...

    def token(self) -> int:
        """The token of all changes so far."""
        ...

    def note_floor(self) -> bool:
        """Record in the ledger how far the log is durable; False when it is recorded already (decision 47)."""
        ...

    @property
    def is_secure(self) -> bool:
        """Whether all that counts outlives a crash (decision 124): no other member may hear of the log before.

        `note_floor` brings that about.
        """
        ...

    def would_block(self, bytes_max: int) -> bool:
        """Whether only frames wait, at most `bytes_max` bytes of them, which a fast disk may write in the turn."""
        ...

    def submit(self, *, may_block: bool = False) -> None:
        """Submit all pending changes to the writer thread, as one batch with one fsync.

        With `may_block`, the batch may be written in this thread if the disk is fast (decision 26); `on_durable` is
        then called before the return. If a batch is in flight, the next one starts when it completes. A file that
        cannot be opened counts as a failed write: `failed` is set and `on_durable` called before the return.
        """
        ...

    def locate(self, index: int) -> FrameRef | None:
        """The reference to the frame of an entry; None when it was never appended, was cut or trimmed."""
        ...

    def frame_at(self, block: int, offset: int) -> bytes:
        """The frame at a reference from `locate` or `frames`, verified.

        Raises KeyError when the block was trimmed, StoreCorrupt when the frame is damaged.
        """
        ...

    def read_record(self, block: int, frame_offset: int, record_offset: int) -> tuple[int, int, bytes, bytes, bytes]:
        """(ts_ns, flags, subject, hdr, payload) of a record; `record_offset` counts from the frame's start."""
        ...

    def is_compacted(self, index: int) -> bool:
        """Whether the block of an entry was compacted: removed messages then read as empty ones."""
        ...

    def frames(self, lo: int, hi: int) -> Iterator[tuple[FrameRef, Entry]]:
        """Every frame in the log with lo <= index <= hi, ascending, also below `first_index`; gaps are skipped.

        Reads block by block and bypasses the cache, for rebuilding an index. Known damaged entries are skipped. Raises
        StoreCorrupt when it finds another damaged frame.
        """
        ...

    def runs(self, lo: int, hi: int) -> Iterator[FrameRun]:
        """The same frames, many at a time, unverified, and sealed or packed where the file has them so.

        Who finds a frame that it cannot take asks `frames` for that one.
        """
        ...

    def save_checkpoint(self, index: int, term: int, members: bytes, state: bytes | DeferredState) -> None:
        """Add a checkpoint at `index`; the previous one is kept. Durable, like an append, after `submit`.

        A deferred state is made in the thread that writes it.
        """
        ...

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest sound checkpoint; None when there is none. Raises StoreCorrupt when all are damaged."""
        ...

    def trim(self, first_live_seq: int, index: int) -> int:
        """Drop blocks that end at or before `index` and have no message of `first_live_seq` or above; return how many.

        `index` is limited to the durable index and to the oldest checkpoint, so that a replay can start from each
        checkpoint. The newest block stays. `submit` removes the files, after the record of the trim is durable.
        """
        ...

    def manifest(self, first_live_seq: int) -> tuple[Manifest, Checkpoint] | None:
        """The copy of the log for a member that cannot catch up by entries; None while no checkpoint is durable.

        It consists of the newest durable checkpoint and the messages of `first_live_seq` or above up to it.
        """
        ...

    def checkpoint_reader(self) -> Callable[[], Checkpoint | None]:
        """A function for any thread that reads the current newest durable checkpoint, whose state may be large.

        It raises StoreCorrupt when all checkpoints are damaged.
        """
        ...

    def manifest_of(self, checkpoint: Checkpoint, first_live_seq: int) -> Manifest:
        """The parts of blocks for a checkpoint from `checkpoint_reader`: see `manifest`."""
        ...

    def read_chunk(self, block: int, offset: int, size: int) -> bytes:
        """Bytes of a block in a manifest. Raises KeyError when it was trimmed: then a new manifest is needed."""
        ...

    def begin_install(self, manifest: Manifest, checkpoint: Checkpoint) -> Staging:
        """Start to receive another member's log beside this one. An earlier unfinished copy is discarded."""
        ...

    def statistics(self) -> LogStatistics:
        """Figures for monitoring and tests."""
        ...

    def close(self) -> None:
        """Close the files. Changes that were not submitted are lost; wait for `durable_token` first."""
        ...
