"""One process of a simulated machine: the real node over a network, a disk, clocks and luck of the simulator.

Put together as the composition root does it (api/jetstream/node.py); the plane above is sinks and inboxes. A life ends
when its process does: what its tasks and timers do after that reaches nobody.
"""

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import orjson
import trio

from jetraft.api.jetstream.gateway import JetStreamGateway
from jetraft.api.jetstream.node import FLOOR_S
from jetraft.cluster.node import ClusterNode
from jetraft.cluster.node_spec import NodePorts, NodeSetting
from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.group_spec import GroupSetting
from jetraft.raft.manager import Manager
from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.peers import Mesh, MeshSetting
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import DiskSize
from jetraft.store.frames._frame import seal
from jetraft.store.ledger.node_dir import NodeDir
from jetraft.store.model.steady import SteadyClock
from tests.doubles.lossy_tree import LossyDirectory
from tests.simulator.nodes.disk import LifeDisk
from tests.simulator.nodes.wires import PORT, HostTransport
from tests.simulator.outbox import SimOutbox
from tests.simulator.timers import SimTimers
from tests.simulator.world import HostClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulator.nodes.virtual import VirtualWorld
    from tests.simulator.nodes.wires import Net

CLUSTER = "C"
ROOT = Path("/store")
CACHE_BYTES = 1 << 20
log = logging.getLogger(__name__)


@attrs.define(eq=False, kw_only=True)
class Machine:
    """What stays when a process ends: a disk, clocks, a name."""

    name: str
    number: int
    root: LossyDirectory = attrs.field(factory=LossyDirectory)
    clock: HostClock
    stall_ns: int = 0  # of each fsync
    free_bytes: int | None = None  # of the disk, for a while
    size: DiskSize
    lives: int = 0
    life: "Life | None" = None


class Life:
    """See the module. `run` is the process; `die` ends it."""

    def __init__(  # noqa: PLR0913  (what a process is made of)
        self,
        world: "VirtualWorld",
        net: "Net",
        machine: Machine,
        *,
        names: "Sequence[str]",
        founders: int,
        policy: CheckpointPolicy,
        receive: Callable[["Life", bytes, bytes, bytes], None],
        on_turn: Callable[["Life"], None],
        on_error: Callable[["Life", BaseException], None],
    ) -> None:
        machine.lives += 1
        self.machine = machine
        self.name = machine.name
        self.number = machine.lives
        self.is_alive = True
        self.ended = trio.Event()
        self.scope = trio.CancelScope()
        self.node: ClusterNode | None = None
        self.manager: Manager
        self.is_serving = False
        self.is_listening = False  # a client or a probe is answered
        self._node_dir: NodeDir | None = None
        self._world = world
        self._net = net
        self._founders = founders
        self._policy = policy
        self._on_turn = on_turn
        self._on_error = on_error
        self._kicked = trio.Event()
        self._due_ns: int | None = None
        self._asked = 0
        self._waiting: dict[bytes, trio.MemorySendChannel[bytes]] = {}
        self.disk = LifeDisk(world, machine.root, self.do, machine.size)
        self.disk.stall_ns = machine.stall_ns
        self.disk.set_room(machine.free_bytes)
        self.disk.on_cut = lambda: self.die(power=True)
        self.timers = SimTimers(self.kick)
        self.plane = SimOutbox(self._answer(receive), self.kick)
        routes = tuple(Address(name, PORT) for name in names if name != self.name)
        setting = MeshSetting(cluster=CLUSTER, server_name=self.name, listen=Address(self.name, PORT), routes=routes)
        host = net.hosts[self.name]
        host.has_power = True
        transport = HostTransport(net, host)
        self.mesh = Mesh(setting, clock=machine.clock, transport=transport, after_frames=self.end_turn)

    def _answer(self, receive: Callable[["Life", bytes, bytes, bytes], None]) -> Callable[[bytes, bytes, bytes], None]:
        def answer(to: bytes, hdr: bytes, payload: bytes) -> None:
            if not self.is_alive:
                return
            channel = self._waiting.get(to)
            if channel is not None:
                channel.send_nowait(payload)
            else:
                receive(self, to, hdr, payload)

        return answer

    # Life.

    async def run(self) -> None:
        """The process, until it is killed or something is raised out of it."""
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    await self._assemble(nursery)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  (what a process dies of)
            if self.is_alive:
                self.die(power=False)
                self._on_error(self, error)
        finally:
            self.is_alive = False
            self.ended.set()

    async def _assemble(self, nursery: trio.Nursery) -> None:
        rng = random.Random(self._world.rng.random())
        self._node_dir = node_dir = NodeDir.open(self.disk, ROOT, server_name=self.name, named=True, cluster=CLUSTER)
        setting = GroupSetting(node_id=self.mesh.node_id, seal=seal, rng=rng, checkpoints=self._policy)
        self.manager = Manager(setting, links=self.mesh, clock=self.machine.clock, on_dirty=self.kick)
        ports = NodePorts(
            mesh=self.mesh,
            manager=self.manager,
            outboxes=lambda _account: self.plane,
            timers=self.timers,
            clock=SteadyClock(self.machine.clock),
            rng=rng,
            node_dir=node_dir,
            disk=self.disk,
            cache=BlockCache(CACHE_BYTES),
        )
        identity = NodeSetting(
            node_id=self.mesh.node_id, server_name=self.name, cluster_name=CLUSTER, expected=self._founders
        )
        self.node = ClusterNode.load(identity, ports)
        gateway = JetStreamGateway(
            service=self.node.service,
            outboxes=lambda _account: self.plane,
            kick=self.kick,
            later=self.plane.later,
            send_early=lambda: None,
            calls=self.mesh.calls,
            server_name=self.name,
        )
        gateway.has_legacy_api = True
        nursery.start_soon(self._turns)
        nursery.start_soon(self._note_floors)
        await nursery.start(self.mesh.run)
        await nursery.start(gateway.run)
        self.is_listening = True
        await nursery.start(self.node.run)
        self.is_serving = True

    def stored_groups(self) -> list[tuple[str, int]]:
        """The groups that have data on the disk."""
        return [] if self._node_dir is None else list(self._node_dir.groups())

    def die(self, *, power: bool) -> None:
        """The process ends here and now; with `power` the machine does."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._world.mark(f"{self.name} dies")
        self._net.hosts[self.name].die(power=power)
        self.disk.die(self._world.rng, power=power)
        self.scope.cancel()

    # Turns.

    def kick(self) -> None:
        self._kicked.set()

    def do(self, event: Callable[[], None]) -> None:
        """Something happens outside of all tasks, in a turn of its own."""
        if not self.is_alive:
            return
        try:
            event()
            self.end_turn()
        except Exception as error:  # noqa: BLE001  (what a process dies of)
            self.die(power=False)
            self._on_error(self, error)

    def end_turn(self) -> None:
        """What the reactor does after each event."""
        if not self.is_alive:
            return
        now_ns = self.machine.clock.mono_ns()
        self.timers.run_due(now_ns)
        self.plane.hand_over()
        deadline_ns = self.manager.next_deadline_ns
        if deadline_ns is not None and deadline_ns <= now_ns:
            self.manager.tick(now_ns)
        self.manager.flush()
        if self.plane.hand_over():
            self.manager.flush()
        self.mesh.flush()
        self._on_turn(self)
        self._schedule()

    def _schedule(self) -> None:
        """Be called back for the next deadline."""
        dues_ns = [due for due in (self.manager.next_deadline_ns, self.timers.next_ns) if due is not None]
        if not dues_ns:
            return
        due_ns = max(self.machine.clock.world_ns(min(dues_ns)), self._world.now_ns + 1)
        if self._due_ns is None or due_ns < self._due_ns or self._due_ns <= self._world.now_ns:
            self._due_ns = due_ns
            self._world.at(due_ns, lambda: self._is_due(due_ns))

    def _is_due(self, due_ns: int) -> None:
        if self._due_ns == due_ns:
            self._due_ns = None
            self.do(lambda: None)

    async def _turns(self) -> None:
        while True:
            await self._kicked.wait()
            self._kicked = trio.Event()
            self.end_turn()

    async def _note_floors(self) -> None:
        while True:
            await trio.sleep(FLOOR_S)
            self.manager.note_floors()

    # Clients.

    async def ask(self, subject: str, body: Any = b"", *, timeout_s: float = 5.0) -> dict[str, Any] | None:
        """One API request of a client of this node; None when nobody answers in time."""
        self._asked += 1
        reply = f"_INBOX.api.{self.name}.{self.number}.{self._asked}".encode()
        send, receive = trio.open_memory_channel[bytes](8)
        self._waiting[reply] = send
        payload = body if isinstance(body, bytes) else orjson.dumps(body)
        self.plane.publish(b"$JS.API." + subject.encode(), reply=reply, payload=payload)
        with trio.move_on_after(timeout_s):
            return dict(orjson.loads(await receive.receive()))
        return None
