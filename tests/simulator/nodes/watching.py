"""What must hold in every group after every turn: one leader in a term, one entry committed at an index."""

from typing import TYPE_CHECKING

from jetraft.raft.engine.messages import Role
from jetraft.store.frames._frame import crc32c
from jetraft.store.port import StoreCorrupt
from tests.simulator.world import ViolationError

if TYPE_CHECKING:
    from jetraft.raft.group import Group
    from tests.simulator.nodes.life import Life
    from tests.simulator.nodes.virtual import VirtualWorld

ENTRIES_BYTES_MAX = 1 << 24
MEMORY = "M-"  # in the ids of groups of memory streams: S-R3M-...


class Watcher:
    """Remembers all groups of a run."""

    def __init__(self, world: "VirtualWorld", *, watches_memory: bool) -> None:
        self._world = world
        self._watches_memory = watches_memory  # a group whose majority has lost its memory begins again, in term 1
        self._leaders: dict[tuple[str, int, int], tuple[str, int]] = {}
        self._committed: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}  # by index: (term, checksum)
        self._known: set[tuple[str, int, str]] = set()
        self._seen: dict[int, tuple[Group, int]] = {}  # by id of the group object: it, and the commit index seen

    def look(self, life: "Life") -> None:
        """Look at a node at the end of its turn."""
        for group in life.manager.groups.values():
            if group.failed is not None or (MEMORY in group.group_id and not self._watches_memory):
                continue
            if group.core.role is Role.LEADER:
                self._on_leader(life, group)
            seen = self._seen.get(id(group))
            if seen is None:
                key = (life.name, life.number, group.group_id)
                self._world.counts["reopened"] += key in self._known
                self._known.add(key)
                self._seen[id(group)] = (group, group.commit_index)
            elif group.commit_index > seen[1]:
                self._seen[id(group)] = (group, group.commit_index)
                self._on_commit(life, group, seen[1] + 1)

    def _on_leader(self, life: "Life", group: "Group") -> None:
        key = (group.group_id, group.incarnation, group.term)
        known = self._leaders.setdefault(key, (life.name, life.number))
        if known != (life.name, life.number):
            raise ViolationError(f"{key}: two leaders in a term: {known} and {(life.name, life.number)}")
        self._world.counts["leaders"] = len(self._leaders)

    def _on_commit(self, life: "Life", group: "Group", first: int) -> None:
        known = self._committed.setdefault((group.group_id, group.incarnation), {})
        log, last = group.log, min(group.commit_index, group.log.last_index)
        if first < log.first_index or log.lost or log.damaged_entries:
            return
        try:
            entries = log.entries(first, last, ENTRIES_BYTES_MAX) if first <= last else []
        except (StoreCorrupt, OSError):
            return  # the group meets it too
        for entry in entries:
            found = (entry.term, crc32c(entry.frame))
            if known.setdefault(entry.index, found) != found:
                raise ViolationError(
                    f"{group.group_id}: {life.name} has another entry committed at {entry.index}: "
                    f"term {found[0]}, not {known[entry.index][0]}"
                )
