"""What looks after a node's replicas without being asked, for as long as the node runs.

The scrubber reads everything at rest, the comparer compares replicas, the mender opens again what a disk has stopped,
the compactor rewrites blocks that are mostly dead, yielding hands over what is led while there is no room, and unproved
what is led and not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from jetraft.cluster.streams.compactor import Compactor
from jetraft.cluster.streams.comparer import Comparer
from jetraft.cluster.streams.mender import Mender
from jetraft.cluster.streams.scrubber import Scrubber
from jetraft.cluster.streams.unproved import Unproved
from jetraft.cluster.streams.yielding import Yielding
from jetraft.store.model.config import StorageType
from jetraft.store.scrub import PERIOD_NS, Scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.advisories import Advisories
    from jetraft.cluster.meta.assignment import StreamAssignment
    from jetraft.cluster.meta.backend import MetaBackend
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.node_spec import NodePorts, NodeSetting
    from jetraft.cluster.streams.compactor import CompactorStatistics
    from jetraft.cluster.streams.comparer import ComparerStatistics
    from jetraft.cluster.streams.mender import MenderStatistics, Reopener
    from jetraft.cluster.streams.shell import StreamShell
    from jetraft.cluster.streams.yielding import YieldingStatistics
    from jetraft.raft.group import Group
    from jetraft.raft.repair import Repairs
    from jetraft.store.scrub import ScrubStatistics
    from jetraft.store.space import SpaceWatch


@attrs.frozen(kw_only=True, slots=True)
class CaretakerStatistics:
    """A snapshot. `compared` is None on a server that stands alone."""

    scrub: ScrubStatistics
    mender: MenderStatistics
    compactor: CompactorStatistics
    yielding: YieldingStatistics
    compared: ComparerStatistics | None


@attrs.frozen(slots=True)
class _Census:
    """The replicas of a node and their groups."""

    running: Sequence[tuple[StreamAssignment, StreamShell]] = ()
    replicas: Sequence[StreamShell] = ()
    groups: Sequence[Group] = ()
    groups_on_disk: Sequence[Group] = ()

    @classmethod
    def of(cls, running: Sequence[tuple[StreamAssignment, StreamShell]]) -> _Census:
        """Of what runs."""
        return cls(
            running,
            tuple(replica for _, replica in running),
            tuple(replica.group for _, replica in running),
            tuple(replica.group for row, replica in running if row.config.storage is StorageType.FILE),
        )


class Caretakers:
    """See the module. One task (`run`) owns theirs; `meta_group` is looked after like the groups of the replicas."""

    def __init__(  # noqa: PLR0913  (what they look at, and whom they tell)
        self,
        setting: NodeSetting,
        ports: NodePorts,
        *,
        backend: MetaBackend[StreamShell],
        meta_group: Callable[[], Group | None],
        repairs: Repairs,
        reopen: Reopener,
        view: ClusterView,
        advisories: Advisories,
        space: SpaceWatch,
        tell: Callable[[], None],
        is_table_proved: Callable[[], bool],
    ) -> None:
        self._setting = setting
        self._backend = backend
        self._meta_group = meta_group
        self._counted = _Census()
        self._scrubber = Scrubber(
            disk=ports.disk,
            clock=ports.clock,
            groups=lambda: [replica.group for replica in self._replicas()],
            scrub=Scrub(period_ns=setting.scrub_period_ns or PERIOD_NS, bytes_per_s_max=setting.scrub_bytes_per_s),
        )
        self._compactor = Compactor(
            clock=ports.clock, replicas=self._replicas, is_short=lambda: space.is_low(ports.clock.mono_ns())
        )
        self._mender = Mender(
            node_id=setting.node_id,
            clock=ports.clock,
            groups=self._groups,
            repairs=repairs,
            reopen=reopen,
            space=space,
        )
        self._yielding = Yielding(
            clock=ports.clock,
            space=space,
            groups=self._groups_on_disk,
            is_node_short=lambda node: view.profile_of(node).is_short,
            tell=tell,
        )
        self._unproved = Unproved(clock=ports.clock, groups=lambda: self._census().groups, is_proved=is_table_proved)
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
            nursery.start_soon(self._yielding.run)
            nursery.start_soon(self._unproved.run)
            if self._setting.scrub_period_ns is not None:
                nursery.start_soon(self._scrubber.run)
            nursery.start_soon(self._mender.run)
            if self.comparer is not None and self._setting.compare_ns is not None:
                nursery.start_soon(self.comparer.run)
            nursery.start_soon(self._compactor.run)

    def compact_now(self) -> None:
        """The disk is nearly full: give back what can be given back."""
        self._compactor.compact_now()

    @property
    def is_short(self) -> bool:
        """Whether this node's disk has no room for messages."""
        return self._yielding.is_short

    def statistics(self) -> CaretakerStatistics:
        """Return a snapshot."""
        return CaretakerStatistics(
            scrub=self._scrubber.statistics(),
            mender=self._mender.statistics(),
            compactor=self._compactor.statistics(),
            yielding=self._yielding.statistics(),
            compared=None if self.comparer is None else self.comparer.statistics(),
        )

    def _replicas(self) -> Sequence[StreamShell]:
        return self._census().replicas

    def _groups(self) -> Sequence[Group]:
        return self._with_meta(self._census().groups)

    def _groups_on_disk(self) -> Sequence[Group]:
        return self._with_meta(self._census().groups_on_disk)

    def _census(self) -> _Census:
        """All replicas; counted again when others run."""
        running = self._backend.replicas()
        if running is not self._counted.running:
            self._counted = _Census.of(running)
        return self._counted

    def _with_meta(self, groups: Sequence[Group]) -> Sequence[Group]:
        meta = self._meta_group()
        return groups if meta is None else [meta, *groups]
