"""Groups in which this node may have promised what it has forgotten: on disk, as a lost log cannot tell that it was.

A memory group is noted before its replica starts for the first time, a group in files before its log is given up. One
that is noted when a replica without a log is to be started is one whose log, term and vote this node has forgotten
(raft/joining.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from jetraft.store.model.ids import GroupId
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from jetraft.store.node_dir import NodeDir

RECORD_NAME: Final = "memory-groups.json"


class MemoryGroups:
    """See the module. Every change is durable when the method returns."""

    def __init__(self, node_dir: NodeDir) -> None:
        """Raises StoreCorrupt when the record is unreadable: nothing may be taken for new then."""
        self._file = node_dir.file(RECORD_NAME)
        content = self._file.load()
        try:
            pairs = [] if content is None else orjson.loads(content)
            self._noted = {(GroupId(group_id), int(incarnation)) for group_id, incarnation in pairs}
        except (ValueError, TypeError) as error:
            raise StoreCorrupt(f"{self._file.path}: unreadable: {error}") from error

    def __contains__(self, group: tuple[GroupId, int]) -> bool:
        return group in self._noted

    def all(self) -> list[tuple[GroupId, int]]:
        """Every group noted."""
        return sorted(self._noted)

    def note(self, group_id: GroupId, incarnation: int) -> None:
        """A replica is about to start. Raises OSError."""
        if (group_id, incarnation) not in self._noted:
            self._noted.add((group_id, incarnation))
            self._save()

    def forget(self, group_id: GroupId) -> None:
        """The group was deleted, or has left this node. Raises OSError."""
        kept = {group for group in self._noted if group[0] != group_id}
        if kept != self._noted:
            self._noted = kept
            self._save()

    def _save(self) -> None:
        self._file.save(orjson.dumps(sorted(self._noted)))
