"""What a log's directory holds after a crash: which blocks count, where the log ends, and whether anything is wrong.

Model of the world: a crash keeps what was fsynced, and of the rest any part, torn anywhere, with files longer than
their content. Damage (bit rot, a lost or misplaced write) can hit anything at any time. The two must not be confused:
cutting damage off as if it were a torn tail loses acknowledged messages on one replica, and by its vote on all of them
(Protocol-Aware Recovery, FAST'18; nats-server issue 7549). So the end of the log is a torn tail only if nothing proves
that it was durable, and these are the proofs:

- the ledger: every block that it names was on disk whole with its head, every entry up to its floor was fsynced;
- a mark at a later place of the block: it was written after the fsync of everything before it;
- a block of a higher serial: its predecessor was fsynced first;
- a checkpoint at a higher index: the entries before it were fsynced first.

What must be there is what the ledger says (store/ledger_records.py): which blocks, where each begins and in which term,
how long the newest file is, what was dropped on purpose. A block that it names and that is missing, too short, or does
not begin as it says is damaged, and its head is known all the same. A block that it does not name was never finished,
or was cut or dropped before, and goes. Without a ledger's word (a store of an older format, a ledger that is lost) the
files say what they can: store/legacy.py. Nothing is changed on disk while one of these questions is open.

Damage ends an opening, unless it is in `SALVAGE` mode: that goes on behind it (store/survey.py), and the entries in
between keep their indexes and are faulty until another member has given them back (store/faulty.py).
"""

import enum
import errno
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from jetraft.store import trimmed
from jetraft.store._frame import Scan, find_mark, scan
from jetraft.store.block import Block
from jetraft.store.format import (
    BLOCK_HEAD_BYTES,
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    MARK_BYTES,
    TMP_SUFFIX,
    BlockHead,
    Identity,
    Stop,
    block_name,
    checkpoint_name,
    unpack_block_head,
)
from jetraft.store.io import Disk
from jetraft.store.ledger_records import Born, GroupState
from jetraft.store.port import StoreCorrupt, StoreNewer, StoreRefused
from jetraft.store.survey import Gap, Survey, survey, with_lost_end

_NO_LIMIT: Final = (1 << 64) - 1
_PAGE_BYTES: Final = 4096  # a sector of a disk, and a page of the cache
MAX_SEQ: Final = (1 << 63) - 1


class RecoveryMode(enum.Enum):
    """What may be cut off without asking."""

    STRICT = "strict"  # nothing: for inspection
    TORN_TAIL = "torn tail"  # what a crash tore, as defined above
    SALVAGE = "salvage"  # the same; damage does not end the opening, it is marked


@attrs.frozen(kw_only=True, slots=True)
class RecoveryReport:
    """What was found and done, for the log line of an opening."""

    blocks: int
    frames: int
    bytes_scanned: int
    torn_bytes: int  # between the last whole frame and the last byte that is not zero
    blocks_removed: tuple[str, ...]  # void, unfinished or dropped before
    damaged_marks: int


@attrs.frozen(kw_only=True, slots=True)
class FoundBlock:
    """A block that counts."""

    block: Block
    head: BlockHead
    terms: tuple[tuple[int, int], ...]  # (first index, term) of each run
    last_term: int
    gaps: tuple[Gap, ...] = ()  # damaged ranges
    head_damaged: bool = False  # `head` is what the ledger says, or the name and the place in the log
    is_there: bool = True  # there is a file
    is_newest: bool = False
    file_bytes: int = 0
    end_lost: bool = False  # how many entries were there nobody here knows: the last of `gaps` stands for them


@attrs.frozen(kw_only=True, slots=True)
class Recovered:
    """A directory of blocks, understood."""

    blocks: tuple[FoundBlock, ...]  # by serial and by index
    dropped: trimmed.Ranges
    checkpoints: tuple[int, ...]  # their indexes, ascending
    next_serial: int
    marked: bool  # the newest block ends with a mark
    remove: tuple[str, ...]  # names that must go
    floor_index: int  # up to here the log is known to have been durable
    report: RecoveryReport

    @property
    def last_term(self) -> int:
        """The term of the last entry, 0 without one."""
        return self.blocks[-1].last_term if self.blocks else 0


@attrs.frozen(kw_only=True, slots=True)
class Expected:
    """What must be in a directory of blocks, according to the ledger or to the files themselves."""

    heads: tuple[BlockHead, ...]  # by serial and by index; none is void
    dropped: trimmed.Ranges = ()
    checkpoints: tuple[int, ...] = ()
    floor_index: int = 0  # up to here the log was durable
    is_recorded: bool = True  # by the ledger: names that are not in here were never finished, or do not count any more

    @classmethod
    def of(cls, state: GroupState) -> "Expected":
        """What the ledger says of a group."""
        return cls(
            heads=tuple(map(_head_of, state.births)),
            dropped=state.dropped,
            checkpoints=tuple(point.log_index for point in state.checkpoints),
            floor_index=state.floor.log_index,
        )

    def limited(self) -> list[tuple[BlockHead, int | None]]:
        """Each block with the last index that counts in it: what follows begins there, or was dropped from there on.

        None for the newest.
        """
        found: list[tuple[BlockHead, int | None]] = []
        limit: int | None = None
        for head in reversed(self.heads):
            dropped = trimmed.first_above(self.dropped, head.first_index)
            ends = [limit, None if dropped is None else dropped - 1]
            found.append((head, min((end for end in ends if end is not None), default=None)))
            limit = head.first_index - 1
        found.reverse()
        return found

    def is_short(self, data: bytes, head: BlockHead, incarnation: int) -> bool:
        """Whether the newest block has lost its end: it had its full length, durably, before anything was said of it.

        Where only the files say so, before its first mark came.
        """
        if len(data) >= head.reserved_bytes:
            return False
        return self.is_recorded or find_mark(data, offset=BLOCK_HEAD_BYTES, incarnation=incarnation, tag=head.tag) >= 0


def _head_of(born: Born) -> BlockHead:
    return BlockHead(
        serial=born.serial,
        first_index=born.first_index,
        boundary_term=born.boundary_term,
        reserved_bytes=born.reserved_bytes,
        tag=born.tag,
    )


def recover(disk: Disk, directory: Path, identity: Identity, mode: RecoveryMode, expected: Expected) -> Recovered:
    """Read a directory of blocks. The newest block is fsynced first: what is counted here is durable afterwards.

    Raises StoreCorrupt when something is missing or damaged; in SALVAGE mode only when the expectations contradict each
    other. Raises StoreRefused for a newer file.
    """
    names = disk.list_directory(directory)
    wanted = {block_name(head) for head in expected.heads} | set(map(checkpoint_name, expected.checkpoints))
    remove = [name for name in names if name.endswith(TMP_SUFFIX) or (_is_ours(name) and name not in wanted)]
    _check_gaps(directory, expected)
    reading = _Reading(disk=disk, directory=directory, identity=identity, mode=mode, expected=expected)
    found, scanned, marked = _scan_all(reading, names)
    return Recovered(
        blocks=tuple(found),
        dropped=expected.dropped,
        checkpoints=expected.checkpoints,
        next_serial=max((serial_of(name) for name in {*names, *wanted}), default=0) + 1,
        marked=marked,
        remove=tuple(remove),
        floor_index=expected.floor_index,
        report=attrs.evolve(scanned, blocks=len(found), blocks_removed=tuple(remove)),
    )


def ranges_of(blocks: Iterable[FoundBlock]) -> trimmed.Ranges:
    """The entries that are damaged."""
    gaps = [gap for item in blocks for gap in item.gaps if gap.entries]
    return trimmed.merged((gap.first_index, gap.last_index) for gap in gaps)


def is_end_damaged(block: FoundBlock) -> bool:
    """Whether the last entry of a block is damaged: its term is then a lower bound."""
    return any(gap.entries and gap.last_index == block.block.last_index for gap in block.gaps)


def _is_ours(name: str) -> bool:
    return name.endswith((BLOCK_SUFFIX, CHECKPOINT_SUFFIX))


def serial_of(name: str) -> int:
    """The serial in the name of a block; 0 for a name that is none."""
    serial = name.removesuffix(BLOCK_SUFFIX).rpartition("-")[2]
    return int(serial) if name.endswith(BLOCK_SUFFIX) and serial.isdigit() else 0


def read_file(disk: Disk, path: Path) -> bytes:
    """All bytes of a file."""
    fd = disk.open_file(path)
    try:
        return disk.read(fd, disk.size(fd), 0)
    finally:
        disk.close_file(fd)


def read_readable(disk: Disk, path: Path) -> bytes:
    """All bytes of a block; zeros where the device cannot read them, which no checksum takes for anything else."""
    fd = disk.open_file(path)
    try:
        return _readable(disk, fd)
    finally:
        disk.close_file(fd)


def _readable(disk: Disk, fd: int) -> bytes:
    size = disk.size(fd)
    try:
        return disk.read(fd, size, 0)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    return b"".join(_read_page(disk, fd, at, min(_PAGE_BYTES, size - at)) for at in range(0, size, _PAGE_BYTES))


def _read_page(disk: Disk, fd: int, at: int, size: int) -> bytes:
    try:
        return disk.read(fd, size, at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return bytes(size)


@attrs.frozen(kw_only=True, slots=True)
class _Reading:
    """What a directory of blocks is read with."""

    disk: Disk
    directory: Path
    identity: Identity
    mode: RecoveryMode
    expected: Expected

    @property
    def proven_index(self) -> int:
        """Up to here the log was durable, whatever its newest block holds now."""
        return max((self.expected.floor_index, *self.expected.checkpoints))

    def refuse(self, path: Path, why: str) -> None:
        """Damage ends an opening, except for one that goes on behind it."""
        if self.mode is not RecoveryMode.SALVAGE:
            raise StoreCorrupt(f"{path}: {why}")


@attrs.frozen(kw_only=True, slots=True)
class _Seen:
    """One block as it was read."""

    found: FoundBlock
    walk: Scan
    torn_bytes: int = 0
    marked: bool = False


def _scan_all(reading: _Reading, names: Sequence[str]) -> tuple[list[FoundBlock], RecoveryReport, bool]:
    limited = reading.expected.limited()
    seen = [
        _look(reading, number, item, limited[number + 1 : number + 2], is_there=block_name(item[0]) in names)
        for number, item in enumerate(limited)
    ]
    report = RecoveryReport(
        blocks=len(seen),
        frames=sum(len(item.walk.offsets) for item in seen),
        bytes_scanned=sum(item.walk.end for item in seen),
        torn_bytes=seen[-1].torn_bytes if seen else 0,
        blocks_removed=(),
        damaged_marks=sum(item.walk.damaged_marks for item in seen),
    )
    return [item.found for item in seen], report, bool(seen) and seen[-1].marked


def _look(
    reading: _Reading,
    number: int,
    item: tuple[BlockHead, int | None],
    after: Sequence[tuple[BlockHead, int | None]],
    *,
    is_there: bool,
) -> _Seen:
    """Read one block. `item` is its head and its last index, None for the newest; `after` is the next one, if any."""
    head, last_index = item
    path, identity = reading.directory / block_name(head), reading.identity
    is_newest = not after
    data = _read_block(reading.disk, path, newest=is_newest) if is_there else b""
    head_damaged = not _is_head(data, head, identity, path)
    if head_damaged:
        reading.refuse(path, "the head is damaged" if is_there else "the block is missing")
    is_short = is_newest and reading.expected.is_short(data, head, identity.incarnation)
    if is_short:
        reading.refuse(path, f"{len(data)} bytes are left of {head.reserved_bytes}")
    walk, gaps = _walk(reading, data, head, last_index, path)
    # Where nothing is left of the first frames either, nothing here can tell what else was in it.
    end_lost = is_short or (head_damaged and is_newest and walk.next_index == head.first_index)
    if end_lost:
        lost = with_lost_end(walk, gaps, max(head.reserved_bytes, walk.end))
        walk, gaps = lost.walk, lost.gaps
    terms, last_term = _terms(walk, gaps, after[0][0] if after else None)
    found = FoundBlock(
        block=_block(walk, head, number, gaps, file_bytes=len(data) if is_newest else 0),
        head=head,
        terms=terms,
        last_term=last_term,
        gaps=gaps,
        head_damaged=head_damaged,
        is_there=is_there,
        is_newest=is_newest,
        file_bytes=len(data),
        end_lost=end_lost,
    )
    if walk.stop == Stop.VERSION:
        raise StoreNewer(f"{path}: entry {walk.next_index} has a newer format")
    if last_index is not None:
        if walk.stop not in (Stop.END, Stop.ZERO):
            raise StoreCorrupt(f"{path}: entry {walk.next_index} at byte {walk.end} is damaged")
        return _Seen(found=found, walk=walk)
    torn_bytes = _judge_tail(path, data, walk, head, identity, reading.mode)
    marked = _mark_from(data, walk.end - MARK_BYTES, head, identity) >= 0
    return _Seen(found=found, walk=walk, torn_bytes=torn_bytes, marked=marked)


def _walk(
    reading: _Reading, data: bytes, head: BlockHead, last_index: int | None, path: Path
) -> tuple[Scan, tuple[Gap, ...]]:
    """The entries of a block up to its last index, or to the end that is proven; with gaps where they are damaged."""
    limit = _NO_LIMIT if last_index is None else last_index
    incarnation = reading.identity.incarnation
    walk = scan(
        data,
        offset=BLOCK_HEAD_BYTES,
        incarnation=incarnation,
        next_index=head.first_index,
        term=head.boundary_term,
        last_index=limit,
    )
    proven_index = reading.proven_index
    if reading.mode is RecoveryMode.SALVAGE and not _is_whole(data, walk, head, reading.identity, limit, proven_index):
        seen = _survey(data, head, reading.identity, limit, proven_index)
        return seen.walk, seen.gaps
    if last_index is None and walk.stop in (Stop.END, Stop.ZERO) and walk.next_index <= proven_index:
        reading.refuse(path, f"the log ends at {walk.next_index - 1}, and was durable up to {proven_index}")
    return walk, ()


def _block(walk: Scan, head: BlockHead, number: int, gaps: Sequence[Gap], *, file_bytes: int) -> Block:
    block = Block(
        number=number,
        first_index=head.first_index,
        boundary_term=head.boundary_term,
        size=max(walk.end, file_bytes),
        used=walk.end,
        offsets=walk.offsets if walk.known_as is None else walk.known_as,
        stored=None if walk.known_as is None else walk.offsets,
        last_seq=walk.last_seq,
        indexes=walk.indexes,
        sealed_last_index=walk.next_index - 1,
    )
    if gaps:
        block.last_seq = MAX_SEQ  # what is in a gap may be live: the block is not dropped
    return block


def _is_head(data: bytes, head: BlockHead, identity: Identity, path: Path) -> bool:
    """Whether a block begins as it must. Raises StoreNewer for a head of a newer version."""
    try:
        return unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=str(path)) == head
    except StoreNewer:
        raise
    except (StoreCorrupt, StoreRefused):
        return False


def _terms(walk: Scan, gaps: Sequence[Gap], after: BlockHead | None) -> tuple[tuple[tuple[int, int], ...], int]:
    """The runs of terms of a block, and the last one. Where its end is damaged the next head says that entry's term."""
    terms = tuple(walk.terms)
    last_index = walk.next_index - 1
    if after is None or after.first_index != last_index + 1 or after.boundary_term == walk.term:
        return terms, walk.term
    if gaps and gaps[-1].entries and gaps[-1].last_index == last_index and after.boundary_term > walk.term:
        return (*terms, (last_index, after.boundary_term)), after.boundary_term
    return terms, walk.term


def _is_whole(  # noqa: PLR0913, PLR0917  (what was seen, of which block, and how far it is proven)
    data: bytes, walk: Scan, head: BlockHead, identity: Identity, limit: int, checkpoint: int
) -> bool:
    """Whether a scan has seen everything that is proven to be in the block."""
    if limit != _NO_LIMIT:
        return walk.next_index == limit + 1
    if walk.stop == Stop.VERSION:
        return True  # refused later on
    marked = walk.end < len(data) and _mark_from(data, walk.end, head, identity) >= 0
    return not marked and walk.next_index > checkpoint


def _survey(data: bytes, head: BlockHead, identity: Identity, limit: int, checkpoint: int) -> Survey:
    """Everything that is proven to be in a damaged block: up to its successor, or to its last mark or a checkpoint."""

    def to(last_index: int | None) -> Survey:
        return survey(
            data,
            offset=BLOCK_HEAD_BYTES,
            incarnation=identity.incarnation,
            next_index=head.first_index,
            term=head.boundary_term,
            last_index=last_index,
            tag=head.tag,
        )

    if limit != _NO_LIMIT:
        return to(limit)
    seen = to(None)
    return seen if seen.walk.next_index > checkpoint else to(checkpoint)


def _read_block(disk: Disk, path: Path, *, newest: bool) -> bytes:
    """All bytes of a block; of the newest as the device has them, since an earlier process may have seen fsync fail."""
    fd = disk.open_file(path)
    try:
        if newest:
            batch = disk.batch()
            batch.sync(fd)
            disk.perform(batch)
            disk.forget_cached(fd)
        return _readable(disk, fd)
    finally:
        disk.close_file(fd)


def _mark_from(data: bytes, offset: int, head: BlockHead, identity: Identity) -> int:
    """Where the next mark is that proves something; -1 without one."""
    return find_mark(data, offset=offset, incarnation=identity.incarnation, tag=head.tag)


def _judge_tail(  # noqa: PLR0913, PLR0917  (what was seen, of which block, and what may be cut off)
    path: Path, data: bytes, walk: Scan, head: BlockHead, identity: Identity, mode: RecoveryMode
) -> int:
    """Bytes of the torn tail of the newest block, 0 when it ends cleanly. Raises when it is more than a torn tail."""
    if walk.end < len(data) and _mark_from(data, walk.end, head, identity) >= 0:
        raise StoreCorrupt(f"{path}: entry {walk.next_index} at byte {walk.end} was durable and is damaged")
    rest = data[walk.end :]
    torn_bytes = 0 if rest == bytes(len(rest)) else len(rest.rstrip(b"\0"))  # comparing is 50 times faster
    if torn_bytes and mode is RecoveryMode.STRICT:
        raise StoreCorrupt(f"{path}: a torn tail of {torn_bytes} bytes from byte {walk.end}")
    return torn_bytes


def _check_gaps(directory: Path, expected: Expected) -> None:
    """Every index from 1 to the newest block is in a block, or was dropped on purpose."""
    next_index = 1
    for head, limit in expected.limited():
        if not trimmed.covers(expected.dropped, next_index, head.first_index - 1):
            raise StoreCorrupt(f"{directory}: entries from {next_index} to {head.first_index - 1} are missing")
        next_index = _NO_LIMIT if limit is None else limit + 1
    if not expected.heads and (expected.dropped or expected.floor_index):
        raise StoreCorrupt(f"{directory}: no block is left after entry {expected.floor_index}")
