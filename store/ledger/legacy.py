"""Derives what must exist in a group's directory from the files themselves, when no ledger has a record of it.

Used for stores of format 2, which kept term, vote and dropped ranges in small files beside each log and are converted
when they are opened, and for a store whose ledger is lost. The rules are those of format 2: a block counts if its head
is sound; a block without a sound head and without a mark is unfinished; names of checkpoints are trusted. These rules
cannot distinguish a block that is missing at the end of the log from one that never existed, which the ledger can.
"""

import logging
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import attrs

from jetraft.store.disk.files import TMP_SUFFIX, read_readable
from jetraft.store.disk.io import Disk
from jetraft.store.frames._frame import find_mark, scan
from jetraft.store.frames.checkpoint import unpack as unpack_checkpoint
from jetraft.store.frames.format import (
    BLOCK_HEAD_BYTES,
    BLOCK_SUFFIX,
    CHECKPOINT_SUFFIX,
    FRAME_FLAGS_AT,
    FRAME_HEADER_BYTES,
    FRAME_SEALED,
    GENERATION_PREFIX,
    MARK_BYTES,
    BlockHead,
    FileKind,
    Identity,
    block_name,
    checkpoint_name,
    generation_name,
    peek_identity,
    peek_kind,
    serial_of,
    unpack_block_head,
    unpack_envelope,
)
from jetraft.store.ledger.expected import Expected
from jetraft.store.ledger.ledger_records import Born, GroupState
from jetraft.store.model.files import index_ranges
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState, HardStateLost, StoreCorrupt, StoreMisplaced, StoreNewer, StoreRefused

log_ = logging.getLogger(__name__)

HARD_STATE_NAMES: Final = ("hard-state.0", "hard-state.1")
TRIMMED_NAME: Final = "trimmed"

_NO_LIMIT: Final = (1 << 64) - 1
_RANGE: Final = struct.Struct("<QQ")
_HARD_STATE: Final = struct.Struct("<QQ16s")  # counter, term, vote


class Files(Protocol):
    """The disk as it is read here: of a store, or of a directory that must not be changed."""

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; empty when there is no such directory."""
        ...

    def content(self, path: Path) -> bytes:
        """All bytes of a file. Raises OSError."""
        ...


@attrs.frozen
class DiskFiles:
    """Implements Files."""

    disk: Disk

    def names(self, path: Path) -> list[str]:
        """See Files."""
        return self.disk.list_directory(path)

    def content(self, path: Path) -> bytes:
        """See Files."""
        return read_readable(self.disk, path)


def is_of_format_2(files: Files, group: Path) -> bool:
    """Whether a group's directory has files that only format 2 has."""
    return any(name in files.names(group) for name in HARD_STATE_NAMES)


def newest_generation(files: Files, group: Path) -> int | None:
    """The number of the log's directory that counts; None when there is none."""
    names = [name for name in files.names(group) if name.startswith(GENERATION_PREFIX)]
    numbers = [name.removeprefix(GENERATION_PREFIX) for name in names if not name.endswith(TMP_SUFFIX)]
    return max((int(number) for number in numbers if number.isdigit()), default=None)


def outdated(files: Files, group: Path, identity: Identity, state: GroupState | None, *, is_alone: bool) -> str:
    """The evidence that both copies of the ledger are older than a log, as when they were put back; empty if nothing.

    - It records a block before the second batch is written to it. So an unrecorded block has at most one mark.
    - A group that it does not know has at most one batch, which was never acknowledged. With `is_alone` it counts
      all the same: the only member may keep what was not acknowledged, and must not lose what may have been.
    - It records a checkpoint before the older one is removed. So a recorded one is there while a newer one is not.
    - It records the first block of a log before there is a checkpoint.
    """
    if is_of_format_2(files, group):
        return ""
    generation = newest_generation(files, group) if state is None else state.generation
    log = group / generation_name(generation or 1)
    names = files.names(log)
    newest = max((block.serial for block in state.births), default=0) if state is not None else 0
    if state is None and (saved := [name for name in names if _index_of(name)]):
        return f"{saved[-1]}: is a checkpoint, and the ledger does not know the group"
    for name in names:
        if serial_of(name) > newest:
            why = _unknown_block(files.content(log / name), name, identity, state, is_alone=is_alone)
            if why:
                return why
    known = [] if state is None else [point.log_index for point in state.checkpoints]
    gone = [index for index in known if index and checkpoint_name(index) not in names]
    if known and gone and any(_index_of(name) > max(known) for name in names):
        return f"{checkpoint_name(gone[0])}: was replaced by a newer checkpoint, which the ledger does not know"
    return ""


def _unknown_block(data: bytes, name: str, identity: Identity, state: GroupState | None, *, is_alone: bool) -> str:
    """The evidence about the ledger in a block that it does not know."""
    is_unknown = state is None and is_alone
    try:
        head = unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=name)
    except StoreMisplaced:
        return f"{name}: is a block of another group, and the ledger does not know this one" if is_unknown else ""
    except (StoreCorrupt, StoreRefused):
        return ""
    if state is not None and index_ranges.covers(state.dropped, head.first_index, head.first_index):
        return ""  # dropped on purpose, and not removed yet
    if is_unknown and _entries(data, head, identity):
        return f"{name}: has entries, and the ledger does not know the group"
    return f"{name}: is in use, and the ledger does not know it" if _is_in_use(data, head, identity) else ""


def highest_term(files: Files, log: Path, identity: Identity) -> int:
    """The highest term of a sound checkpoint, 0 without one."""
    terms = [0]
    for name in files.names(log):
        if _index_of(name):
            with suppress(StoreCorrupt, StoreRefused, OSError):
                terms.append(unpack_checkpoint(files.content(log / name), identity, what=name).term)
    return max(terms)


def checkpoint_above(files: Files, log: Path, identity: Identity, last_index: int) -> int:
    """The index of a sound checkpoint above the end of a log, 0 when there is none.

    What a checkpoint stands for was durable before it was written. So the log has lost its end, and a ledger that does
    not know the checkpoint is older than it.
    """
    for name in reversed(files.names(log)):
        index = _index_of(name)
        if index > last_index:
            try:
                if peek_identity(files.content(log / name), what=name) == identity:
                    return index
            except (StoreCorrupt, StoreRefused, OSError):
                continue
    return 0


def has_sealed_parts(files: Files, group: Path) -> bool:
    """Whether something in a group's directory is encrypted with the group's key."""
    log = group / generation_name(newest_generation(files, group) or 1)
    for name in files.names(log):
        data = files.content(log / name) if name.endswith((BLOCK_SUFFIX, CHECKPOINT_SUFFIX)) else b""
        if name.endswith(CHECKPOINT_SUFFIX) and peek_kind(data) == FileKind.SEALED_CHECKPOINT:
            return True
        first = data[BLOCK_HEAD_BYTES : BLOCK_HEAD_BYTES + FRAME_HEADER_BYTES]
        if name.endswith(BLOCK_SUFFIX) and len(first) == FRAME_HEADER_BYTES and first[FRAME_FLAGS_AT] & FRAME_SEALED:
            return True
    return False


def is_below(promised: int, last_term: int) -> bool:
    """Whether the ledger knows a lower term than a log has: it is older, as a term is recorded before its entries.

    A term of 0 is that of a log in which nothing was promised yet.
    """
    return 0 < promised < last_term


def continuation(files: Files, group: Path, identity: Identity, state: GroupState) -> Born | None:
    """A block behind those that the ledger knows, with a whole entry, that it does not know.

    A process that was killed between the block and its record leaves one, and so does a ledger that was put back. In
    the first case nothing of it was acknowledged. The only member of a group may keep it all the same, and must, as the
    second case looks like the first.
    """
    log = group / generation_name(state.generation)
    newest = max((block.serial for block in state.births), default=0)
    for name in sorted(files.names(log), key=serial_of):
        if serial_of(name) <= newest:
            continue
        data = files.content(log / name)
        try:
            head = unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=name)
        except (StoreCorrupt, StoreRefused):
            continue
        is_behind = head.first_index > state.floor.log_index and head.boundary_term >= state.floor.term
        if is_behind and name == block_name(head) and _entries(data, head, identity) > len(state.begun):
            reserved = min(head.reserved_bytes, len(data))
            return Born(head.serial, head.first_index, head.boundary_term, reserved, head.tag)
    return None


def _entries(data: bytes, head: BlockHead, identity: Identity) -> int:
    """How many whole entries a block begins with."""
    walk = scan(
        data,
        offset=BLOCK_HEAD_BYTES,
        incarnation=identity.incarnation,
        next_index=head.first_index,
        term=head.boundary_term,
        last_index=_NO_LIMIT,
    )
    return len(walk.offsets)


def _is_in_use(data: bytes, head: BlockHead, identity: Identity) -> bool:
    first = find_mark(data, offset=BLOCK_HEAD_BYTES, incarnation=identity.incarnation, tag=head.tag)
    after = first + MARK_BYTES
    return first >= 0 and find_mark(data, offset=after, incarnation=identity.incarnation, tag=head.tag) >= 0


def _index_of(name: str) -> int:
    """The index in the file name of a checkpoint; 0 for other names."""
    index = name.removesuffix(CHECKPOINT_SUFFIX)
    return int(index) if name.endswith(CHECKPOINT_SUFFIX) and index.isdigit() else 0


def hard_state_of(files: Files, group: Path, identity: Identity) -> HardState:
    """Term and vote of a group of format 2: the newer of the sound copies. Raises HardStateLost."""
    found: list[tuple[int, HardState]] = []
    damage: list[str] = []
    for name in HARD_STATE_NAMES:
        try:
            data = files.content(group / name)
            found.append(_hard_state(data, identity, what=str(group / name)))
        except (StoreCorrupt, StoreRefused, OSError) as error:
            damage.append(str(error))
    if not found:
        raise HardStateLost("; ".join(damage))
    return max(found, key=lambda copy: copy[0])[1]


def _hard_state(data: bytes, identity: Identity, *, what: str) -> tuple[int, HardState]:
    body = unpack_envelope(data, FileKind.HARD_STATE, identity, what=what)
    if len(body) != _HARD_STATE.size:
        raise StoreCorrupt(f"{what}: expected a term and a vote, found {len(body)} bytes")
    counter, term, vote = _HARD_STATE.unpack(body)
    name = vote.rstrip(b"\0").decode()
    return counter, HardState(term=term, vote=NodeId(name) if name else None)


def expected_of(files: Files, directory: Path, identity: Identity, *, is_format_2: bool) -> Expected:
    """The state that the files of a log's directory show. Raises StoreCorrupt, StoreRefused.

    Where the ledger is lost, every block counts that has a name: nothing tells which were finished.
    """
    names = files.names(directory)
    heads = []
    for name in names:
        if name.endswith(BLOCK_SUFFIX) and serial_of(name):
            head = _read_head(files, directory / name, identity, may_be_unfinished=is_format_2)
            if head is not None:
                heads.append(head)
    heads.sort(key=lambda head: head.serial)
    ranges = _dropped(files, directory, identity, heads) if TRIMMED_NAME in names else None
    dropped = _holes(directory, heads) if ranges is None else ranges
    kept = _without_void(heads, dropped)
    indexes = [name.removesuffix(CHECKPOINT_SUFFIX) for name in names if name.endswith(CHECKPOINT_SUFFIX)]
    return Expected(
        heads=tuple(_with_boundaries(files, directory, identity, kept)),
        dropped=dropped,
        checkpoints=tuple(sorted(int(index) for index in indexes if index.isdigit())),
        is_recorded=False,
    )


def _read_head(files: Files, path: Path, identity: Identity, *, may_be_unfinished: bool) -> BlockHead | None:
    """The head of a block; None when the block was never finished, which the absence of marks shows."""
    data = files.content(path)
    try:
        head = unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=str(path))
        if block_name(head) == path.name:
            return head
    except StoreNewer:
        raise
    except (StoreCorrupt, StoreRefused):
        pass
    if may_be_unfinished and find_mark(data, offset=0, incarnation=identity.incarnation) < 0:
        return None
    log_.error("%s: the head is damaged; using index and serial of the file name", path)
    return BlockHead(serial=serial_of(path.name), first_index=int(path.name.partition("-")[0]), boundary_term=0)


def _dropped(files: Files, directory: Path, identity: Identity, heads: Sequence[BlockHead]) -> index_ranges.Ranges:
    what = directory / TRIMMED_NAME
    try:
        body = unpack_envelope(files.content(what), FileKind.TRIMMED, identity, what=str(what))
        return index_ranges.merged(_RANGE.iter_unpack(body[: len(body) // _RANGE.size * _RANGE.size]))
    except StoreNewer:
        raise
    except (StoreCorrupt, StoreRefused, OSError) as error:
        log_.error("%s", error)  # noqa: TRY400
        return _holes(directory, heads)


def _holes(directory: Path, heads: Sequence[BlockHead]) -> index_ranges.Ranges:
    """Indexes below and between the blocks: nothing tells whether they were dropped on purpose."""
    holes = []
    first = min((head.first_index for head in heads), default=1)
    if first > 1:
        holes.append((1, first - 1))
        log_.warning("%s: entries below %d are missing, and no record says that they were dropped", directory, first)
    return index_ranges.merged(holes)


def _without_void(heads: Sequence[BlockHead], dropped: index_ranges.Ranges) -> list[BlockHead]:
    """The blocks that count, by serial: what begins at or behind the first index of a later one was cut."""
    kept: list[BlockHead] = []
    limit = _NO_LIMIT
    for head in reversed(heads):
        # What a dropped block cut off must not come back once that block's head is gone.
        dropped_from = min((first for first, _ in dropped if first > head.first_index), default=_NO_LIMIT + 1)
        last = min(limit, dropped_from - 1)
        if head.first_index <= limit and (
            last == _NO_LIMIT or not index_ranges.covers(dropped, head.first_index, last)
        ):
            kept.append(head)
        limit = min(limit, head.first_index - 1)
    kept.reverse()
    return kept


def _with_boundaries(files: Files, directory: Path, identity: Identity, heads: Sequence[BlockHead]) -> list[BlockHead]:
    """Give blocks whose heads were damaged the term that the block before them ends with."""
    found: list[BlockHead] = []
    for head in heads:
        known = head
        if head.boundary_term == 0 and head.first_index > 1 and found:
            before = found[-1]
            walk = scan(
                files.content(directory / block_name(before)),
                offset=BLOCK_HEAD_BYTES,
                incarnation=identity.incarnation,
                next_index=before.first_index,
                term=before.boundary_term,
                last_index=head.first_index - 1,
            )
            known = attrs.evolve(head, boundary_term=walk.term)
        found.append(known)
    return found
