"""Reads a log's directory after a crash: which blocks count, where the log ends, and what is damaged.

Crash model: a crash keeps everything that was fsynced and any part of the rest, torn anywhere, in files that may be
longer than their content. Damage (bit rot, a lost or misplaced write) can hit any byte at any time. Recovery must not
confuse the two: truncating damage as if it were a torn tail loses acknowledged messages on this replica, and through
its vote on all replicas (Protocol-Aware Recovery, FAST'18; nats-server issue 7549). So the end of the log is a torn
tail only if nothing proves that it was durable. The proofs are:

- the ledger: every block that it names was whole on disk with its head; every entry up to its floor was fsynced;
- a mark later in the block: it was written after the fsync of everything before it;
- a block with a higher serial: its predecessor was fsynced first;
- a checkpoint at a higher index: the entries before it were fsynced first.

The ledger (store/ledger/ledger_records.py) says what must exist: the blocks, the first index and term of each, the
length of the newest file, and what was dropped on purpose. A block that it names is damaged if it is missing, too short
or has another head; the ledger's head is used then. A block that it does not name was unfinished, cut or dropped, and
is removed. Where the ledger has no record of the log (an older format, a lost ledger), the files have to do
(store/ledger/legacy.py). Recovery itself changes nothing on disk.

Damage fails the opening, except in `SALVAGE` mode, which continues after it (store/blocks/damage_scan.py). The entries
in between keep their indexes and are damaged until another member returns them (store/log/block_repair.py).
"""

import enum
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.blocks.block import Block
from jetraft.store.blocks.damage_scan import DamageScan, Gap, as_compacted, scan_damage, with_lost_end
from jetraft.store.disk.files import TMP_SUFFIX, readable
from jetraft.store.disk.io import Disk
from jetraft.store.frames._frame import Scan, find_mark, scan
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    MARK_BYTES,
    PARITY_SUFFIX,
    BlockHead,
    Identity,
    Stop,
    block_name,
    checkpoint_name,
    parity_name,
    serial_of,
    unpack_block_head,
)
from jetraft.store.ledger.expected import Expected
from jetraft.store.model.files import index_ranges
from jetraft.store.port import StoreCorrupt, StoreNewer, StoreRefused

_NO_LIMIT: Final = (1 << 64) - 1
MAX_SEQ: Final = (1 << 63) - 1


class RecoveryMode(enum.Enum):
    """How an opening treats a damaged or torn log."""

    STRICT = "strict"  # truncate nothing: for inspection
    TORN_TAIL = "torn tail"  # truncate a torn tail, as defined above; damage fails the opening
    SALVAGE = "salvage"  # truncate a torn tail; mark damaged entries


@attrs.frozen(kw_only=True, slots=True)
class RecoveryReport:
    """The findings and changes of an opening, for its log line."""

    blocks: int
    frames: int
    bytes_scanned: int
    torn_bytes: int  # between the last whole frame and the last non-zero byte
    blocks_removed: tuple[str, ...]  # void, unfinished or dropped
    damaged_marks: int


@attrs.frozen(kw_only=True, slots=True)
class FoundBlock:
    """A block that counts."""

    block: Block
    head: BlockHead
    terms: tuple[tuple[int, int], ...]  # (first index, term) of each run
    last_term: int
    gaps: tuple[Gap, ...] = ()  # damaged ranges
    head_damaged: bool = False  # `head` is from the ledger, or from the name and the neighbours
    is_there: bool = True  # its file exists
    is_newest: bool = False
    file_bytes: int = 0
    end_lost: bool = False  # the number of entries at its end is unknown: the last of `gaps` represents them
    end_unknown: bool = False  # nothing sound follows the last of `gaps`: there may have been more entries than noted


@attrs.frozen(kw_only=True, slots=True)
class Recovered:
    """The state of a log as its directory has it."""

    blocks: tuple[FoundBlock, ...]  # by serial and by index
    dropped: index_ranges.Ranges
    checkpoints: tuple[int, ...]  # their indexes, ascending
    next_serial: int
    marked: bool  # the newest block ends with a mark
    remove: tuple[str, ...]  # names of files to be removed
    floor_index: int  # the log is known to have been durable up to here
    report: RecoveryReport

    @property
    def is_end_unknown(self) -> bool:
        """Whether the newest block may have had more entries than is known."""
        return bool(self.blocks) and self.blocks[-1].end_unknown

    @property
    def last_term(self) -> int:
        """The term of the last entry, 0 without one."""
        return self.blocks[-1].last_term if self.blocks else 0


def recover(disk: Disk, directory: Path, identity: Identity, mode: RecoveryMode, expected: Expected) -> Recovered:
    """Read a directory of blocks. The newest block is fsynced first, so every entry that is returned is durable.

    Raises StoreCorrupt when something is missing or damaged; in SALVAGE mode only when the ledger's records contradict
    each other. Raises StoreRefused for a newer file.
    """
    names = disk.list_directory(directory)
    wanted = {block_name(head) for head in expected.heads} | set(map(checkpoint_name, expected.checkpoints))
    remove = [name for name in names if name.endswith(TMP_SUFFIX) or (_is_ours(name) and name not in wanted)]
    parities = set(map(parity_name, wanted))
    remove += [name for name in names if name.endswith(PARITY_SUFFIX) and name not in parities]
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


def ranges_of(blocks: Iterable[FoundBlock]) -> index_ranges.Ranges:
    """The ranges of damaged entries."""
    gaps = [gap for item in blocks for gap in item.gaps if gap.entries]
    return index_ranges.merged((gap.first_index, gap.last_index) for gap in gaps)


def is_end_damaged(block: FoundBlock) -> bool:
    """Whether the last entry of a block is damaged: the term known for it is a lower bound then."""
    return any(gap.entries and gap.last_index == block.block.last_index for gap in block.gaps)


def _is_ours(name: str) -> bool:
    return name.endswith((BLOCK_SUFFIX, CHECKPOINT_SUFFIX))


@attrs.frozen(kw_only=True, slots=True)
class _Reading:
    """The inputs of a recovery."""

    disk: Disk
    directory: Path
    identity: Identity
    mode: RecoveryMode
    expected: Expected

    @property
    def proven_index(self) -> int:
        """The log was durable up to here, whatever its newest block holds now."""
        return max((self.expected.floor_index, *self.expected.checkpoints))

    def refuse(self, path: Path, why: str) -> None:
        """Raise StoreCorrupt, except in SALVAGE mode."""
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
        reading.refuse(path, "the head is damaged" if is_there else "the block is missing: the ledger names it")
    is_short = is_newest and reading.expected.is_short(data, head, identity.incarnation)
    if is_short:
        reading.refuse(path, f"the file has {len(data)} bytes, expected {head.reserved_bytes}")
    walk, gaps = _walk(reading, data, head, last_index, path)
    # If the first frames are gone too, nothing here can tell which entries the block had.
    unknown = 0 if reading.expected.is_recorded else sum(gap.entries for gap in gaps)  # from a checkpoint alone
    end_lost = is_short or (head_damaged and is_newest and walk.next_index == head.first_index + unknown)
    if end_lost:
        lost = with_lost_end(walk, gaps, max(head.reserved_bytes, walk.end))
        walk, gaps = lost.walk, lost.gaps
    # Damage may have hit a skip or the mark of a block that began empty. Only what both checkpoints cover is compacted.
    if last_index is not None and last_index <= reading.expected.compacted_to:
        walk = as_compacted(walk, gaps)
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
        end_unknown=is_newest and head.reserved_bytes > 0 and bool(gaps) and gaps[-1].end >= walk.end,
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
        seen = _scan_damaged(data, head, reading.identity, limit, proven_index)
        return seen.walk, seen.gaps
    if last_index is None and walk.stop in (Stop.END, Stop.ZERO) and walk.next_index <= proven_index:
        reading.refuse(path, f"the log ends at entry {walk.next_index - 1}, but was durable up to entry {proven_index}")
    return walk, ()


def _block(walk: Scan, head: BlockHead, number: int, gaps: Sequence[Gap], *, file_bytes: int) -> Block:
    block = Block(
        number=number,
        first_index=head.first_index,
        boundary_term=head.boundary_term,
        size=max(walk.end, file_bytes),
        used=walk.end,
        offsets=walk.offsets if walk.logical_offsets is None else walk.logical_offsets,
        stored=None if walk.logical_offsets is None else walk.offsets,
        last_seq=walk.last_seq,
        indexes=walk.indexes,
        sealed_last_index=walk.next_index - 1,
    )
    if any(gap.entries for gap in gaps):
        block.last_seq = MAX_SEQ  # a message in a gap may be live: the block is not dropped
    return block


def _is_head(data: bytes, head: BlockHead, identity: Identity, path: Path) -> bool:
    """Whether a block begins with this head. Raises StoreNewer for a head of a newer version."""
    try:
        return unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=str(path)) == head
    except StoreNewer:
        raise
    except (StoreCorrupt, StoreRefused):
        return False


def _terms(walk: Scan, gaps: Sequence[Gap], after: BlockHead | None) -> tuple[tuple[tuple[int, int], ...], int]:
    """The runs of terms of a block, and its last term. If its end is damaged, the next head has the term."""
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
    """Whether a scan has reached everything that the block is proven to contain."""
    if limit != _NO_LIMIT:
        return walk.next_index == limit + 1
    if walk.stop == Stop.VERSION:
        return True  # `_look` refuses it
    marked = walk.end < len(data) and _mark_from(data, walk.end, head, identity) >= 0
    return not marked and walk.next_index > checkpoint


def _scan_damaged(data: bytes, head: BlockHead, identity: Identity, limit: int, checkpoint: int) -> DamageScan:
    """The entries that a damaged block is proven to contain: up to its successor, its last mark or a checkpoint."""

    def to(last_index: int | None) -> DamageScan:
        return scan_damage(
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
    """All bytes of a block. The newest is read from the device, because fsync may have failed in an earlier process."""
    fd = disk.open_file(path)
    try:
        if newest:
            batch = disk.batch()
            batch.sync(fd)
            disk.perform(batch)
            disk.forget_cached(fd)
        return readable(disk, fd)
    finally:
        disk.close_file(fd)


def _mark_from(data: bytes, offset: int, head: BlockHead, identity: Identity) -> int:
    """The offset of the next mark of this block, -1 without one. It proves that everything before it was durable."""
    return find_mark(data, offset=offset, incarnation=identity.incarnation, tag=head.tag)


def _judge_tail(  # noqa: PLR0913, PLR0917  (what was seen, of which block, and what may be cut off)
    path: Path, data: bytes, walk: Scan, head: BlockHead, identity: Identity, mode: RecoveryMode
) -> int:
    """The size of the torn tail of the newest block, 0 when it ends cleanly. Raises StoreCorrupt for a durable tail."""
    if walk.end < len(data) and _mark_from(data, walk.end, head, identity) >= 0:
        raise StoreCorrupt(f"{path}: entry {walk.next_index} at byte {walk.end} was durable and is damaged")
    rest = data[walk.end :]
    torn_bytes = 0 if rest == bytes(len(rest)) else len(rest.rstrip(b"\0"))  # comparing is 50 times faster
    if torn_bytes and mode is RecoveryMode.STRICT:
        raise StoreCorrupt(f"{path}: a torn tail of {torn_bytes} bytes at byte {walk.end}")
    return torn_bytes


def _check_gaps(directory: Path, expected: Expected) -> None:
    """Check that every index from 1 to the newest block is in a block or was dropped. Raises StoreCorrupt."""
    next_index = 1
    for head, limit in expected.limited():
        if not index_ranges.covers(expected.dropped, next_index, head.first_index - 1):
            raise StoreCorrupt(
                f"{directory}: entries {next_index} to {head.first_index - 1} are in no block, and were not dropped"
            )
        next_index = _NO_LIMIT if limit is None else limit + 1
    proven = max((expected.floor_index, *expected.checkpoints))
    if not expected.heads and (expected.dropped or proven):
        raise StoreCorrupt(f"{directory}: no block exists, but the log was durable up to entry {proven}")
