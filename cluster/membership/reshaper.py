"""Makes a group's members those of the table, on its leader: takes the steps that `reshape` chooses.

It looks when it begins to lead, when the row changes, and again every LOOK_NS until there is nothing left to do: what
it waits for (a learner that catches up, a change that is committed) has no event of its own. After that its owner has
it look now and then (cluster/upkeep/replica_duties.py, cluster/meta/leader_duties.py), so it misses nothing for good.
It keeps no state: the target is in the row, the progress in the group's configuration.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from jetraft.cluster.membership.reshape import Contact, HandOver, MembershipChange, Settled, Wait, next_step
from jetraft.raft.engine.leadership import NEARLY_CAUGHT_UP_ENTRIES, MembershipChangeRefusedError
from jetraft.raft.engine.membership import Configuration
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.events import LEADER_HANDED_OVER, MEMBERS_CHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jetraft.cluster.ports import TimerHandle, Timers
    from jetraft.raft.group import Group
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

LOOK_NS: Final = 100 * NS_PER_MS


class Reshaper:
    """See the module. `wanted` says who should be members; `settled` is called when they are, and what it may repeat.

    `settled` returns whether there is more to come: then the reshaper looks again.
    """

    def __init__(
        self,
        group: Group,
        *,
        timers: Timers,
        clock: Clock,
        wanted: Callable[[], Iterable[NodeId]],
        settled: Callable[[], bool],
    ) -> None:
        self._group = group
        self._timers = timers
        self._clock = clock
        self._wanted = wanted
        self._settled = settled
        self._timer: TimerHandle | None = None
        self._ended = False

    def look(self) -> None:
        """Take the next step, if there is one that can be taken now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ended or not self._group.is_leader or self._group.failed is not None:
            return
        if self._step():
            self._timer = self._timers.call_at(self._clock.mono_ns() + LOOK_NS, self._again)

    def end(self) -> None:
        """Leadership is over."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self._timer = None
        self.look()

    def _step(self) -> bool:
        """Return whether there is a next one."""
        group = self._group
        step = next_step(group.node_id, self._wanted(), group.configuration, contact_of(group))
        match step:
            case MembershipChange(voters, learners):
                self._change(Configuration(voters=voters, learners=learners))
            case HandOver(to):
                if group.transfer_leadership(to):
                    LEADER_HANDED_OVER.log(group=group.group_id, node=to)
            case Settled():
                return self._settled()
            case Wait():
                pass
        return True

    def _change(self, configuration: Configuration) -> None:
        try:
            self._group.change_members(configuration)
        except MembershipChangeRefusedError as error:
            log.debug("%s: not yet: %s", self._group.group_id, error)
        else:
            voters, learners = ", ".join(configuration.voters), ", ".join(configuration.learners) or "none"
            MEMBERS_CHANGED.log(group=self._group.group_id, voters=voters, learners=learners)


def contact_of(group: Group) -> Contact:
    """The members that answer, and those that have nearly everything; one that never answered counts as away."""
    enough_index = group.log.last_index - NEARLY_CAUGHT_UP_ENTRIES
    online = {peer.node for peer in group.core.peer_progress() if peer.up and peer.responded}
    current = {
        peer.node
        for peer in group.core.peer_progress()
        if peer.node in online and peer.match_index > 0 and peer.match_index >= enough_index
    }
    return Contact(online=online, current=current)
