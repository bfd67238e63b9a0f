"""Reads the two files of a ledger when it is opened, and keeps damaged ones before they are replaced.

A copy that cannot be read is not lost if the error does not concern its content (no descriptor, no permission). A copy
of another ledger is ignored if the other one is this node's; of two that say they are, the one that knows more of the
groups that are here counts. When records are missing from both copies, both files are
kept beside the ledger, and every group is marked `memory_lost`.
"""

import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.disk.io import Disk, sync_directory
from jetraft.store.ledger.file import Copy, Merged, merge, parse
from jetraft.store.ledger.ledger_records import GroupKey, GroupState, NodeState
from jetraft.store.port import StoreRefused

Names = tuple[str, str]

DAMAGED_SUFFIX: Final = ".damaged"

_GONE: Final = (errno.ENOENT, errno.EIO)  # permanent errors: a retry does not help

log_ = logging.getLogger(__name__)


@attrs.frozen(kw_only=True, slots=True)
class Reading:
    """The result. `may_continue`: both files are equal, clean and durable, and can be appended to."""

    state: NodeState
    merged: Merged | None
    may_continue: bool


def read_both(
    disk: Disk, root: Path, names: Names, known: Sequence[GroupKey], is_own: Callable[[NodeState], bool]
) -> Reading:
    """Sync what a killed process left, and read both copies. Blocking; makes the directory if it is missing.

    `known` and `is_own` as in `Ledger.open`. Raises StoreRefused for a newer format, OSError.
    """
    for directory in [*disk.make_directory(root), root]:
        sync_directory(disk, directory)
    synced = [_sync_copy(disk, root / name) for name in names]
    merged = merge(*_own(root, names, _copies(disk, root, names), known, is_own))
    state = NodeState() if merged is None else _state_of(root, names, merged)
    if merged is None or not merged.is_whole:
        _keep_damaged(disk, root, names)
        _forget(state, known)
    return Reading(state=state, merged=merged, may_continue=merged is not None and merged.may_continue and all(synced))


def _state_of(root: Path, names: Names, merged: Merged) -> NodeState:
    """Apply the records. Raises StoreRefused."""
    state = NodeState()
    for record in merged.records:
        try:
            state.apply(record)
        except ValueError as error:  # its checksum holds, so it was written by something newer
            raise StoreRefused(f"{root / names[0]}: {error}") from error
    return state


def _own(
    root: Path,
    names: Names,
    copies: tuple[Copy | None, Copy | None],
    known: Sequence[GroupKey],
    is_own: Callable[[NodeState], bool],
) -> tuple[Copy | None, Copy | None]:
    """The copies, without a copy of another ledger if the other one is this node's. Raises StoreRefused."""
    first, second = copies
    if first is None or second is None or first.head.ledger == second.head.ledger:
        return copies
    merged = merge(first, None), merge(None, second)
    states = [NodeState() if one is None else _state_of(root, names, one) for one in merged]
    owned = [is_own(state) for state in states]
    if all(owned):  # servers of one name: whose groups are here?
        here = [len(state.groups.keys() & set(known)) for state in states]
        owned = [count == max(here) for count in here]
    if all(owned) or not any(owned):
        return copies
    log_.error("%s: belongs to another ledger; using the other copy", root / names[owned.index(False)])
    return first if owned[0] else None, second if owned[1] else None


def _copies(disk: Disk, root: Path, names: Names) -> tuple[Copy | None, Copy | None]:
    """Both copies. Raises StoreRefused, and OSError when neither can be read and the error does not concern them."""
    errors: list[OSError] = []
    first, second = (_read(disk, root / name, errors) for name in names)
    passing = next((error for error in errors if error.errno not in _GONE), None)
    if first is None and second is None and passing is not None:
        raise passing  # no descriptor or no permission: the files may be sound and must not be replaced
    return first, second


def _read(disk: Disk, path: Path, errors: list[OSError]) -> Copy | None:
    """One copy as the device has it; None when it is missing or unreadable. Raises StoreRefused."""
    try:
        fd = disk.open_file(path)
        try:
            data = disk.read(fd, disk.size(fd), 0)
        finally:
            disk.close_file(fd)
    except OSError as error:
        errors.append(error)
        if error.errno != errno.ENOENT:
            log_.warning("%s: %s; using the other copy", path, error)
        return None
    try:
        return parse(data)
    except ValueError as error:
        raise StoreRefused(f"{path}: {error}") from error


def _keep_damaged(disk: Disk, root: Path, names: Names) -> None:
    """Copy both files before they are replaced; a failure is logged. Durable on return."""
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
                log_.error("%s: both copies of the ledger are damaged; this one is kept as %s", path, kept)
        except FileNotFoundError:
            continue
        except OSError as error:
            log_.error("%s: damaged, like the other copy; cannot be kept as %s: %s", path, kept, error)  # noqa: TRY400


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


def _sync_copy(disk: Disk, path: Path) -> bool:
    """Sync a file that a killed process may have left unsynced, and drop it from the page cache.

    Returns False when the fsync failed: then the file must not be appended to.
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
            log_.warning("%s: fsync failed: %s; the file is rewritten", path, error)
            return False
        else:
            return True
        finally:
            disk.forget_cached(fd)
    finally:
        disk.close_file(fd)


def _forget(state: NodeState, known: Sequence[GroupKey]) -> None:
    """Mark these groups: records are missing, so their promises are unknown."""
    for key in {*known, *state.groups}:
        state.groups[key] = attrs.evolve(state.groups.get(key, GroupState()), memory_lost=True)
