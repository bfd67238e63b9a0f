"""The tasks that look after a node's replicas without being asked, for as long as the node runs.

The scrubber reads everything at rest, the comparer compares replicas, the restarter opens again what a disk has
stopped, the compactor rewrites blocks that are mostly dead, leader balancing hands over what is led while there is no
room, unproved what is led and not served, and the replica duties compare what a replica does with what it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from jetraft.cluster.upkeep.compactor import Compactor
from jetraft.cluster.upkeep.comparer import Comparer
from jetraft.cluster.upkeep.leader_balancing import LeaderBalancing
from jetraft.cluster.upkeep.replica_duties import ReplicaDuties
from jetraft.cluster.upkeep.restarter import Restarter
from jetraft.cluster.upkeep.scrubber import Scrubber
from jetraft.cluster.upkeep.unproved import Unproved
from jetraft.store.log.scrub import PERIOD_NS, Scrub
from jetraft.store.model.config import StorageType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.advisories import NodeAdvisories
    from jetraft.cluster.meta.directory import ReplicaDirectory
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.node_spec import NodePorts, NodeSetting
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.cluster.upkeep.compactor import CompactorStatistics
    from jetraft.cluster.upkeep.comparer import ComparerStatistics
    from jetraft.cluster.upkeep.leader_balancing import LeaderBalancingStatistics
    from jetraft.cluster.upkeep.restarter import Reopener, RestarterStatistics
    from jetraft.raft.group import Group
    from jetraft.raft.recovery.repair import Repairs
    from jetraft.store.disk.space import SpaceWatch
    from jetraft.store.log.scrub import ScrubStatistics


@attrs.frozen(kw_only=True, slots=True)
class SupervisorStatistics:
    """A snapshot. `compared` is None on a server that stands alone."""

    scrub: ScrubStatistics
    restarter: RestarterStatistics
    compactor: CompactorStatistics
    leader_balancing: LeaderBalancingStatistics
    compared: ComparerStatistics | None


@attrs.frozen(slots=True)
class _Census:
    """The replicas of a node and their groups."""

    running: Sequence[tuple[StreamAssignment, StreamReplica]] = ()
    replicas: Sequence[StreamReplica] = ()
    groups: Sequence[Group] = ()
    groups_on_disk: Sequence[Group] = ()

    @classmethod
    def of(cls, running: Sequence[tuple[StreamAssignment, StreamReplica]]) -> _Census:
        """Of what runs."""
        return cls(
            running,
            tuple(replica for _, replica in running),
            tuple(replica.group for _, replica in running),
            tuple(replica.group for row, replica in running if row.config.storage is StorageType.FILE),
        )


class Supervisor:
    """See the module. One task (`run`) owns theirs; `meta_group` is looked after like the groups of the replicas."""

    def __init__(  # noqa: PLR0913  (what they look at, and whom they tell)
        self,
        setting: NodeSetting,
        ports: NodePorts,
        *,
        directory: ReplicaDirectory[StreamReplica],
        meta_group: Callable[[], Group | None],
        repairs: Repairs,
        reopen: Reopener,
        view: ClusterView,
        advisories: NodeAdvisories,
        space: SpaceWatch,
        tell: Callable[[], None],
        is_table_proved: Callable[[], bool],
    ) -> None:
        self._setting = setting
        self._directory = directory
        self._meta_group = meta_group
        self._counted = _Census()
        self._duties = ReplicaDuties(directory)
        self._scrubber = Scrubber(
            disk=ports.disk,
            clock=ports.clock,
            groups=self._groups,
            scrub=Scrub(period_ns=setting.scrub_period_ns or PERIOD_NS, bytes_per_s_max=setting.scrub_bytes_per_s),
        )
        self._compactor = Compactor(
            clock=ports.clock, replicas=self._replicas, is_short=lambda: space.is_low(ports.clock.mono_ns())
        )
        self._restarter = Restarter(
            node_id=setting.node_id,
            clock=ports.clock,
            groups=self._groups,
            repairs=repairs,
            reopen=reopen,
            space=space,
        )
        balancing = self._leader_balancing = LeaderBalancing(
            clock=ports.clock,
            space=space,
            groups=self._groups_on_disk,
            ranking=lambda: view.ranking(directory.accounts()),
            tell=tell,
        )
        self._unproved = Unproved(
            clock=ports.clock, groups=self._groups_here, is_proved=is_table_proved, ranking=balancing.ranking
        )
        self.comparer: Comparer | None = None
        if ports.mesh is not None:
            self.comparer = Comparer(
                node_id=setting.node_id,
                mesh=ports.mesh,
                advisories=advisories,
                replicas=self._replicas,
                period_ns=setting.compare_ns or PERIOD_NS,
            )

    async def run(self) -> None:
        """Look after everything until cancelled; what the setting says "never" to is left out."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._duties.loop.run)
            nursery.start_soon(self._leader_balancing.run)
            nursery.start_soon(self._unproved.run)
            if self._setting.scrub_period_ns is not None:
                nursery.start_soon(self._scrubber.run)
            nursery.start_soon(self._restarter.run)
            if self.comparer is not None and self._setting.compare_ns is not None:
                nursery.start_soon(self.comparer.run)
            nursery.start_soon(self._compactor.run)

    def compact_now(self) -> None:
        """The disk is nearly full: give back what can be given back."""
        self._compactor.compact_now()

    def statistics(self) -> SupervisorStatistics:
        """Return a snapshot."""
        return SupervisorStatistics(
            scrub=self._scrubber.statistics(),
            restarter=self._restarter.statistics(),
            compactor=self._compactor.statistics(),
            leader_balancing=self._leader_balancing.statistics(),
            compared=None if self.comparer is None else self.comparer.statistics(),
        )

    def _replicas(self) -> Sequence[StreamReplica]:
        return self._census().replicas

    def _groups_here(self) -> Sequence[Group]:
        return self._census().groups

    def _groups(self) -> Sequence[Group]:
        return self._with_meta(self._census().groups)

    def _groups_on_disk(self) -> Sequence[Group]:
        return self._with_meta(self._census().groups_on_disk)

    def _census(self) -> _Census:
        """All replicas; counted again when others run."""
        running = self._directory.replicas()
        if running is not self._counted.running:
            self._counted = _Census.of(running)
        return self._counted

    def _with_meta(self, groups: Sequence[Group]) -> Sequence[Group]:
        meta = self._meta_group()
        return groups if meta is None else [meta, *groups]
