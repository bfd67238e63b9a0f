"""The contract of a group's log, with durability in words.

`store/log.py` keeps a log in files, `store/mem_log.py` in memory.

A log holds the entries `first_index..last_index` without a hole, and knows the term of the entry just before (the
boundary). What is appended can be read at once and is durable later: the caller takes a `token()`, calls `submit()`,
and may speak of it (acknowledge, vote) when `durable_token` has reached that token. `on_durable` says when to look.

Messages are read from the same frames, by place: (block, offset). A block's number is never used again in this
process, so a place stays right until the block is trimmed or the entry is cut. Blocks whose messages are live may
stay below `first_index` after blocks without live messages between them were dropped: Raft no longer reads them,
messages do.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from jetraft.store.snapshot import Manifest, Staging


class StoreError(Exception):
    """What a store cannot do, in one line that names the file or the index."""


class StoreCorrupt(StoreError):  # noqa: N818  (says what is so; an Error suffix adds nothing)
    """Bytes on disk are not what was written, and it is not a tail that a crash tore. Nothing was changed on disk."""


class StoreRefused(StoreError):  # noqa: N818  (says what is so; an Error suffix adds nothing)
    """The file is sound, but belongs to another node or group, or was written by a newer version."""


class StoreMisplaced(StoreRefused):
    """A sound file of another node, group or kind lies here: a misdirected write, or a directory from elsewhere.

    What should be in its place is gone, as with a damaged file; what is in its place is left as it is.
    """


class StoreNewer(StoreRefused):
    """The file was written by a newer version: whatever else is so, it must not be changed."""


class HardStateLost(StoreError):  # noqa: N818  (says what is so; an Error suffix adds nothing)
    """Term and vote are not known: this member must not vote again under its old identity."""


class StoreFailed(StoreError):  # noqa: N818  (says what is so; an Error suffix adds nothing)
    """A write or fsync failed earlier. The log takes no more writes; open it again to find out what is on disk."""


@attrs.frozen(kw_only=True, slots=True)
class Entry:
    """One Raft entry. `frame` is the whole frame with its header (layout: store/format.py)."""

    index: int
    term: int
    kind: int
    frame: bytes


@attrs.frozen(kw_only=True, slots=True)
class HardState:
    """What a member must never forget: the highest term it has seen and whom it voted for in it."""

    term: int
    vote: NodeId | None


@attrs.frozen(kw_only=True, slots=True)
class Checkpoint:
    """The state machine after `index` was applied. `members` is Raft's, `state` the machine's; both opaque here."""

    index: int
    term: int
    members: bytes
    state: bytes


@attrs.frozen(slots=True)
class FrameRef:
    """The place of a frame. `block` numbers a block of this process, `offset` counts bytes from the block's start."""

    block: int
    offset: int


@attrs.frozen(kw_only=True, slots=True)
class LogStatistics:
    """A snapshot of a log's figures."""

    first_index: int
    last_index: int
    durable_index: int
    blocks: int
    bytes_used: int  # frames and heads
    bytes_on_disk: int  # with what is preallocated; 0 in memory
    batches: int  # written and fsynced so far
    bytes_written: int
    pieces_prepared: int  # of growing blocks, by zeros written ahead (store/prepare.py)
    checkpoint_index: int
    failed: str | None


class GroupLog(Protocol):
    """The ordered log of one Raft group. All methods are synchronous and belong to the one trio thread."""

    @property
    def faulty(self) -> "tuple[tuple[int, int], ...]":
        """(first, last) of damaged entries, which cannot be read: ascending, apart from each other.

        While there are some, the member must not lead and must not vote: one may be committed thanks to it alone.
        """
        ...

    @property
    def lost(self) -> "tuple[tuple[int, int], ...]":
        """Damaged entries that no member has: no-ops stand for them."""
        ...

    @property
    def sums_records(self) -> bool:
        """Whether a checksum for each record of a frame is of use here, should one be damaged."""
        ...

    on_durable: Callable[[], None] | None
    """Called in the trio thread after `durable_token` moved, or after `failed` was set."""

    @property
    def first_index(self) -> int:
        """The lowest index that `entries` can read; last_index + 1 when it can read none."""
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
        """The last one set, durable or not."""
        ...

    @property
    def hard_state_token(self) -> int:
        """The token right after the last `set_hard_state`."""
        ...

    @property
    def durable_token(self) -> int:
        """Every change up to this token is on disk. Never goes back."""
        ...

    @property
    def durable_index(self) -> int:
        """The highest index that is on disk and still in the log."""
        ...

    @property
    def failed(self) -> Exception | None:
        """A write or fsync error: final, set before `on_durable` is called."""
        ...

    @property
    def is_starved(self) -> bool:
        """Whether something waits because no file could be opened: the process has too many. `submit` tries again."""
        ...

    def term_at(self, index: int) -> int | None:
        """The term of an entry, also of the boundary; None outside, and for a damaged entry where nothing tells it."""
        ...

    def term_bounds(self, index: int) -> tuple[int, int] | None:
        """The lowest and the highest term that an entry can have: the same where it is known. None outside."""
        ...

    def entries(self, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Entries lo..hi (inclusive, inside the log) in order: at least one, then as many as fit into `bytes_max`.

        Raises StoreCorrupt when a frame on disk is damaged.
        """
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries that continue the log. Readable at once, durable when `durable_token` reaches `token()`.

        Raises StoreFailed after a write error.
        """
        ...

    def cut_from(self, index: int) -> None:
        """Drop `index` and everything after it: an uncommitted tail that the leader does not have."""
        ...

    def set_hard_state(self, hard_state: HardState) -> None:
        """Replace term and vote. Use neither before `durable_token` reaches `hard_state_token`."""
        ...

    def token(self) -> int:
        """A name for everything appended, cut, set and saved so far."""
        ...

    def note_floor(self) -> bool:
        """Have it written down apart from the log how far it is durable; False when that is known already."""
        ...

    def would_block(self, bytes_max: int) -> bool:
        """Whether all that waits are at most so many bytes of frames, which a quick disk would write at once."""
        ...

    def submit(self, *, may_block: bool = False) -> None:
        """Hand everything not yet handed over to the writer thread, as one batch with one fsync.

        With `may_block` it may be written here and now when the disk is quick; `on_durable` is called then before this
        returns.

        At most one batch is in flight; when one is, the next starts by itself as soon as that one is done. A file that
        cannot be opened counts as a failed write: `failed` is set and `on_durable` called before this returns.
        """
        ...

    def locate(self, index: int) -> FrameRef | None:
        """Where the frame of an entry is; None when it was never appended, was cut or trimmed."""
        ...

    def frame_at(self, block: int, offset: int) -> bytes:
        """The whole frame at a place that `locate` or `frames` gave, checksum verified.

        Raises KeyError when the block was trimmed, StoreCorrupt when the frame is damaged.
        """
        ...

    def read_record(self, block: int, frame_offset: int, record_offset: int) -> tuple[int, int, bytes, bytes, bytes]:
        """(ts_ns, flags, subject, hdr, payload) of a record; `record_offset` counts from the frame's start."""
        ...

    def is_compacted(self, index: int) -> bool:
        """Whether the block of an entry was compacted: messages that are gone then read as empty ones."""
        ...

    def frames(self, lo: int, hi: int) -> Iterator[tuple[FrameRef, Entry]]:
        """Every frame kept with lo <= index <= hi, ascending, also those below `first_index`; holes are passed over.

        Reads block by block, around the cache: for rebuilding an index. Faulty entries are passed over. Raises
        StoreCorrupt at a frame that is found damaged.
        """
        ...

    def save_checkpoint(self, index: int, term: int, members: bytes, state: bytes) -> None:
        """Keep the state after `index`, beside the previous one. Durable, like an append, through `submit`."""
        ...

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is sound. Raises StoreCorrupt when there are some and none is."""
        ...

    def trim(self, first_live_seq: int, index: int) -> int:
        """Drop blocks that end at or before `index` and hold no message of `first_live_seq` or above; return how many.

        `index` is held back to what is durable and to the oldest checkpoint kept, so that each of them can still be
        replayed from. The newest block stays. The files go, through `submit`, after the record of it is on disk.
        """
        ...

    def manifest(self, first_live_seq: int) -> "tuple[Manifest, Checkpoint] | None":
        """What a member needs that cannot be brought up to date entry by entry; None while no checkpoint is durable.

        Covers the newest durable checkpoint and the messages of `first_live_seq` or above up to it.
        """
        ...

    def checkpoint_reader(self) -> Callable[[], Checkpoint | None]:
        """What reads the newest durable checkpoint of now, for any thread: its state may be large.

        Raises StoreCorrupt when there are some and none is sound.
        """
        ...

    def manifest_of(self, checkpoint: Checkpoint, first_live_seq: int) -> "Manifest":
        """The parts of blocks that go with a checkpoint that `checkpoint_reader` has read: see `manifest`."""
        ...

    def read_chunk(self, block: int, offset: int, size: int) -> bytes:
        """Bytes of a block that a manifest names. Raises KeyError when it was trimmed: then make another manifest."""
        ...

    def begin_install(self, manifest: "Manifest", checkpoint: Checkpoint) -> "Staging":
        """Start gathering another member's log beside this one. What was gathered before is forgotten."""
        ...

    def statistics(self) -> LogStatistics:
        """Figures for monitoring and tests."""
        ...

    def close(self) -> None:
        """Give the files back. What was not submitted is lost; wait for `durable_token` first."""
        ...
