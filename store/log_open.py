"""Opens a group's log: makes a new one, or finds out what an earlier process left and goes on from there.

Blocking (it reads the whole log and fsyncs its end): call it through `io.run_blocking` once a node is serving.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jetraft.store import erasure, faulty
from jetraft.store import hard_state as hard_state_file
from jetraft.store._frame import make_mark
from jetraft.store.backlog import BlockFile, LogPlace
from jetraft.store.block import block_list
from jetraft.store.block_cache import BlockCache
from jetraft.store.format import (
    ERASE_NAME,
    GENERATION_PREFIX,
    HARD_STATE_NAMES,
    MARK_BYTES,
    TMP_SUFFIX,
    Identity,
    block_name,
    generation_name,
)
from jetraft.store.frame_reader import FrameReader
from jetraft.store.hard_state import Copy
from jetraft.store.io import Disk
from jetraft.store.keyring import is_unfinished, unlock
from jetraft.store.log import FileLog
from jetraft.store.log_start import DEFAULT_OPTIONS, LogOptions, LogStart
from jetraft.store.port import HardState, HardStateLost, StoreCorrupt
from jetraft.store.recovery import Recovered, ranges_of, read_file, recover


def open_log(
    disk: Disk, group: Path, identity: Identity, cache: BlockCache, options: LogOptions = DEFAULT_OPTIONS
) -> FileLog:
    """Open the log in the directory `group`, or start one there. What it holds then is durable.

    In SALVAGE mode a damaged log comes back with `faulty` entries: `mend` it, or `give_up` what nobody has.
    Raises StoreCorrupt, StoreRefused, and HardStateLost when term and vote are unreadable. The caller may then open it
    with `accept_lost_hard_state=True`: the log comes back with the last entry's term, no vote and `hard_state_lost`
    set, and this member must rejoin as a learner instead of voting.
    """
    generations = _generations(disk, group)
    place = LogPlace(
        disk=disk,
        directory=group,
        generation=generations[-1] if generations else generation_name(1),
        identity=identity,
        cipher=unlock(disk, group, identity, options.secrets),
    )
    made = disk.make_directory(place.log)
    if generations:
        _sync_names(place)
    if options.distrust_cache:
        _forget_cached(place)
    if ERASE_NAME in disk.list_directory(place.log):
        journal = place.log / ERASE_NAME
        erasure.finish(disk, journal, read_file(disk, journal), identity)
    recovered = recover(disk, place.log, identity, options.mode)
    lost = False
    try:
        copy = _read_hard_state(place, recovered)
    except HardStateLost:
        if not options.accept_lost_hard_state:
            raise
        lost = True
        copy = Copy(counter=1, hard_state=HardState(term=recovered.last_term, vote=None))
    damaged = tuple(item for item in recovered.blocks if item.gaps or item.head_damaged)
    faulty.quarantine(place, damaged)
    faulty.write_mark(place, ranges_of(damaged))
    _tidy(place, recovered, generations[:-1])
    _mark_end(place, recovered)
    reader = FrameReader(disk, cache, identity.incarnation, place.cipher)
    for item in recovered.blocks:
        reader.files[item.block.number] = BlockFile(place=place, head=item.head, written=item.block.used)
    fresh = copy is None
    # A process that was killed may have made directories and synced none: do it for each that has no hard state yet.
    new_directories = {*made, group.parent.parent, group.parent, group} if fresh else set(made)
    start = LogStart(
        blocks=block_list([(item.block, item.terms) for item in recovered.blocks]),
        copy=copy or Copy(counter=0, hard_state=HardState(term=0, vote=None)),
        serial=recovered.next_serial,
        dropped=recovered.dropped,
        checkpoints=recovered.checkpoints,
        new_directories=tuple(sorted(new_directories)),
        fresh=fresh,
        torn=recovered.report.torn_bytes > 0,
        hard_state_lost=lost,
        report=recovered.report,
        damaged=damaged,
        open_again=_open_again,
    )
    return FileLog(place, options, start, reader)


def _open_again(place: LogPlace, cache: BlockCache, options: LogOptions) -> FileLog:
    return open_log(place.disk, place.group, place.identity, cache, options)


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


def discard_log(disk: Disk, group: Path) -> None:
    """Remove a group's directory for good: under another name first, so that a crash leaves nothing to be opened."""
    gone = group.with_name(group.name + TMP_SUFFIX)
    disk.remove_directory(gone)
    if disk.list_directory(group):
        batch = disk.batch()
        batch.rename(bytes(group), bytes(gone))
        fd = disk.open_directory(group.parent)
        batch.sync(fd)
        try:
            disk.perform(batch)
        finally:
            disk.close_file(fd)
        disk.remove_directory(gone)


def _generations(disk: Disk, group: Path) -> list[str]:
    """The names of the generation directories, ascending."""
    names = disk.list_directory(group)
    found = [name for name in names if name.startswith(GENERATION_PREFIX) and not name.endswith(TMP_SUFFIX)]
    if not found and any(name in names for name in HARD_STATE_NAMES):
        raise StoreCorrupt(f"{group}: term and vote are here, the log is not")
    return sorted(found)


def _read_hard_state(place: LogPlace, recovered: Recovered) -> Copy | None:
    """The newest copy; None when none can have been durable yet. Raises HardStateLost."""
    present = place.disk.list_directory(place.group)
    files = []
    for name in HARD_STATE_NAMES:
        if name in present:
            data = read_file(place.disk, place.group / name)
            if data.strip(b"\0"):
                files.append((str(place.group / name), data))
    try:
        return hard_state_file.newest(files, place.identity)
    except HardStateLost:
        # The second copy is begun when the first is durable, and the first block after both.
        begun = any(what.endswith(HARD_STATE_NAMES[1]) for what, _ in files)
        if begun or recovered.blocks or recovered.checkpoints:
            raise
        return None


def _sync_names(place: LogPlace) -> None:
    """Make durable what is there: a process that was killed may have left names and a vote in the cache only.

    The vote is read from the device afterwards: that process may also have seen its fsync fail.
    """
    disk = place.disk
    present = disk.list_directory(place.group)
    _settle(disk, [place.group / name for name in HARD_STATE_NAMES if name in present])
    fds = [disk.open_directory(place.group), disk.open_directory(place.log)]
    batch = disk.batch()
    for fd in fds:
        batch.sync(fd)
    try:
        disk.perform(batch)
    finally:
        for fd in fds:
            disk.close_file(fd)


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


def _tidy(place: LogPlace, recovered: Recovered, generations: Sequence[str]) -> None:
    """Remove what does not count: void blocks, unfinished files, older generations."""
    names = place.disk.list_directory(place.group)
    unfinished = [name for name in names if name.endswith(TMP_SUFFIX)]
    batch = place.disk.batch()
    for name in (*generations, *unfinished):
        if is_unfinished(name):
            batch.unlink(bytes(place.group / name))
        else:
            place.disk.remove_directory(place.group / name)
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
    mark = make_mark(incarnation=place.identity.incarnation, offset=block.used, next_index=block.last_index + 1)
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
