"""The duties of the meta leader, beside requests: names, voters, and replicas on nodes that are no members any more.

- Nodes that came since get their names into the table.
- The table has the feature level of the oldest version that takes part, once all members are linked and know it.
- A node that has joined (raft/recovery/joining.py) is a learner, and votes when it has caught up.
- A stream with a peer that was removed from the cluster gets another one, when there is one.

Each is read off the table and the group's configuration, so a new leader goes on where the old one stopped. Duties that
could not be done is tried again for as long as this node leads (cluster/calls/reconciling.py): events only wake the
loop, and none of the duties waits for another one to succeed.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.cluster.calls.reconciling import Reconciling
from jetraft.cluster.membership.reshaper import Reshaper
from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.proposals import Outcome
from jetraft.store.model import errors
from jetraft.store.model.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.ports import Timers
    from jetraft.raft.group import Group
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

CHANGE_WAIT_S: Final = 3.0
RETRY_S: Final = 0.1  # another change is under way: nothing tells when it is committed


class LeaderDuties:
    """See the module. One task (`run`); `attend` says that there may be something to do."""

    def __init__(
        self,
        *,
        machine: MetaMachine,
        frontend: MetaFrontend,
        timers: Timers,
        clock: Clock,
        on_peer_up: Signal[[NodeId]] | None = None,
    ) -> None:
        """`on_peer_up` tells of nodes that were linked; None on a server that stands alone."""
        self._machine = machine
        self._frontend = frontend
        self._timers = timers
        self._clock = clock
        self._group: Group | None = None
        self._reshaper: Reshaper | None = None
        self.loop = Reconciling("the meta group's leader", self._look)
        self.on_removed: Signal[[NodeId]] = Signal()  # a node that this one has taken out of the meta group
        machine.on_leader.connect(self.attend)
        if on_peer_up is not None:
            on_peer_up.connect(lambda _node: self.attend())

    def look_after(self, group: Group) -> None:
        """The meta group's object on this node is this one from now on."""
        if self._reshaper is not None:
            self._reshaper.end()
        self._group = group
        self._reshaper = Reshaper(
            group, timers=self._timers, clock=self._clock, wanted=lambda: group.members, settled=lambda: False
        )
        self.attend()

    def attend(self) -> None:
        """Look soon."""
        self.loop.wake()

    async def _look(self) -> Mapping[str, str]:
        """Do what is to be done, and return what could not be."""
        group, stuck = self._group, dict[str, str]()
        if group is None or self._machine.leading_term is None or self._reshaper is None:
            return stuck
        self._reshaper.look()
        for name, duty in self.duties(group).items():
            try:
                stuck |= await duty() or {}
            except Moved:
                return {}  # the loop is woken when this node leads again
            except (AnswerLost, errors.ApiError) as error:
                stuck[name] = str(error) or "a command was not confirmed in time"
        return stuck

    def duties(self, group: Group) -> Mapping[str, Callable[[], Awaitable[Mapping[str, str] | None]]]:
        """The duties of the leader, by name, in order. Each raises Moved, AnswerLost or ApiError."""
        return {
            "the feature level": self._frontend.raise_to_base,
            "the names of servers": self._frontend.name_nodes,
            "replicas of removed servers": partial(self._frontend.heal, group.members),
        }

    async def remove(self, node_id: NodeId) -> None:
        """Take a node out of the meta group; its replicas are given to others afterwards. Committed when this returns.

        Raises Moved when another node has to do it: also when this very node is to go, which hands over first. Raises
        ApiError when the engine keeps a group's members fixed, or no majority agreed in time.
        """
        group = self._group
        if group is None or self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        if not group.members_may_change:
            raise errors.CLUSTER_UNSUPPORTED_FEATURE.with_values()
        if node_id == group.node_id:
            group.transfer_leadership(None)
            raise Moved
        finished = trio.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome, _result: object) -> None:
            outcomes.append(outcome)
            finished.set()

        with trio.move_on_after(CHANGE_WAIT_S):
            while True:
                now = group.configuration
                voters = [node for node in now.voters if node != node_id]
                learners = [node for node in now.learners if node != node_id]
                try:
                    group.change_members(Configuration(voters=voters, learners=learners), done)
                    break
                except MembershipChangeRefusedError as error:
                    log.info("removing %s from the meta group has to wait: %s", node_id, error)
                    await trio.sleep(RETRY_S)
            await finished.wait()
        if not outcomes:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        if outcomes[0] is not Outcome.OK:
            raise AnswerLost
        self.on_removed.emit(node_id)
        self.attend()
