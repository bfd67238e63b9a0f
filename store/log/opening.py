"""Opens a group's log: creates it, or recovers what an earlier process left.

The ledger says what must exist; files that it does not know are unfinished and are removed. A group of format 2 is
converted: the first batch of the log records everything in the ledger, and only then its small files are removed.

Blocking: it reads the whole log and fsyncs its end. Call it through `io.run_blocking` once a node is serving.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.blocks.block import block_list, entry_of
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.files import TMP_SUFFIX, read_readable
from jetraft.store.disk.io import Disk, sync_directory
from jetraft.store.frames._frame import make_mark
from jetraft.store.frames.cipher import GroupCipher
from jetraft.store.frames.format import (
    ERASE_NAME,
    GENERATION_PREFIX,
    MARK_BYTES,
    UNRECORDED_NAME,
    Identity,
    block_name,
    generation_name,
)
from jetraft.store.frames.keyring import has_key, is_unfinished, unlock
from jetraft.store.ledger import ledger_records, legacy
from jetraft.store.ledger.expected import Expected
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import Born, GroupState, Point
from jetraft.store.log import block_repair, erasure
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.recovery import FoundBlock, Recovered, RecoveryReport, is_end_damaged, ranges_of, recover
from jetraft.store.log.start import DEFAULT_OPTIONS, LogOptions, LogStart
from jetraft.store.log.write_queue import BlockFile, LogPlace
from jetraft.store.port import HardState, HardStateLost, StoreCorrupt, StoreFailed

log_ = logging.getLogger(__name__)


_NOTHING = GroupState()
_NOTHING_FOUND: Final = Recovered(
    blocks=(),
    dropped=(),
    checkpoints=(),
    next_serial=1,
    marked=False,
    remove=(),
    floor_index=0,
    report=RecoveryReport(blocks=0, frames=0, bytes_scanned=0, torn_bytes=0, blocks_removed=(), damaged_marks=0),
)


@attrs.frozen(kw_only=True, slots=True)
class _Known:
    """The knowledge of a group before its log is read. `hard_state` is None if it is lost."""

    state: GroupState
    expected: Expected
    hard_state: HardState | None
    superfluous: tuple[Path, ...] = ()  # files of format 2
    continuation: Born | None = None  # a block that the ledger does not know, and that counts


def open_log(  # noqa: PLR0913  (what a log is opened with)
    ledger: Ledger,
    group: Path,
    identity: Identity,
    cache: BlockCache,
    options: LogOptions = DEFAULT_OPTIONS,
    *,
    installed: GroupState | None = None,
) -> FileLog:
    """Open the log in the directory `group`, or create one there. Every entry in it is durable then.

    `installed` replaces the ledger's state for a log that was copied from another member; it takes effect when the
    first batch of the log is durable. In SALVAGE mode a damaged log comes back with `damaged_entries`: `repair`
    it, or `give_up` what no member has. Raises StoreCorrupt, StoreRefused, and HardStateLost when term and vote are not
    known. The caller may then open it with `accept_lost_hard_state=True`: the log comes back with the last entry's
    term, no vote and `hard_state_lost` set, and this member must rejoin as a learner instead of voting.
    """
    disk = ledger.disk
    if installed is None and ledger.is_in_doubt:
        raise StoreFailed(f"{group}: a write to the ledger has failed, so its records of this log are uncertain")
    if installed is None and is_new(ledger, group, identity, options):
        return _new_log(ledger, group, identity, cache, options)
    known = _known(ledger, group, identity, installed, is_alone=options.accept_lost_hard_state)
    noted_index = known.expected.floor_index
    if options.end_index > noted_index:
        known = attrs.evolve(known, expected=attrs.evolve(known.expected, floor_index=options.end_index))
    if known.hard_state is None and not options.accept_lost_hard_state:
        raise _unpromised(group)
    place = LogPlace(
        ledger=ledger,
        directory=group,
        generation=generation_name(known.state.generation),
        identity=identity,
        cipher=_unlocked(disk, group, identity, options),
    )
    made = _made_ready(place, known, options, is_installed=installed is not None)
    recovered, damaged = _recovered(place, identity, options, known)
    if installed is None and (older := _shown_by_the_log(place, known, recovered)):
        known = _believed(place, options, known, older)
        recovered, damaged = _recovered(place, identity, options, known)
    block_repair.write_mark(place, ranges_of(damaged))
    # After the quarantine has a copy of what is damaged: this removes files.
    _tidy(place, recovered, is_installed=installed is not None)
    _mark_end(place, recovered)
    reader = FrameReader(disk, cache, identity.incarnation, place.cipher)
    for item in recovered.blocks:
        reader.files[item.block.number] = BlockFile(place=place, head=item.head, written=item.block.used)
    start = _start_from(
        place,
        known,
        recovered,
        reader,
        new_directories=made,
        damaged=damaged,
        floor_index=recovered.floor_index if recovered.is_end_unknown else noted_index,
        is_installed=installed is not None,
    )
    return _log_of(place, options, start, reader)


def _unlocked(disk: Disk, group: Path, identity: Identity, options: LogOptions) -> GroupCipher | None:
    """The cipher of the group. Raises StoreCorrupt too when its key is gone: a new one would hide that."""
    if (
        options.secrets is not None
        and not has_key(disk, group)
        and legacy.has_sealed_parts(legacy.DiskFiles(disk), group)
    ):
        raise StoreCorrupt(f"{group}: is encrypted, and both files of its key are missing")
    return unlock(disk, group, identity, options.secrets)


def _recovered(
    place: LogPlace, identity: Identity, options: LogOptions, known: _Known
) -> tuple[Recovered, tuple[FoundBlock, ...]]:
    """Read the blocks, and once more where their parity has repaired some; which of them are damaged after that."""

    def read() -> tuple[Recovered, tuple[FoundBlock, ...]]:
        recovered = recover(place.ledger.disk, place.log, identity, options.mode, known.expected)
        return recovered, tuple(item for item in recovered.blocks if item.gaps or item.head_damaged)

    found = read()
    block_repair.quarantine(place, found[1])
    return read() if block_repair.mend(place, found[1]) else found


def _shown_by_the_log(place: LogPlace, known: _Known, recovered: Recovered) -> str:
    """The evidence that the ledger is older than a log, once that is read; empty if nothing."""
    promised = 0 if known.hard_state is None else known.hard_state.term
    if legacy.is_below(promised, recovered.last_term):
        return f"it has an entry of term {recovered.last_term}, and the ledger knows term {promised}"
    written = recovered.blocks[-1].block.last_index if recovered.blocks else len(known.state.begun)
    last_index = max(written, known.expected.floor_index)
    if known.hard_state is not None and known.expected.is_recorded:
        above = legacy.checkpoint_above(legacy.DiskFiles(place.disk), place.log, place.identity, last_index)
        if above:
            return f"it has a checkpoint at entry {above}, and ends at entry {last_index}"
    return ""


def is_new(ledger: Ledger, group: Path, identity: Identity, options: LogOptions) -> bool:
    """Whether the group was never here: an opening reads and syncs nothing then, and makes two directories."""
    if ledger.state((identity.group_id, identity.incarnation)) is not None or options.secrets is not None:
        return False
    return not (options.end_index or options.distrust_cache or ledger.is_in_doubt or ledger.disk.exists(group))


def _new_log(ledger: Ledger, group: Path, identity: Identity, cache: BlockCache, options: LogOptions) -> FileLog:
    """The log of a group that was never here."""
    place = LogPlace(ledger=ledger, directory=group, generation=generation_name(1), identity=identity)
    known = _Known(state=_NOTHING, expected=Expected(heads=()), hard_state=HardState(term=0, vote=None))
    made = _made_directories(place) | {group.parent, group}
    reader = FrameReader(ledger.disk, cache, identity.incarnation, None)
    start = _start_from(
        place,
        known,
        _NOTHING_FOUND,
        reader,
        new_directories=tuple(sorted(made)),
        damaged=(),
        floor_index=0,
        is_installed=False,
    )
    return _log_of(place, options, start, reader)


def _log_of(place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader) -> FileLog:
    log = FileLog(place, options, start, reader, open_again=_open_again)
    # A later opening of the same log waits for what this one has in flight (raft/recovery/settling.py).
    place.ledger.logs[place.key] = log.durability
    return log


def _made_ready(place: LogPlace, known: _Known, options: LogOptions, *, is_installed: bool) -> tuple[Path, ...]:
    """Prepare the directory to be read; returns the directories whose names the first batch must sync."""
    if known.state is _NOTHING and not is_installed:
        _set_aside_unrecorded(place)  # no entry was ever whole in it
    made = _made_directories(place)
    if known.continuation is not None or not known.expected.is_recorded:
        # A block that no record names may have no durable name either, and is served as soon as this is open.
        for directory in (place.log, place.group, place.group.parent):
            sync_directory(place.disk, directory)
    if options.distrust_cache:
        _forget_cached(place)
    # Before anything is read: the journal completes an overwrite that a crash has torn.
    if ERASE_NAME in place.disk.list_directory(place.log):
        journal = place.log / ERASE_NAME
        erasure.finish(place.disk, journal, read_readable(place.disk, journal), place.identity)
    if not known.state.births:
        made |= {place.group.parent, place.group}  # made, and not synced, by an earlier process that was killed
    return tuple(sorted(made))


def _start_from(  # noqa: PLR0913  (what an opening has found)
    place: LogPlace,
    known: _Known,
    recovered: Recovered,
    reader: FrameReader,
    *,
    new_directories: tuple[Path, ...],
    damaged: tuple[FoundBlock, ...],
    floor_index: int,
    is_installed: bool,
) -> LogStart:
    """The start of the log, and what its first batch must add to the ledger."""
    # Blocks that were found without the ledger have them.
    begun = () if recovered.blocks else tuple(map(entry_of, known.state.begun))
    last_term = begun[-1].term if begun else recovered.last_term
    hard_state = known.hard_state
    if hard_state is None:  # damage at the end may hide the last term
        saved_term = legacy.highest_term(legacy.DiskFiles(place.disk), place.log, place.identity)
        hard_state = HardState(term=max(last_term, saved_term), vote=None)
    is_recorded = not is_installed and known.expected.is_recorded and known.hard_state is not None
    facts = () if is_recorded else (ledger_records.replaced(place.key, _as_found(known.state, recovered, hard_state)),)
    if is_recorded and known.state.hard_state is None:
        facts = (ledger_records.voted(place.key, hard_state),)
    if is_recorded and known.continuation is not None:
        facts = (*facts, ledger_records.born(place.key, known.continuation))
    return LogStart(
        blocks=block_list([(item.block, item.terms) for item in recovered.blocks]),
        hard_state=hard_state,
        serial=recovered.next_serial,
        dropped=recovered.dropped,
        checkpoints=recovered.checkpoints,
        founding=known.state.founding,
        begun=begun,
        new_directories=new_directories,
        has_files=bool(recovered.blocks or recovered.checkpoints),
        facts=facts,
        superfluous=_older_generations(place) if is_installed else known.superfluous,
        continues=_continues(place, recovered, reader),
        torn=recovered.report.torn_bytes > 0,
        hard_state_lost=known.hard_state is None,
        floor_index=floor_index,
        report=recovered.report,
        damaged_blocks=damaged,
        identities=_identities(known, recovered) if damaged else (),
    )


def _open_again(
    place: LogPlace, cache: BlockCache, options: LogOptions, *, installed: GroupState | None = None
) -> FileLog:
    return open_log(place.ledger, place.group, place.identity, cache, options, installed=installed)


def _known(ledger: Ledger, group: Path, identity: Identity, installed: GroupState | None, *, is_alone: bool) -> _Known:
    """The state of the group: from `installed`, else from the ledger, else from the files of an older format."""
    state = installed or ledger.state((identity.group_id, identity.incarnation)) or _NOTHING
    older, recorded = "", None if state is _NOTHING else state
    if installed is None:
        older = legacy.outdated(legacy.DiskFiles(ledger.disk), group, identity, recorded, is_alone=is_alone)
    if older:
        state = attrs.evolve(state, memory_lost=True)
    if recorded is None and ledger.is_outdated and not older and is_alone and ledger.disk.exists(group):
        raise StoreCorrupt(f"{group}: the ledger is older than this store, and nothing here says what was in this log")
    if state.hard_state is not None and not state.memory_lost:
        goes_on = None
        if is_alone and installed is None:
            goes_on = legacy.continuation(legacy.DiskFiles(ledger.disk), group, identity, state)
        if goes_on is not None:
            log_.warning("%s: the ledger does not know block %d; its entries count", group, goes_on.serial)
            state = state.with_birth(goes_on)
        return _Known(state=state, expected=Expected.of(state), hard_state=state.hard_state, continuation=goes_on)
    return _from_files(ledger, group, identity, state, older)


def _from_files(ledger: Ledger, group: Path, identity: Identity, state: GroupState, older: str) -> _Known:
    """The same where the ledger does not say it; `older` is what shows that it is older than the log."""
    disk = ledger.disk
    if older:
        ledger.is_outdated = True
        log_.error(
            "%s: both copies of the ledger are older than this log, so its files count (%s). If they come from a "
            "backup, put the whole store back, or let the node begin without one; `jetraft verify` names such logs",
            group,
            older,
        )
    files = legacy.DiskFiles(disk)
    is_old = legacy.is_of_format_2(files, group)
    if not is_old and not state.memory_lost:
        return _Known(state=state, expected=Expected(heads=()), hard_state=HardState(term=0, vote=None))
    generation = legacy.newest_generation(files, group) or 1
    expected = legacy.expected_of(files, group / generation_name(generation), identity, is_format_2=is_old)
    if not is_old and not expected.heads and not state.begun:
        raise StoreCorrupt(
            f"{group}: what the ledger knew of it is lost, and it has no block: nothing says what it had"
        )
    try:
        hard_state = legacy.hard_state_of(files, group, identity) if is_old else None
    except HardStateLost:
        hard_state = None
    names = disk.list_directory(group)
    old = [group / name for name in legacy.HARD_STATE_NAMES if name in names]
    log = group / generation_name(generation)
    old += [log / legacy.TRIMMED_NAME] if legacy.TRIMMED_NAME in disk.list_directory(log) else []
    return _Known(
        state=attrs.evolve(state, generation=generation),
        expected=expected,
        hard_state=hard_state,
        superfluous=tuple(old),
    )


def _believed(place: LogPlace, options: LogOptions, known: _Known, older: str) -> _Known:
    """The part that counts of a log that has shown that its ledger is older. Raises HardStateLost."""
    state = attrs.evolve(known.state, memory_lost=True)
    found = _from_files(place.ledger, place.group, place.identity, state, older)
    if not options.accept_lost_hard_state:
        raise _unpromised(place.group)
    return found


def _unpromised(group: Path) -> HardStateLost:
    return HardStateLost(f"{group}: term and vote are lost: expected them in the ledger, found none")


def _identities(known: _Known, recovered: Recovered) -> tuple[Point, ...]:
    """Entries whose (index, term) is also in the next block's head or in the ledger.

    The ledger counts only if it has a record of the log. A term of 0 means unknown.
    """
    is_recorded = known.expected.is_recorded
    heads = [item.head for item in recovered.blocks if is_recorded or not item.head_damaged]
    found = [Point(head.first_index - 1, head.boundary_term) for head in heads]
    if is_recorded:
        found += [*known.state.checkpoints, known.state.floor]
    return tuple(point for point in found if point.term)


def _as_found(state: GroupState, recovered: Recovered, hard_state: HardState) -> GroupState:
    """The ledger's state for a log that only its files describe so far."""
    births = []
    has_sound_end = not recovered.blocks or not is_end_damaged(recovered.blocks[-1])
    for item in recovered.blocks:
        head = item.head
        reserved = min(head.reserved_bytes, item.file_bytes)
        births.append(Born(head.serial, head.first_index, head.boundary_term, reserved, head.tag))
    last_index = recovered.blocks[-1].block.last_index if recovered.blocks else 0
    return GroupState(
        hard_state=hard_state,
        generation=state.generation,
        births=tuple(births),
        floor=Point(last_index, recovered.last_term if has_sound_end else 0),
        dropped=recovered.dropped,
        checkpoints=tuple(Point(index, 0) for index in recovered.checkpoints),
        is_noted=state.is_noted,
        founding=state.founding,
        begun=() if recovered.blocks else state.begun,
    )


def _continues(place: LogPlace, recovered: Recovered, reader: FrameReader) -> bool:
    """Whether the newest block can grow on, so that a start costs no new block.

    It must be sound and followed by zeros only, so that no old frame can follow a new one; and its frames must be
    sealed if the next ones are.
    """
    if not recovered.blocks or recovered.report.torn_bytes:
        return False
    newest = recovered.blocks[-1]
    block = newest.block
    if newest.gaps or newest.head_damaged or newest.end_lost or block.indexes is not None:
        return False
    if newest.head.reserved_bytes == 0 or newest.file_bytes < newest.head.reserved_bytes:
        return False
    return place.cipher is None or not block.offsets or reader.is_sealed(block)


def repair(log: FileLog, frames: Mapping[int, bytes]) -> FileLog:
    """Rewrite damaged blocks with these verified frames in place of the damaged ones, and open the log again.

    A block stays as it is while one of its damaged entries has no frame in `frames`. The caller must not use `log`
    again. Blocking.
    """
    place = log.place
    log.close()
    for item in log.damaged_blocks:
        wanted = [index for gap in item.gaps for index in range(gap.first_index, gap.last_index + 1)]
        if all(index in frames for index in wanted):
            block_repair.repair_block(place, item, frames)
    return log.reopen()


def _made_directories(place: LogPlace) -> set[Path]:
    """Make the log's directories; returns those whose names the first batch must sync.

    Directories above the group's are shared by all groups and are synced here.
    """
    made = set(place.disk.make_directory(place.log))
    own = {place.group.parent, place.group}
    for path in sorted(made - own):
        sync_directory(place.disk, path)
    return made & own


def _forget_cached(place: LogPlace) -> None:
    """Drop all files of the log from the page cache: after a failed fsync it has data that the device lacks."""
    names = place.disk.list_directory(place.log)
    _sync_and_drop_cache(place.disk, [place.log / name for name in names if not name.endswith(TMP_SUFFIX)])


def _sync_and_drop_cache(disk: Disk, paths: Sequence[Path]) -> None:
    """Fsync each file through a new descriptor, then drop its pages from the cache. Raises OSError."""
    for path in paths:
        fd = disk.open_file(path)
        batch = disk.batch()
        batch.sync(fd)
        try:
            disk.perform(batch)
            disk.forget_cached(fd)
        finally:
            disk.close_file(fd)


def _set_aside_unrecorded(place: LogPlace) -> None:
    """Rename a log that the ledger does not know. Nothing of it was acknowledged; one is kept for each group."""
    if not place.disk.list_directory(place.log) or legacy.is_of_format_2(legacy.DiskFiles(place.disk), place.group):
        return
    aside = place.group / UNRECORDED_NAME
    place.disk.remove_directory(aside)
    batch = place.disk.batch()
    batch.rename(bytes(place.log), bytes(aside))
    place.disk.perform(batch)
    log_.warning("%s: the ledger has no record of this log, so it was never acknowledged; kept as %s", place.log, aside)


def _generations(place: LogPlace) -> list[Path]:
    names = place.disk.list_directory(place.group)
    return [place.group / name for name in names if name.startswith(GENERATION_PREFIX) and name != place.generation]


def _older_generations(place: LogPlace) -> tuple[Path, ...]:
    """The files of logs that this one replaces; the next opening removes their directories."""
    return tuple(path / name for path in _generations(place) for name in place.disk.list_directory(path))


def _tidy(place: LogPlace, recovered: Recovered, *, is_installed: bool) -> None:
    """Remove void blocks and unfinished files, and older generations unless this log is not durable yet."""
    names = place.disk.list_directory(place.group)
    batch = place.disk.batch()
    for name in names:
        if name.endswith(TMP_SUFFIX) and is_unfinished(name):
            batch.unlink(bytes(place.group / name))
        elif name.endswith(TMP_SUFFIX):
            place.disk.remove_directory(place.group / name)
    for path in () if is_installed else _generations(place):
        if not path.name.endswith(TMP_SUFFIX):
            place.disk.remove_directory(path)
    for name in recovered.remove:
        batch.unlink(bytes(place.log / name))
    place.disk.perform(batch)


def _mark_end(place: LogPlace, recovered: Recovered) -> None:
    """Mark the end of the newest block as durable: recovery has fsynced it.

    A torn block gets no mark but a successor, because frames of the lost batch may follow the tear. A block that has
    lost its end gets no mark either, because the mark would hide the loss. A block whose file a power cut has left too
    short is extended first, because a mark in a short file means that its end was cut off.
    """
    if not recovered.blocks or recovered.marked or recovered.report.torn_bytes:
        return
    newest = recovered.blocks[-1]
    if newest.end_lost or newest.end_unknown:
        return
    block = newest.block
    mark = make_mark(
        incarnation=place.identity.incarnation,
        offset=block.used,
        next_index=block.last_index + 1,
        tag=newest.head.tag,
    )
    batch = place.disk.batch()
    fd = place.disk.open_file(place.log / block_name(newest.head))
    try:
        if place.disk.size(fd) < newest.head.reserved_bytes:
            batch.truncate(fd, newest.head.reserved_bytes)
            batch.sync(fd)
        batch.write(fd, [mark], block.used)
        batch.sync_data(fd)
        place.disk.perform(batch)
    finally:
        place.disk.close_file(fd)
    block.used += MARK_BYTES
