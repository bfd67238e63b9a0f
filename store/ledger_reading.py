"""What the two files of a ledger say when it is opened, and what is done about damage before anything is replaced.

A copy that cannot be read is not taken for lost when the reason says nothing about it (no descriptor is left, no right
to read). One of another ledger does not count beside the node's own. When records are missing from both, what the files
held is kept beside them, and every group is marked as without memory.
"""

import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.io import Disk, sync_directory
from jetraft.store.ledger_file import Copy, Merged, merge, parse
from jetraft.store.ledger_records import GroupKey, GroupState, NodeState
from jetraft.store.port import StoreRefused

Names = tuple[str, str]

DAMAGED_SUFFIX: Final = ".damaged"

_GONE: Final = (errno.ENOENT, errno.EIO)  # a copy that is not to be had by trying again

log_ = logging.getLogger(__name__)


@attrs.frozen(kw_only=True, slots=True)
class Reading:
    """What was found. `may_continue`: both files are alike, clean and durable, and can be written on."""

    state: NodeState
    merged: Merged | None
    may_continue: bool


def read_both(
    disk: Disk, root: Path, names: Names, known: Sequence[GroupKey], is_own: Callable[[NodeState], bool]
) -> Reading:
    """Make durable what a killed process left, and read both copies. Blocking; makes the directory when it is missing.

    `known` and `is_own` as in `Ledger.open`. Raises StoreRefused for a newer format, OSError.
    """
    for directory in [*disk.make_directory(root), root]:
        sync_directory(disk, directory)
    settled = [_settle(disk, root / name) for name in names]
    merged = merge(*_own(root, names, _copies(disk, root, names), is_own))
    state = NodeState() if merged is None else _state_of(root, names, merged)
    if merged is None or not merged.is_whole:
        _keep_damaged(disk, root, names)
        _forget(state, known)
    return Reading(state=state, merged=merged, may_continue=merged is not None and merged.may_continue and all(settled))


def _state_of(root: Path, names: Names, merged: Merged) -> NodeState:
    """What the records say. Raises StoreRefused."""
    state = NodeState()
    for record in merged.records:
        try:
            state.apply(record)
        except ValueError as error:  # its checksum holds, so it was written by something newer
            raise StoreRefused(f"{root / names[0]}: {error}") from error
    return state


def _own(
    root: Path, names: Names, copies: tuple[Copy | None, Copy | None], is_own: Callable[[NodeState], bool]
) -> tuple[Copy | None, Copy | None]:
    """The copies without one of a foreign ledger, where the other one is this node's. Raises StoreRefused."""
    first, second = copies
    if first is None or second is None or first.head.ledger == second.head.ledger:
        return copies
    merged = merge(first, None), merge(None, second)
    owned = [one is not None and is_own(_state_of(root, names, one)) for one in merged]
    if all(owned) or not any(owned):
        return copies
    log_.error("%s: of another ledger; the other copy is used", root / names[owned.index(False)])
    return first if owned[0] else None, second if owned[1] else None


def _copies(disk: Disk, root: Path, names: Names) -> tuple[Copy | None, Copy | None]:
    """Both copies. Raises StoreRefused, and OSError when neither is had for a reason that says nothing about them."""
    errors: list[OSError] = []
    first, second = (_read(disk, root / name, errors) for name in names)
    passing = next((error for error in errors if error.errno not in _GONE), None)
    if first is None and second is None and passing is not None:
        raise passing  # there may be no descriptor left, or this process may not read: they must not be replaced
    return first, second


def _read(disk: Disk, path: Path, errors: list[OSError]) -> Copy | None:
    """One copy as the device has it; None when it is not there or cannot be read. Raises StoreRefused."""
    try:
        fd = disk.open_file(path)
        try:
            data = disk.read(fd, disk.size(fd), 0)
        finally:
            disk.close_file(fd)
    except OSError as error:
        errors.append(error)
        if error.errno != errno.ENOENT:
            log_.warning("%s: %s; the other copy is used", path, error)
        return None
    try:
        return parse(data)
    except ValueError as error:
        raise StoreRefused(f"{path}: {error}") from error


def _keep_damaged(disk: Disk, root: Path, names: Names) -> None:
    """Copy both files as they are before they are replaced; what cannot be kept is logged. Durable on return."""
    for name in names:
        path, kept = root / name, root / (name + DAMAGED_SUFFIX)
        try:
            fd = disk.open_file(path)
            try:
                data = disk.read(fd, disk.size(fd), 0)
            finally:
                disk.close_file(fd)
            if data.strip(b"\0"):
                _write_whole(disk, kept, data)
                sync_directory(disk, root)
                log_.error("%s: damaged, as the other copy is; a copy of it is kept as %s", path, kept)
        except FileNotFoundError:
            continue
        except OSError as error:
            log_.error("%s: damaged, as the other copy is; it cannot be kept as %s: %s", path, kept, error)  # noqa: TRY400


def _write_whole(disk: Disk, path: Path, data: bytes) -> None:
    fd = disk.open_file(path, create=True)
    try:
        batch = disk.batch()
        batch.truncate(fd, 0)
        batch.write(fd, [data], 0)
        batch.sync(fd)
        disk.perform(batch)
    finally:
        disk.close_file(fd)


def _settle(disk: Disk, path: Path) -> bool:
    """Make durable what a process left that was killed, and forget what only the cache has of it.

    False when the fsync failed: the device has what it has, and the file must not be written on.
    """
    try:
        fd = disk.open_file(path)
    except OSError:
        return True
    try:
        batch = disk.batch()
        batch.sync(fd)
        try:
            disk.perform(batch)
        except OSError as error:
            log_.warning("%s: %s; it is rewritten", path, error)
            return False
        else:
            return True
        finally:
            disk.forget_cached(fd)
    finally:
        disk.close_file(fd)


def _forget(state: NodeState, known: Sequence[GroupKey]) -> None:
    """Records are missing, or all of them: what these groups have promised is not known."""
    for key in {*known, *state.groups}:
        state.groups[key] = attrs.evolve(state.groups.get(key, GroupState()), memory_lost=True)
