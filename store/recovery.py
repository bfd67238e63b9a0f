"""What a log's directory holds after a crash: which blocks count, where the log ends, and whether anything is wrong.

Model of the world: a crash keeps what was fsynced, and of the rest any part, torn anywhere, with files longer than
their content. Damage (bit rot, a lost or misplaced write) can hit anything at any time. The two must not be confused:
cutting damage off as if it were a torn tail loses acknowledged messages on one replica, and by its vote on all of them
(Protocol-Aware Recovery, FAST'18; nats-server issue 7549). So the end of the log is a torn tail only if nothing proves
that it was durable, and these are the proofs:

- a mark at a later place of the block: it was written after the fsync of everything before it;
- a block of a higher serial: its predecessor was fsynced first;
- a file that is shorter than its head says, with a mark in it: it had its full length before the first mark came;
- a checkpoint at a higher index: the entries before it were fsynced first.

Cuts: entries at or above the first index of a block of higher serial are void. A block without a sound head and
without a mark was never finished, and goes. Blocks that were dropped on purpose are listed in `trimmed`; any other gap
is damage. Nothing is changed on disk while one of these questions is open.

Damage ends an opening, unless it is in `SALVAGE` mode: that goes on behind it (store/survey.py), and the entries in
between keep their indexes and are faulty until another member has given them back (store/faulty.py).
"""

import enum
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
    TRIMMED_NAME,
    BlockHead,
    Identity,
    Stop,
    block_name,
    unpack_block_head,
)
from jetraft.store.io import Disk
from jetraft.store.port import StoreCorrupt, StoreRefused
from jetraft.store.survey import Gap, Survey, has_lost_end, survey, with_lost_end

_NO_LIMIT: Final = (1 << 64) - 1
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
    head_damaged: bool = False  # `head` is what the name and the place in the log say
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
    report: RecoveryReport

    @property
    def last_term(self) -> int:
        """The term of the last entry, 0 without one."""
        return self.blocks[-1].last_term if self.blocks else 0


def recover(disk: Disk, directory: Path, identity: Identity, mode: RecoveryMode) -> Recovered:
    """Read a directory of blocks. The newest block is fsynced first: what is counted here is durable afterwards.

    Raises StoreCorrupt when something is missing or damaged, StoreRefused for a foreign or newer file. In SALVAGE mode
    only damage that leaves nothing to go on with is an error: a first block that is missing, an unreadable record of
    what was dropped.
    """
    names = disk.list_directory(directory)
    remove = [name for name in names if name.endswith(TMP_SUFFIX)]
    dropped = _read_dropped(disk, directory, identity) if TRIMMED_NAME in names else ()
    checkpoints = tuple(sorted(int(name.removesuffix(CHECKPOINT_SUFFIX)) for name in names if _is_checkpoint(name)))
    heads = []
    guessed = set()
    for name in (name for name in names if name.endswith(BLOCK_SUFFIX)):
        try:
            head = _read_head(disk, directory / name, identity)
        except StoreCorrupt:
            if mode is not RecoveryMode.SALVAGE or not _serial(name):
                raise
            head = BlockHead(serial=_serial(name), first_index=int(name.partition("-")[0]), boundary_term=0)
            guessed.add(head.serial)
        if head is None:
            remove.append(name)
        else:
            heads.append(head)
    heads.sort(key=lambda head: head.serial)
    kept, void = _without_void(heads, dropped)
    remove += [block_name(head) for head in void]
    checkpoint = checkpoints[-1] if checkpoints else 0
    found, scanned, marked = _scan_all(disk, directory, identity, mode, kept, checkpoint)
    found = _with_true_heads(directory, found, guessed)
    _check_gaps(directory, found, dropped)
    _check_length(directory, found, checkpoints)
    return Recovered(
        blocks=tuple(found),
        dropped=dropped,
        checkpoints=checkpoints,
        next_serial=max((_serial(name) for name in names if name.endswith(BLOCK_SUFFIX)), default=0) + 1,
        marked=marked,
        remove=tuple(remove),
        report=attrs.evolve(scanned, blocks=len(found), blocks_removed=tuple(remove)),
    )


def ranges_of(blocks: Iterable[FoundBlock]) -> trimmed.Ranges:
    """The entries that are damaged."""
    gaps = [gap for item in blocks for gap in item.gaps if gap.entries]
    return trimmed.merged((gap.first_index, gap.last_index) for gap in gaps)


def _is_checkpoint(name: str) -> bool:
    return name.endswith(CHECKPOINT_SUFFIX) and name.removesuffix(CHECKPOINT_SUFFIX).isdigit()


def _serial(name: str) -> int:
    """The serial in the name of a block; 0 for a name that is none."""
    serial = name.removesuffix(BLOCK_SUFFIX).rpartition("-")[2]
    return int(serial) if serial.isdigit() else 0


def _read_dropped(disk: Disk, directory: Path, identity: Identity) -> trimmed.Ranges:
    data = read_file(disk, directory / TRIMMED_NAME)
    return trimmed.unpack(data, identity, what=str(directory / TRIMMED_NAME))


def read_file(disk: Disk, path: Path) -> bytes:
    """All bytes of a file."""
    fd = disk.open_file(path)
    try:
        return disk.read(fd, disk.size(fd), 0)
    finally:
        disk.close_file(fd)


def _read_head(disk: Disk, path: Path, identity: Identity) -> BlockHead | None:
    """The head of a block; None when the block was never finished, which the absence of marks shows."""
    fd = disk.open_file(path)
    try:
        data = disk.read(fd, BLOCK_HEAD_BYTES, 0)
        try:
            head = unpack_block_head(data, identity, what=str(path))
        except StoreCorrupt:
            whole = disk.read(fd, disk.size(fd), 0)
            if find_mark(whole, offset=0, incarnation=identity.incarnation) >= 0:
                raise
            return None
    finally:
        disk.close_file(fd)
    if block_name(head) != path.name:
        raise StoreCorrupt(f"{path}: holds the head of {block_name(head)}")
    return head


def _without_void(
    heads: Sequence[BlockHead], dropped: trimmed.Ranges
) -> tuple[list[tuple[BlockHead, int]], list[BlockHead]]:
    """The blocks that count, each with the last index that counts in it, and those that do not, by serial."""
    kept: list[tuple[BlockHead, int]] = []
    void: list[BlockHead] = []
    limit = _NO_LIMIT
    for head in reversed(heads):
        # What a dropped block cut off must not come back once that block's head is gone.
        dropped_from = min((first for first, _ in dropped if first > head.first_index), default=_NO_LIMIT + 1)
        last = min(limit, dropped_from - 1)
        if head.first_index > limit or (last != _NO_LIMIT and trimmed.covers(dropped, head.first_index, last)):
            void.append(head)
        else:
            kept.append((head, last))
        limit = min(limit, head.first_index - 1)
    kept.reverse()
    return kept, void


def _scan_all(  # noqa: PLR0913, PLR0917  (whose blocks, which, and how far they are proven)
    disk: Disk,
    directory: Path,
    identity: Identity,
    mode: RecoveryMode,
    kept: Sequence[tuple[BlockHead, int]],
    checkpoint: int,
) -> tuple[list[FoundBlock], RecoveryReport, bool]:
    found: list[FoundBlock] = []
    marked = False
    frames = bytes_scanned = torn_bytes = damaged_marks = 0
    for number, (head, limit) in enumerate(kept):
        path = directory / block_name(head)
        data = _read_block(disk, path, newest=number == len(kept) - 1)
        walk = scan(
            data,
            offset=BLOCK_HEAD_BYTES,
            incarnation=identity.incarnation,
            next_index=head.first_index,
            term=head.boundary_term,
            last_index=limit,
        )
        gaps: tuple[Gap, ...] = ()
        end_lost = limit == _NO_LIMIT and has_lost_end(data, head, identity.incarnation)
        if end_lost and mode is not RecoveryMode.SALVAGE:
            raise StoreCorrupt(f"{path}: {len(data)} bytes are left of {head.reserved_bytes}")
        if mode is RecoveryMode.SALVAGE and not _is_whole(data, walk, identity, limit, checkpoint):
            seen = _survey(data, head, identity, limit, checkpoint)
            walk, gaps = seen.walk, seen.gaps
        if end_lost:
            seen = with_lost_end(walk, gaps, max(head.reserved_bytes, walk.end))
            walk, gaps = seen.walk, seen.gaps
        if limit == _NO_LIMIT:
            torn_bytes = _judge_tail(path, data, walk, identity, mode)
            marked = find_mark(data, offset=walk.end - MARK_BYTES, incarnation=identity.incarnation) >= 0
        bytes_scanned += walk.end
        frames += len(walk.offsets)
        damaged_marks += walk.damaged_marks
        block = Block(
            number=number,
            first_index=head.first_index,
            boundary_term=head.boundary_term,
            size=walk.end,
            used=walk.end,
            offsets=walk.offsets if walk.known_as is None else walk.known_as,
            stored=None if walk.known_as is None else walk.offsets,
            last_seq=walk.last_seq,
            indexes=walk.indexes,
            sealed_last_index=walk.next_index - 1,
        )
        if gaps:
            block.last_seq = MAX_SEQ  # what is in a gap may be live: the block is not dropped
        terms = tuple(walk.terms)
        found.append(FoundBlock(block=block, head=head, terms=terms, last_term=walk.term, gaps=gaps, end_lost=end_lost))
        if walk.stop not in (Stop.END, Stop.ZERO) and limit != _NO_LIMIT:
            raise StoreCorrupt(f"{path}: entry {walk.next_index} at byte {walk.end} is damaged")
    report = RecoveryReport(
        blocks=len(found),
        frames=frames,
        bytes_scanned=bytes_scanned,
        torn_bytes=torn_bytes,
        blocks_removed=(),
        damaged_marks=damaged_marks,
    )
    return found, report, marked


def _is_whole(data: bytes, walk: Scan, identity: Identity, limit: int, checkpoint: int) -> bool:
    """Whether a scan has seen everything that is proven to be in the block."""
    if limit != _NO_LIMIT:
        return walk.next_index == limit + 1
    if walk.stop == Stop.VERSION:
        return True  # refused later on
    marked = walk.end < len(data) and find_mark(data, offset=walk.end, incarnation=identity.incarnation) >= 0
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
        )

    if limit != _NO_LIMIT:
        return to(limit)
    seen = to(None)
    return seen if seen.walk.next_index > checkpoint else to(checkpoint)


def _with_true_heads(directory: Path, found: Sequence[FoundBlock], guessed: set[int]) -> list[FoundBlock]:
    """Give blocks whose heads were damaged the term that the block before them ends with."""
    items: list[FoundBlock] = []
    for item in found:
        if item.head.serial not in guessed:
            items.append(item)
            continue
        first_index = item.head.first_index
        if first_index == 1:
            term = 0
        elif items and items[-1].block.last_index + 1 == first_index:
            term = items[-1].last_term
        else:
            raise StoreCorrupt(f"{directory / block_name(item.head)}: the head of the oldest block is damaged")
        item.block.boundary_term = term
        items.append(attrs.evolve(item, head=attrs.evolve(item.head, boundary_term=term), head_damaged=True))
    return items


def _read_block(disk: Disk, path: Path, *, newest: bool) -> bytes:
    """All bytes of a block; of the newest as the device has them, since an earlier process may have seen fsync fail."""
    fd = disk.open_file(path)
    try:
        if newest:
            batch = disk.batch()
            batch.sync(fd)
            disk.perform(batch)
            disk.forget_cached(fd)
        return disk.read(fd, disk.size(fd), 0)
    finally:
        disk.close_file(fd)


def _judge_tail(path: Path, data: bytes, walk: Scan, identity: Identity, mode: RecoveryMode) -> int:
    """Bytes of the torn tail of the newest block, 0 when it ends cleanly. Raises when it is more than a torn tail."""
    if walk.stop == Stop.VERSION:
        raise StoreRefused(f"{path}: entry {walk.next_index} has a newer format")
    if walk.end < len(data) and find_mark(data, offset=walk.end, incarnation=identity.incarnation) >= 0:
        raise StoreCorrupt(f"{path}: entry {walk.next_index} at byte {walk.end} was durable and is damaged")
    rest = data[walk.end :]
    torn_bytes = 0 if rest == bytes(len(rest)) else len(rest.rstrip(b"\0"))  # comparing is 50 times faster
    if torn_bytes and mode is RecoveryMode.STRICT:
        raise StoreCorrupt(f"{path}: a torn tail of {torn_bytes} bytes from byte {walk.end}")
    return torn_bytes


def _check_gaps(directory: Path, found: Sequence[FoundBlock], dropped: trimmed.Ranges) -> None:
    """Every index from 1 to the end is in a block, or was dropped on purpose."""
    next_index = 1
    for item in found:
        first = item.head.first_index
        if not trimmed.covers(dropped, next_index, first - 1):
            raise StoreCorrupt(f"{directory}: entries from {next_index} to {first - 1} are missing")
        next_index = item.block.last_index + 1
    if not found and dropped:
        raise StoreCorrupt(f"{directory}: no block is left after entry {dropped[-1][1]}")


def _check_length(directory: Path, found: Sequence[FoundBlock], checkpoints: Sequence[int]) -> None:
    """The log reaches at least to the newest checkpoint."""
    last_index = found[-1].block.last_index if found else 0
    if checkpoints and checkpoints[-1] > last_index:
        raise StoreCorrupt(f"{directory}: a checkpoint at {checkpoints[-1]}, but the log ends at {last_index}")
