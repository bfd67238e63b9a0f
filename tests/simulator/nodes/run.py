"""One seed of mode "node": whole nodes with a meta group and some streams, under load and faults, then healed."""

import logging
from contextlib import nullcontext

import attrs
import trio

from jetraft.store.model.clock import NS_PER_S
from tests.simulator.nodes.clients import Clients, Stream
from tests.simulator.nodes.cluster import Shape, SimCluster
from tests.simulator.nodes.disk import LARGE, TIGHT
from tests.simulator.nodes.faults import Faults
from tests.simulator.nodes.judging import Judge
from tests.simulator.nodes.life import Life
from tests.simulator.nodes.lost_events import LostEvents
from tests.simulator.nodes.readers import PREFIX, Readers
from tests.simulator.nodes.virtual import VirtualWorld, one_thread
from tests.simulator.run import Result
from tests.simulator.world import MS, ViolationError

FAULTS_NS = 12 * NS_PER_S
FOUNDED_WITHIN_S = 10.0
DISKS = ("slow", "full", "unreadable", "rot", "two-rot", "wipe")
KINDS = (
    "kill",
    "power",
    "power-of-some",
    "cut-in-work",
    "partition",
    "cut-one",
    *DISKS,
    "clock",
    "create",
    "delete",
    "scale",
    "remove-peer",
    "move-and-restart",
    "delete-behind-a-cut",
    "update-behind-a-cut",
    "remove-server",
    "restart-alone",
    "step-down",
)
SOUND = tuple(kind for kind in KINDS if kind not in {"unreadable", "rot", "two-rot", "wipe"})
DAMAGES = {"rot", "two-rot", "unreadable", "wipe"}
MOVES = {"scale", "remove-peer", "move-and-restart", "remove-server"}
ALWAYS = ("kill", "power", "partition")
READERS_EVERY = 2  # so many seeds apart are those that are read by direct gets
ROLLING_EVERY = 6  # so many seeds apart are those with rolling restarts and nothing else


@attrs.frozen(kw_only=True)
class Plan:
    """What a run is made of. Without `kinds` the nodes are restarted one by one, each when all are healthy."""

    kinds: tuple[str, ...] = ()
    machines: int = 3
    checkpoint_entries: int = 1 << 30
    thread_ns: int = 4 * MS  # half of what a thread's work takes at most
    is_tight: bool = False  # disks on which blocks are small
    has_memory: bool = True  # a stream in memory
    crowd: int = 0  # streams of little load beside the others
    has_template: bool = False  # one more stream, which its first message makes
    has_readers: bool = False  # of all streams, by direct gets
    first: str = ""  # the kind that each run begins with
    loses_events: bool = False  # inside the nodes (lost_events.py)
    faults_ns: int = FAULTS_NS

    @classmethod
    def drawn(cls, seed: int, world: VirtualWorld) -> "Plan":
        """What luck gives a seed."""
        rng = world.rng
        chosen = tuple(kind for kind in KINDS if rng.random() < 0.25)
        if not set(chosen) & set(ALWAYS):
            chosen = (*chosen, rng.choice(ALWAYS))
        kinds = () if seed % ROLLING_EVERY == ROLLING_EVERY - 1 else chosen
        return cls(
            kinds=kinds,
            machines=4 if world.chance(0.7 if MOVES & set(kinds) else 0.2) else 3,
            checkpoint_entries=rng.choice((1 << 30, 4, 12, 30)),
            thread_ns=rng.choice((4, 4, 4, 100, 500)) * MS,
            is_tight=world.chance(0.6),
            has_memory=not kinds or world.chance(0.4),
            crowd=10 if world.chance(0.2) else 0,
            has_readers=seed % READERS_EVERY == 0,
        )

    @classmethod
    def of_mode(cls, mode: str, seed: int, world: VirtualWorld) -> "Plan":
        """The same for a mode of `MODES`: what it is about, and some other faults."""
        always, machines = MODES[mode]
        others = [kind for kind in SOUND if world.chance(0.2)]
        drawn = cls.drawn(seed, world)
        return attrs.evolve(
            drawn,
            kinds=tuple(dict.fromkeys((*always, *others, world.rng.choice(ALWAYS)))),
            machines=world.rng.choice(machines),
            first=always[0],
            loses_events=mode == EVENTS,
        )


EVENTS = "node-events"
MODES = {  # of whole nodes: the faults that each seed has, and how many machines
    "node-removal": (("remove-server",), (4, 5)),
    "node-churn": (("remove-for-good", "create", "delete", "scale", "remove-peer", "move-and-cancel"), (5,)),
    "node-link": (("update-behind-a-cut", "delete-behind-a-cut", "cut-one"), (3, 4)),
    EVENTS: (("scale", "create", "delete", "remove-peer", "kill"), (4,)),
}


@attrs.frozen(kw_only=True)
class NodeResult(Result):
    """How a run ended, and `trace`, a digest of all that happened."""

    trace: str


class NodeSimulation:
    """One seed."""

    def __init__(self, seed: int, plan: Plan | None = None, *, mode: str | None = None) -> None:
        """`mode` is one of `MODES`; without a mode and a plan, everything is drawn."""
        self.seed = seed
        self.world = world = VirtualWorld(seed)
        drawn = plan or (Plan.drawn(seed, world) if mode is None else Plan.of_mode(mode, seed, world))
        self.plan = plan = drawn
        world.thread_ns = plan.thread_ns
        shape = Shape(
            machines=plan.machines,
            checkpoint_entries=plan.checkpoint_entries,
            disk=TIGHT if plan.is_tight else LARGE,
            keeps_memory=not plan.kinds,
        )
        self.cluster = SimCluster(world, shape)
        self.clients = Clients(self.cluster)
        self.readers = Readers(self.cluster, self.clients, seed)
        self.cluster.receive = self._receive
        if plan.has_readers:
            self.cluster.look = self.readers.look
        self._lost = LostEvents(world)
        self.faults = Faults(self.cluster, self.clients, plan.kinds, first=plan.first)
        self.judge = Judge(self.cluster, self.clients, events_are_lost=plan.loses_events)

    def run(self) -> NodeResult:
        """Play the seed."""
        world = self.world
        problem: str | None = None
        logging.disable(logging.CRITICAL)  # what the nodes complain about is what is done to them
        world.note(str(self.plan))
        try:
            with one_thread(world), self._lost.lasting() if self.plan.loses_events else nullcontext():
                problem = trio.run(self._play, clock=world.jumping)
        except (BaseExceptionGroup, ViolationError) as error:
            violation = _violation_in(error)
            if violation is None:
                raise
            problem = f"violation: {violation}"
        finally:
            logging.disable(logging.NOTSET)
        return NodeResult(
            seed=self.seed,
            problem=problem,
            counts=dict(world.counts),
            history=world.history,
            trace=world.trace,
            simulated_ns=world.now_ns,
        )

    def _receive(self, life: Life, to: bytes, hdr: bytes, payload: bytes) -> None:
        (self.readers if to.startswith(PREFIX) else self.clients).receive(life, to, hdr, payload)

    async def _play(self) -> str | None:
        cluster = self.cluster
        async with trio.open_nursery() as nursery:
            cluster.nursery = nursery
            nursery.start_soon(self.world.run)
            try:
                return await self._live(nursery)
            finally:
                for name in cluster.names:
                    cluster.kill(name, power=False)
                with trio.CancelScope(shield=True):
                    for life in cluster.lives:
                        await life.ended.wait()
                nursery.cancel_scope.cancel()

    async def _live(self, nursery: trio.Nursery) -> str | None:
        world, cluster, clients = self.world, self.cluster, self.clients
        for name in cluster.names:
            cluster.start(name)
        with trio.move_on_after(FOUNDED_WITHIN_S):
            while not all(life.is_serving for life in cluster.lives):
                await world.sleep(100 * MS)
        for stream in self._streams():
            if not await clients.create(stream):
                return f"liveness: {stream.name} cannot be created"
            nursery.start_soon(clients.publish_for_ever, stream, nursery)
        if self.plan.has_readers:
            nursery.start_soon(self.readers.read_for_ever)
        await world.sleep(300 * MS)
        if not self.plan.kinds:
            await self.faults.restart_by_health()
        else:
            self._lost.begin()
            end_ns = world.now_ns + self.plan.faults_ns
            await self.faults.run(end_ns, lambda stream: nursery.start_soon(clients.publish_for_ever, stream, nursery))
        self.faults.heal()
        nursery.start_soon(self.faults.start_what_was_removed)
        await world.sleep(500 * MS)
        clients.is_publishing = False
        return await self.judge.verdict()

    def _streams(self) -> list[Stream]:
        plan = self.plan
        streams = [
            Stream(name="A", replicas=3),
            Stream(name="B", replicas=3 if {*DAMAGES, "remove-for-good"} & set(plan.kinds) else 1),
            Stream(name="L", replicas=3, max_msgs=25, load_per_s=15),
            *(Stream(name=f"C{number}", replicas=3, load_per_s=0.5) for number in range(plan.crowd)),
        ]
        if plan.has_template:
            streams.append(Stream(name="T_0", template="T", replicas=3))
        if plan.has_memory:  # what it loses when a majority is away at once nobody promised to keep
            streams.append(Stream(name="M", replicas=3, storage="memory", load_per_s=3, may_lose=bool(plan.kinds)))
        for stream in streams:
            stream.is_read = plan.has_readers and stream.max_msgs < 0  # what a limit removes is not missed
        return streams


def _violation_in(error: BaseException) -> ViolationError | None:
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_violation_in, error.exceptions)), None)
    return error if isinstance(error, ViolationError) else None
