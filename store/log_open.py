"""Opens a group's log: makes a new one, or finds out what an earlier process left and goes on from there.

The ledger says what must be there. What it does not know was never finished, and goes; a group of format 2 is taken
over: the first batch of the log tells the ledger everything, and only then its small files go.

Blocking (it reads the whole log and fsyncs its end): call it through `io.run_blocking` once a node is serving.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from jetraft.store import erasure, faulty, ledger_records, legacy
from jetraft.store._frame import find_mark, make_mark
from jetraft.store.backlog import BlockFile, LogPlace
from jetraft.store.block import block_list
from jetraft.store.block_cache import BlockCache
from jetraft.store.format import (
    BLOCK_HEAD_BYTES,
    ERASE_NAME,
    GENERATION_PREFIX,
    MARK_BYTES,
    TMP_SUFFIX,
    Identity,
    block_name,
    generation_name,
    unpack_block_head,
)
from jetraft.store.frame_reader import FrameReader
from jetraft.store.io import Disk, sync_directory
from jetraft.store.keyring import is_unfinished, unlock
from jetraft.store.ledger import Ledger
from jetraft.store.ledger_records import Born, GroupState, Point
from jetraft.store.log import FileLog
from jetraft.store.log_start import DEFAULT_OPTIONS, LogOptions, LogStart
from jetraft.store.port import HardState, HardStateLost, StoreCorrupt, StoreFailed, StoreRefused
from jetraft.store.recovery import (
    Expected,
    Recovered,
    is_end_damaged,
    ranges_of,
    read_file,
    recover,
    serial_of,
)

log_ = logging.getLogger(__name__)

UNRECORDED_NAME: Final = "unrecorded"

_NOTHING = GroupState()


@attrs.frozen(kw_only=True, slots=True)
class _Known:
    """What is known of a group before its log is read. `hard_state` is None when it is lost."""

    state: GroupState
    expected: Expected
    hard_state: HardState | None
    superfluous: tuple[Path, ...] = ()  # files of format 2


def open_log(  # noqa: PLR0913  (what a log is opened with)
    ledger: Ledger,
    group: Path,
    identity: Identity,
    cache: BlockCache,
    options: LogOptions = DEFAULT_OPTIONS,
    *,
    installed: GroupState | None = None,
) -> FileLog:
    """Open the log in the directory `group`, or start one there. What it holds then is durable.

    `installed` is what a log that was taken over from another member says of itself, in place of the ledger: it counts
    when the first batch of the log is durable. In SALVAGE mode a damaged log comes back with `faulty` entries: `mend`
    it, or `give_up` what nobody has. Raises StoreCorrupt, StoreRefused, and HardStateLost when term and vote are not
    known. The caller may then open it with `accept_lost_hard_state=True`: the log comes back with the last entry's
    term, no vote and `hard_state_lost` set, and this member must rejoin as a learner instead of voting.
    """
    disk = ledger.disk
    if installed is None and ledger.is_in_doubt:
        raise StoreFailed(f"{group}: the ledger has failed, and what it says of this log is not certain")
    known = _known(ledger, group, identity, installed)
    if known.hard_state is None and not options.accept_lost_hard_state:
        raise HardStateLost(f"{group}: term and vote are lost: the ledger does not have them")
    place = LogPlace(
        ledger=ledger,
        directory=group,
        generation=generation_name(known.state.generation),
        identity=identity,
        cipher=unlock(disk, group, identity, options.secrets),
    )
    if known.state is _NOTHING and installed is None:
        _set_aside_unrecorded(place)
    made = _made_directories(place)
    if options.distrust_cache:
        _forget_cached(place)
    if ERASE_NAME in disk.list_directory(place.log):
        journal = place.log / ERASE_NAME
        erasure.finish(disk, journal, read_file(disk, journal), identity)
    recovered = recover(disk, place.log, identity, options.mode, known.expected)
    hard_state = known.hard_state or HardState(term=recovered.last_term, vote=None)
    damaged = tuple(item for item in recovered.blocks if item.gaps or item.head_damaged)
    faulty.quarantine(place, damaged)
    faulty.write_mark(place, ranges_of(damaged))
    _tidy(place, recovered, is_installed=installed is not None)
    _mark_end(place, recovered)
    reader = FrameReader(disk, cache, identity.incarnation, place.cipher)
    for item in recovered.blocks:
        reader.files[item.block.number] = BlockFile(place=place, head=item.head, written=item.block.used)
    is_recorded = installed is None and known.expected.is_recorded and known.hard_state is not None
    facts = () if is_recorded else (ledger_records.replaced(place.key, _as_found(known.state, recovered, hard_state)),)
    if is_recorded and known.state.hard_state is None:
        facts = (ledger_records.voted(place.key, hard_state),)
    if not known.state.births:
        made |= {group.parent, group}  # a process that was killed may have made them and synced none
    start = LogStart(
        blocks=block_list([(item.block, item.terms) for item in recovered.blocks]),
        hard_state=hard_state,
        serial=recovered.next_serial,
        dropped=recovered.dropped,
        checkpoints=recovered.checkpoints,
        founding=known.state.founding,
        new_directories=tuple(sorted(made)),
        has_files=bool(recovered.blocks or recovered.checkpoints),
        facts=facts,
        superfluous=known.superfluous if installed is None else _older_generations(place),
        continues=_continues(place, recovered, reader),
        torn=recovered.report.torn_bytes > 0,
        hard_state_lost=known.hard_state is None,
        floor_index=recovered.floor_index,
        report=recovered.report,
        damaged=damaged,
        identities=_identities(known, recovered) if damaged else (),
        open_again=_open_again,
    )
    log = ledger.logs[place.key] = FileLog(place, options, start, reader)
    return log


def _open_again(
    place: LogPlace, cache: BlockCache, options: LogOptions, *, installed: GroupState | None = None
) -> FileLog:
    return open_log(place.ledger, place.group, place.identity, cache, options, installed=installed)


def _known(ledger: Ledger, group: Path, identity: Identity, installed: GroupState | None) -> _Known:
    """What the ledger says; or a new log of itself; or, where the ledger has nothing, the files."""
    disk = ledger.disk
    state = installed or ledger.state((identity.group_id, identity.incarnation)) or _NOTHING
    if _is_outdated(disk, group, identity, state):
        log_.error("%s: blocks were in use that the ledger does not know: it is of an earlier time", group)
        state = attrs.evolve(state, memory_lost=True)
    if state.hard_state is not None and not state.memory_lost:
        return _Known(state=state, expected=Expected.of(state), hard_state=state.hard_state)
    files = legacy.DiskFiles(disk)
    is_old = legacy.is_of_format_2(files, group)
    if not is_old and not state.memory_lost:
        return _Known(state=state, expected=Expected(heads=()), hard_state=HardState(term=0, vote=None))
    generation = legacy.newest_generation(files, group) or 1
    expected = legacy.expected_of(files, group / generation_name(generation), identity, is_format_2=is_old)
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


def _identities(known: _Known, recovered: Recovered) -> tuple[Point, ...]:
    """Entries whose (index, term) stands elsewhere too: in the next block's head, in the ledger.

    What the ledger says counts where it is the one that knows the log. A term of 0 stands for one that is not known.
    """
    is_recorded = known.expected.is_recorded
    heads = [item.head for item in recovered.blocks if is_recorded or not item.head_damaged]
    found = [Point(head.first_index - 1, head.boundary_term) for head in heads]
    if is_recorded:
        found += [*known.state.checkpoints, known.state.floor]
    return tuple(point for point in found if point.term)


def _is_outdated(disk: Disk, group: Path, identity: Identity, state: GroupState) -> bool:
    """Whether a block that the ledger does not know was in use: then both its copies are of an earlier time.

    Nothing follows the batch with which a block begins before the ledger knows it: its first mark is its only one.
    """
    log = group / generation_name(state.generation)
    newest = max((block.serial for block in state.births), default=0)
    for name in disk.list_directory(log):
        if state.births and serial_of(name) > newest:
            data = read_file(disk, log / name)
            try:
                head = unpack_block_head(data[:BLOCK_HEAD_BYTES], identity, what=name)
            except (StoreCorrupt, StoreRefused):
                continue
            first = find_mark(data, offset=BLOCK_HEAD_BYTES, incarnation=identity.incarnation, tag=head.tag)
            after = first + MARK_BYTES
            if first >= 0 and find_mark(data, offset=after, incarnation=identity.incarnation, tag=head.tag) >= 0:
                return True
    return False


def _as_found(state: GroupState, recovered: Recovered, hard_state: HardState) -> GroupState:
    """What the ledger must know of a log whose files alone could tell until now."""
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
    )


def _continues(place: LogPlace, recovered: Recovered, reader: FrameReader) -> bool:
    """Whether the newest block can go on growing, so that a start costs no new block.

    It must have been read whole and sound, with nothing but zeros behind its end, so that no old frame can come to
    stand behind a new one; and its frames must be sealed if the next ones are.
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


def mend(log: FileLog, frames: Mapping[int, bytes]) -> FileLog:
    """Write damaged blocks anew, with these verified frames in their faulty places, and open the log again.

    A block of which an entry is still missing is left as it is. Nobody may use `log` meanwhile or afterwards. Blocking.
    """
    place = log.place
    log.close()
    for item in log.damaged:
        wanted = [index for gap in item.gaps for index in range(gap.first_index, gap.last_index + 1)]
        if all(index in frames for index in wanted):
            faulty.mend_block(place, item, frames)
    return log.reopen()


def _made_directories(place: LogPlace) -> set[Path]:
    """Make the log's directories; returns those whose names the first file of the log has to sync.

    What is above them is the way to all groups, and is durable at once: the others do not wait for this one.
    """
    made = set(place.disk.make_directory(place.log))
    own = {place.group.parent, place.group}
    for path in sorted(made - own):
        sync_directory(place.disk, path)
    return made & own


def _forget_cached(place: LogPlace) -> None:
    """Have all files of the log read from the device: after a failed fsync the cache holds what the device does not."""
    names = place.disk.list_directory(place.log)
    _settle(place.disk, [place.log / name for name in names if not name.endswith(TMP_SUFFIX)])


def _settle(disk: Disk, paths: Sequence[Path]) -> None:
    """Fsync each file through a descriptor that saw no error yet, then drop its pages. Raises OSError."""
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
    """Nobody was told of what a log holds that the ledger does not know; it is kept all the same, once a group."""
    if not place.disk.list_directory(place.log) or legacy.is_of_format_2(legacy.DiskFiles(place.disk), place.group):
        return
    aside = place.group / UNRECORDED_NAME
    place.disk.remove_directory(aside)
    batch = place.disk.batch()
    batch.rename(bytes(place.log), bytes(aside))
    place.disk.perform(batch)
    log_.warning("%s: the ledger does not know this log, which was never finished; it is kept as %s", place.log, aside)


def _generations(place: LogPlace) -> list[Path]:
    names = place.disk.list_directory(place.group)
    return [place.group / name for name in names if name.startswith(GENERATION_PREFIX) and name != place.generation]


def _older_generations(place: LogPlace) -> tuple[Path, ...]:
    """The files of logs that this one takes the place of; their directories go with the next opening."""
    return tuple(path / name for path in _generations(place) for name in place.disk.list_directory(path))


def _tidy(place: LogPlace, recovered: Recovered, *, is_installed: bool) -> None:
    """Remove what does not count: void blocks, unfinished files, older generations unless they still do."""
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
    """Prove that the end of the newest block is durable: it was fsynced when it was read.

    A torn block gets no mark, because frames of the lost batch may stand behind the tear; it gets a successor instead.
    One that has lost its end gets none either: the mark would hide that. One that a power cut has left without its
    length gets that first: a mark in a shorter file means that its end was cut off.
    """
    if not recovered.blocks or recovered.marked or recovered.report.torn_bytes or recovered.blocks[-1].end_lost:
        return
    newest = recovered.blocks[-1]
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
