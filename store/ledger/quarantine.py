"""Copies of what could not be used, kept for inspection: which there are, since when, and their removal.

    quarantine/<id>.<incarnation>/           a log that was replaced from other members (NodeDir.set_aside)
    groups/<id>.<incarnation>/quarantine/    damaged bytes of a block that was repaired (store/log/block_repair.py)
    groups/<id>.<incarnation>/unrecorded/    a log that the ledger did not know (store/log/opening.py)

They hold messages, so none is kept for longer than it is of use (cluster/upkeep/quarantine.py decides). A copy begins
to age when it is seen first: the moment is in a file in it. Nothing refers to one: it may be removed at any time.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.disk.files import read_file, replace_file
from jetraft.store.disk.io import Disk
from jetraft.store.frames.format import QUARANTINE_NAME, UNRECORDED_NAME
from jetraft.store.ledger.ledger_records import GroupKey
from jetraft.store.model.ids import GroupId

ASIDE_NAME: Final = "quarantine"  # in the node's directory
GROUPS_NAME: Final = "groups"  # likewise
SEEN_NAME: Final = "seen"  # in a copy: when it was seen first, unix time in ns, as text
IN_GROUP: Final = (QUARANTINE_NAME, UNRECORDED_NAME)


@attrs.frozen(kw_only=True, slots=True)
class KeptCopy:
    """A directory with what is kept of a group. `is_log`: a whole log, and no piece of one that is in use."""

    path: Path
    group: GroupKey
    is_log: bool
    bytes: int
    seen_ns: int  # unix time; 0 before `note_seen`


def copies(disk: Disk, root: Path) -> list[KeptCopy]:
    """The copies that are kept in a node's directory. Blocking: reads a directory for each group. Raises OSError."""
    return copies_aside(disk, root) + [
        _copy(disk, path, key, is_log=path.name == UNRECORDED_NAME) for path, key in _places_in_groups(disk, root)
    ]


def copies_aside(disk: Disk, root: Path) -> list[KeptCopy]:
    """Only the logs that were replaced. Blocking. Raises OSError."""
    place = root / ASIDE_NAME
    keys = ((name, key_of(name)) for name in disk.list_directory(place))
    return [_copy(disk, place / name, key, is_log=True) for name, key in keys if key is not None]


def still_there(disk: Disk, known: Sequence[KeptCopy]) -> list[KeptCopy]:
    """Those of some copies that have not gone meanwhile, as they are now. Blocking. Raises OSError."""
    return [_copy(disk, copy.path, copy.group, is_log=copy.is_log) for copy in known if disk.list_directory(copy.path)]


def remove_aside(disk: Disk, root: Path, group_id: GroupId) -> None:
    """Remove what is kept of a group that is gone, of all its incarnations. Blocking. Raises OSError."""
    for name in disk.list_directory(root / ASIDE_NAME):
        key = key_of(name)
        if key is not None and key[0] == group_id:
            disk.remove_directory(root / ASIDE_NAME / name)


def note_seen(disk: Disk, copy: KeptCopy, now_ns: int) -> KeptCopy:
    """The copy, which ages from now on if it did not before. Blocking. Raises OSError."""
    if copy.seen_ns:
        return copy
    replace_file(disk, copy.path / SEEN_NAME, str(now_ns).encode())
    return attrs.evolve(copy, seen_ns=now_ns)


def remove(disk: Disk, copy: KeptCopy) -> None:
    """Remove a copy; a crash in between leaves a part of it, which is a copy too. Blocking. Raises OSError."""
    disk.remove_directory(copy.path)


def _places_in_groups(disk: Disk, root: Path) -> Iterator[tuple[Path, GroupKey]]:
    for name in disk.list_directory(root / GROUPS_NAME):
        key = key_of(name)
        if key is None:
            continue
        present = disk.list_directory(root / GROUPS_NAME / name)
        for kind in IN_GROUP:
            if kind in present and disk.list_directory(root / GROUPS_NAME / name / kind):
                yield root / GROUPS_NAME / name / kind, key


def key_of(name: str) -> GroupKey | None:
    """The group of a directory's name, `<id>.<incarnation>`; None for another name."""
    group_id, _, incarnation = name.rpartition(".")
    return (GroupId(group_id), int(incarnation)) if group_id and incarnation.isdigit() else None


def _copy(disk: Disk, path: Path, key: GroupKey, *, is_log: bool) -> KeptCopy:
    seen_ns = 0
    with suppress(OSError, ValueError):  # not seen yet, or torn: it is written again
        seen_ns = int(read_file(disk, path / SEEN_NAME))
    return KeptCopy(path=path, group=key, is_log=is_log, bytes=disk.used_bytes(path), seen_ns=seen_ns)
