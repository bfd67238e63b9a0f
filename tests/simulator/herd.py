"""Many groups on three nodes, over real logs and one real ledger a node, on disks that do so many fsyncs a second.

What is looked for is the time until every group has a leader again after the node that led them all has died. Real are
the engine, the groups, the manager, the logs and the ledger; simulated are time, links and the rate of the disks.
"""

import random
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from jetraft.raft.engine.port import Proposal
from jetraft.raft.group_spec import GroupSetting, GroupSpec
from jetraft.raft.manager import Manager
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import Batch, Done
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import GroupId, NodeId
from tests.doubles.lossy_disk import LossyBatch, LossyDisk
from tests.raft.lab import ListMachine
from tests.simulator.network import Network
from tests.simulator.process import Process
from tests.simulator.world import MS, US, HostClock, World

if TYPE_CHECKING:
    from jetraft.raft.group import Group

ROOT = Path("/node")
NODES = (NodeId("node0001"), NodeId("node0002"), NodeId("node0003"))
SYNCS_AT_ONCE = 16  # as many as there are writer threads (store/disk/io.py)
FLOORS_NS = NS_PER_S  # how often the logs that were written say how far they are durable
STEP_NS = 20 * MS
OPTIONS = LogOptions(block_bytes_first=4000, block_bytes_max=8000)


class RatedDisk(LossyDisk):
    """Does `syncs_per_s`, up to sixteen at a time and each as long as that takes; what comes meanwhile waits."""

    stall_ns = 0
    broken = False

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.syncs_per_s = 0  # as fast as it is asked to
        self.syncs = 0
        self._waiting: deque[tuple[LossyBatch, Done]] = deque()
        self._after: dict[LossyBatch, tuple[LossyBatch, Done]] = {}
        self._idle = SYNCS_AT_ONCE
        self._life = 0

    def submit(self, batch: Batch, done: Done, *, background: bool = False, ahead: bool = False) -> None:
        del background
        assert isinstance(batch, LossyBatch)
        if ahead:
            self._waiting.appendleft((batch, done))
        else:
            self._waiting.append((batch, done))
        self._begin()

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        assert isinstance(batch, LossyBatch)
        assert isinstance(before, LossyBatch)
        self._after[before] = (batch, done)

    def _begin(self) -> None:
        while self._waiting and self._idle:
            self._idle -= 1
            entry = self._waiting.popleft()
            syncs = sum(name == "sync" for name, _ in entry[0].operations)
            self.syncs += syncs
            took_ns = syncs * SYNCS_AT_ONCE * NS_PER_S // self.syncs_per_s if self.syncs_per_s else 100 * US
            self._world.after(took_ns, partial(self._finish, entry, self._life))

    def _finish(self, entry: tuple[LossyBatch, Done], life: int) -> None:
        if life != self._life:
            return
        self._idle += 1
        batch, done = entry
        for operation in batch.operations:
            self._operate(*operation)
        done(None)
        follower = self._after.pop(batch, None)
        if follower is not None:
            self._waiting.appendleft(follower)
        self._begin()

    def stop(self, *, power: bool) -> None:
        del power
        self._life += 1
        self.kill()


class HerdNode(Process):
    """One node with all the groups."""

    disk: RatedDisk

    def __init__(self, world: World, network: Network, node_id: NodeId) -> None:
        super().__init__(world, network, node_id=node_id, members=NODES)
        self.disk = RatedDisk(world)
        self.clock = HostClock(world)
        self._scheduled = False
        self._wake_ns: int | None = None

    @property
    def leads(self) -> bool:
        """See Process. Whether it leads any."""
        return any(group.is_leader for group in self.manager.groups.values())

    def start(self) -> None:
        """See Process."""
        self.begin_process()
        rng = random.Random(self._world.rng.getrandbits(32))
        setting = GroupSetting(node_id=self.node_id, seal=seal, rng=rng)
        self.manager = Manager(setting, links=self, clock=self.clock, on_dirty=self.schedule_turn)
        self.ledger = Ledger.open(self.disk, ROOT)
        self.cache = BlockCache(1 << 20)
        self.later(FLOORS_NS, self._note_floors)

    def create(self, group_id: GroupId, preferred: NodeId) -> None:
        incarnation = int(group_id[-8:]) + 1  # as different as those of streams
        identity = Identity(node_id=self.node_id, group_id=group_id, incarnation=incarnation)
        log = open_log(self.ledger, ROOT / "groups" / group_id, identity, self.cache, OPTIONS)
        spec = GroupSpec(group_id=group_id, incarnation=incarnation, members=NODES, preferred_leader=preferred)
        self.manager.create(spec, log, ListMachine())

    def _note_floors(self) -> None:
        self.manager.note_floors()
        self.later(FLOORS_NS, self._note_floors)

    def schedule_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._world.after(self._world.between(5 * US, 200 * US), self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self.alive:
            return
        self.manager.tick(self.clock.mono_ns())
        self.manager.flush()
        due_ns = self.manager.next_deadline_ns
        if due_ns is not None and (self._wake_ns is None or due_ns < self._wake_ns):
            self._wake_ns = due_ns
            self._world.at(due_ns, self._wake)

    def _wake(self) -> None:
        self._wake_ns = None
        self.schedule_turn()


@attrs.frozen(kw_only=True)
class Failover:
    """How long the groups were without a leader, in nanoseconds; None for those that had none at the end."""

    waits_ns: list[int | None]
    terms: int  # at most, used up by one group
    syncs: int  # of the busier of the two nodes that are left

    def percentile_ns(self, percent: int) -> int | None:
        """Of the waits; None when as many groups had no leader."""
        ordered = sorted(wait for wait in self.waits_ns if wait is not None)
        place = min(len(self.waits_ns) - 1, len(self.waits_ns) * percent // 100)
        return ordered[place] if place < len(ordered) else None


def _give_up(manager: Manager, to: NodeId) -> None:
    for group in manager.groups.values():
        if group.is_leader:
            group.transfer_leadership(to)


class Herd:
    """Three nodes, and `groups` groups that the first of them leads."""

    def __init__(self, seed: int, *, groups: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world, list(NODES), chaos=False)
        self.nodes = {node: HerdNode(self.world, self.network, node) for node in NODES}
        self._names = [GroupId(f"S-R3F-{number:08d}") for number in range(groups)]
        for node in self.nodes.values():
            node.start()
        self.network.connect_all()
        for name in self._names:
            for node in self.nodes.values():
                node.do(lambda node=node, name=name: node.create(name, NODES[0]))  # type: ignore[misc]
        first = self.nodes[NODES[0]]
        while not all(group.is_leader for group in first.manager.groups.values()):
            for node in (self.nodes[name] for name in NODES[1:]):
                node.do(lambda node=node: _give_up(node.manager, NODES[0]))  # type: ignore[misc]
            self.world.run_until(self.world.now_ns + NS_PER_S)
        for name in self._names:
            group = first.manager.groups[name]
            first.do(lambda group=group: group.propose(Proposal(kind=Kind.META, body=b"entry")))  # type: ignore[misc]
        self.world.run_until(self.world.now_ns + 2 * NS_PER_S)

    def fail_over(self, *, syncs_per_s: int, limit_ns: int) -> Failover:
        """The node that leads them dies, and the disks of the others are as slow as that."""
        left = [self.nodes[node] for node in NODES[1:]]
        for node in left:
            node.disk.syncs_per_s, node.disk.syncs = syncs_per_s, 0
        terms = {name: left[0].manager.groups[name].term for name in self._names}
        began_ns = self.world.now_ns
        self.nodes[NODES[0]].crash(power=False)
        waits_ns: dict[GroupId, int | None] = dict.fromkeys(self._names)
        waiting: dict[GroupId, list[Group]] = {
            name: [node.manager.groups[name] for node in left] for name in self._names
        }
        while waiting and self.world.now_ns < began_ns + limit_ns:
            self.world.run_until(self.world.now_ns + STEP_NS)
            for name in [name for name, groups in waiting.items() if any(group.is_leader for group in groups)]:
                waits_ns[name] = self.world.now_ns - began_ns
                del waiting[name]
        return Failover(
            waits_ns=list(waits_ns.values()),
            terms=max(max(node.manager.groups[name].term for node in left) - terms[name] for name in self._names),
            syncs=max(node.disk.syncs for node in left),
        )
