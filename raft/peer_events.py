"""Links that came up or went down, told to the groups a few at a time.

A node has thousands of groups, and each has something to do when a peer comes or goes. All of them in one turn are a
pause for all other work, so a turn tells `GROUPS_PER_TURN` of them. A group hears of a peer's sessions in order, and
before any message of the newer one: who hands it such a message tells it first what waits for it (`settle`). A session
that ended before a group had heard of its beginning is not mentioned.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from jetraft.store.model.ids import GroupId, NodeId

GROUPS_PER_TURN: Final = 250  # some 4 ms with what they do then; the last of 3,000 hears of it 12 turns later


class Hears(Protocol):
    """The group as it is told; raft.group.Group has this."""

    group_id: GroupId

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A link session began."""
        ...

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """A link session ended."""
        ...


class PeerEvents:
    """The events that wait, by peer and group: True for a beginning, False for an end, in order."""

    def __init__(self) -> None:
        self.waiting: dict[NodeId, dict[GroupId, tuple[Hears, tuple[bool, ...]]]] = {}

    def add(self, node: NodeId, groups: Iterable[Hears], *, up: bool) -> None:
        """The link to the node came up or went down; `groups` are told in this order, after those that wait."""
        waiting = self.waiting.setdefault(node, {})
        for group in groups:
            before = waiting.pop(group.group_id, (group, ()))[1]
            if not up and before and before[-1]:
                before = before[:-1]
                if before:
                    waiting[group.group_id] = (group, before)
            else:
                waiting[group.group_id] = (group, (*before, up))
        if not waiting:
            del self.waiting[node]

    def settle(self, group: Hears, node: NodeId, now_ns: int) -> None:
        """Tell the group what waits for it of this peer: a message of the peer comes next."""
        waiting = self.waiting.get(node)
        found = None if waiting is None else waiting.pop(group.group_id, None)
        if found is not None and found[0] is group:
            _tell(group, node, found[1], now_ns)
        if waiting is not None and not waiting:
            del self.waiting[node]

    def tell_some(self, now_ns: int) -> None:
        """Tell the next groups."""
        left = GROUPS_PER_TURN
        for node in list(self.waiting):
            waiting = self.waiting[node]
            while waiting and left:
                group_id = next(iter(waiting))
                group, changes = waiting.pop(group_id)
                _tell(group, node, changes, now_ns)
                left -= 1
            if not waiting:
                del self.waiting[node]

    def forget(self, group_id: GroupId) -> None:
        """The group is not here any more."""
        for node in list(self.waiting):
            self.waiting[node].pop(group_id, None)
            if not self.waiting[node]:
                del self.waiting[node]


def _tell(group: Hears, node: NodeId, changes: tuple[bool, ...], now_ns: int) -> None:
    for up in changes:
        if up:
            group.peer_up(node, now_ns)
        else:
            group.peer_down(node, now_ns)
