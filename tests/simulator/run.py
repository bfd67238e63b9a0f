"""One run: a cluster under load and faults, then healing, then convergence or a reason why not."""

import contextlib
import logging
from collections.abc import Generator, Mapping
from functools import partial

import attrs

from jetraft.cluster.state.assignment import StreamAssignment
from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.port import EngineFactory
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.config import RetentionPolicy, StreamConfig
from jetraft.store.model.ids import NodeId
from jetraft.store.port import StoreCorrupt
from tests.simulator.ages import Ages
from tests.simulator.checkers import Checker
from tests.simulator.client import STREAM, Client
from tests.simulator.faults import Faults, HostFaults
from tests.simulator.features.batches import Batches
from tests.simulator.features.chains import Chains
from tests.simulator.features.counters import CounterClients
from tests.simulator.features.delays import Delays
from tests.simulator.features.exchange import Exchange
from tests.simulator.features.feature import Feature
from tests.simulator.features.letters import Letters
from tests.simulator.features.resets import Resets
from tests.simulator.features.schedules import Schedules
from tests.simulator.host import GROUP, INCARNATION, LARGE_BLOCKS, SMALL_BLOCKS, Host, HostSetting
from tests.simulator.joining import CHANNEL_ADMIT, CHANNEL_JOIN
from tests.simulator.network import Network
from tests.simulator.repairing import file_work_at_once
from tests.simulator.world import ViolationError, World

FAULTS_NS = 12 * NS_PER_S
HEALING_NS = 6 * NS_PER_S
ACKED_WITHIN_NS = NS_PER_S  # what a schedule produces later than that before the end may still be on its way
LAST_NS = 3 * NS_PER_S  # after healing began: by then there is a leader, and a message is acknowledged
LOAD_PER_S = 8
LIVE_MESSAGES = 15  # so few that trimming leaves holes, and snapshots carry blocks


@attrs.frozen(kw_only=True)
class Mode:
    """What a run is made of. Where `chaos` is not given, odd seeds have it."""

    members: int = 3
    hosts: int = 0  # more than members: some wait to be added
    changes_members: bool = False
    chaos: bool | None = None
    damages_disks: bool = False
    sets_clocks: bool = False  # one wall clock at a time, by an hour and back; messages expire, and ages are judged
    tells_time: bool = False  # the same, and nothing expires
    damages_entries: bool = False  # of up to two disks at a time, near the end of the log, too
    erases: bool = False  # messages, while bits flip before that is applied
    rots: bool = False  # blocks of nodes that go on running; of one node they never do
    checkpoint_entries: int = 1 << 30
    feature: type[Feature] = Feature

    @property
    def needs_changes(self) -> bool:
        """Whether an engine of fixed membership cannot play it: a lost memory comes back by two changes of it."""
        return self.changes_members or self.damages_disks or self.damages_entries or self.rots


MODES = {
    "base": Mode(chaos=False),
    "chaos": Mode(chaos=True),
    "five": Mode(members=5, checkpoint_entries=40),
    "one": Mode(members=1, checkpoint_entries=40),
    "snap": Mode(checkpoint_entries=25),
    "member": Mode(hosts=5, changes_members=True, checkpoint_entries=40),
    "clocks": Mode(sets_clocks=True, checkpoint_entries=40),
    "rot": Mode(rots=True, checkpoint_entries=25),
    "erase": Mode(rots=True, erases=True, checkpoint_entries=25),
    "damage": Mode(damages_entries=True),
    "damage-snap": Mode(damages_entries=True, checkpoint_entries=25),
    "forget": Mode(damages_disks=True, checkpoint_entries=40),
    "forget-five": Mode(members=5, damages_disks=True, checkpoint_entries=40),
    "batches": Mode(feature=Batches, checkpoint_entries=40),
    "counters": Mode(feature=CounterClients, checkpoint_entries=40),
    "schedules": Mode(feature=Schedules, tells_time=True, checkpoint_entries=40),
    "resets": Mode(feature=Resets, checkpoint_entries=40),
    "delays": Mode(feature=Delays, tells_time=True, checkpoint_entries=40),
    "letters": Mode(feature=Letters, checkpoint_entries=40),
    "chain": Mode(feature=Chains, checkpoint_entries=40),
}
FIXED_MEMBERSHIP = [name for name, mode in MODES.items() if not mode.needs_changes]


@attrs.frozen(kw_only=True)
class Result:
    """How a run ended: `problem` is None when everything held."""

    seed: int
    problem: str | None
    counts: dict[str, int]
    history: list[str]
    simulated_ns: int = FAULTS_NS + HEALING_NS


def node_names(mode: Mode) -> list[NodeId]:
    """The nodes of a run; the first `members` of them found the group."""
    return [NodeId(f"node000{number}") for number in range(1, max(mode.members, mode.hosts) + 1)]


class Simulation:
    """One seed in one mode."""

    def __init__(  # noqa: PLR0913  (what a run is made of)
        self,
        seed: int,
        mode: Mode,
        *,
        engine: EngineFactory = create_engine,
        world: World | None = None,
        exchange: Exchange | None = None,
        first: int = 0,
    ) -> None:
        """`exchange` connects the nodes with those of another run of the world; `first` is of the client's messages."""
        self.seed = seed
        self.mode = mode
        self.world = world or World(seed)
        self.ages = Ages(self.world) if mode.sets_clocks else None
        self.feature = mode.feature(self.world)
        self.checker = Checker(self.world, ages=self.ages, feature=self.feature, erases=self.mode.erases)
        self.client = Client(
            self.world, self.checker, load=LOAD_PER_S, ages=self.ages, feature=self.feature, first=first
        )
        nodes = node_names(mode)
        chaos = seed % 2 == 1 if mode.chaos is None else mode.chaos
        self.network = Network(self.world, nodes, chaos=chaos, ordered=frozenset({CHANNEL_JOIN, CHANNEL_ADMIT}))
        setting = self._setting(nodes, engine, exchange)
        self.hosts: dict[NodeId, Host] = {
            node: Host(
                self.world,
                self.network,
                self.checker,
                self.client,
                node_id=node,
                members=tuple(nodes),
                setting=setting,
            )
            for node in nodes
        }
        self.client.hosts = self.hosts
        self.feature.join(self.hosts, self.checker, self.client)
        self._faults_end_ns = self.world.now_ns + FAULTS_NS
        self.faults = Faults(
            self.world, self.network, self.hosts, end_ns=self._faults_end_ns, before=self.client.before_fault
        )
        self._host_faults = HostFaults(self.world, self.checker, self.hosts, founding=mode.members)
        self._last = 0
        self._due_seq = 0  # up to here everything is to be acknowledged at the end

    def _setting(self, nodes: list[NodeId], engine: EngineFactory, exchange: Exchange | None) -> HostSetting:
        mode = self.mode
        policy = CheckpointPolicy(
            applied_bytes_min=1 << 40, applied_entries_min=mode.checkpoint_entries, state_bytes_factor=0
        )
        options = LARGE_BLOCKS if self.world.chance(0.3) else SMALL_BLOCKS
        return HostSetting(
            assignment=self._assignment(nodes),
            engine=engine,
            policy=policy,
            options=options,
            rots=mode.rots,
            judges_ages=mode.sets_clocks or mode.tells_time,
            notes_floors=mode.damages_entries,
            exchange=exchange or self.feature.exchange,
            batch_limits=self.feature.batch_limits,
        )

    def _assignment(self, nodes: list[NodeId]) -> StreamAssignment:
        """The stream's row in the meta group's table."""
        rng, mode = self.world.rng, self.mode
        founding = tuple(nodes[: mode.members])
        trims = mode.checkpoint_entries < 1 << 30
        config = StreamConfig(
            name=STREAM,
            subjects=("s.>",),
            num_replicas=mode.members,
            retention=rng.choice([RetentionPolicy.LIMITS, RetentionPolicy.LIMITS, *RetentionPolicy]),
            max_msgs=LIVE_MESSAGES if trims else -1,
            max_bytes=-1,
            max_msgs_per_subject=-1,
            max_msg_size=-1,
            max_consumers=-1,
            duplicate_window=7200 * NS_PER_S,
        )
        if self.ages is not None:
            config = self.ages.configure(config)
        if mode.feature is not Feature:
            config = self.feature.configure(config)
        return StreamAssignment(
            account="$G",
            config=config,
            group_id=GROUP,
            incarnation=INCARNATION,
            revision=INCARNATION,
            peers=founding,
            preferred=rng.choice(founding),
            created_ns=self.world.clock.unix_ns(),
            founding=founding,
        )

    def run(self) -> Result:
        """Play the seed."""
        problem = None
        try:
            with self.quiet(), file_work_at_once(), self.feature.patches():
                self._play()
                if self.mode.rots:
                    self._read_all()
                problem = self.judge()
        except ViolationError as violation:
            problem = f"violation: {violation}"
        return Result(seed=self.seed, problem=problem, counts=dict(self.world.counts), history=self.world.history)

    @staticmethod
    @contextlib.contextmanager
    def quiet() -> Generator[None, None, None]:
        """Without logs: what the nodes complain about is what is done to them."""
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)

    def _play(self) -> None:
        self.begin()
        self.world.run_until(self._faults_end_ns)
        self.heal()
        self.world.run_until(self._faults_end_ns + LAST_NS)
        self.publish_last()
        self.world.run_until(self._faults_end_ns + HEALING_NS - ACKED_WITHIN_NS)
        self._due_seq = max(self.checker.messages, default=0)
        self.world.run_until(self._faults_end_ns + HEALING_NS)

    def begin(self) -> None:
        """Start everything, faults too."""
        faults, others = self.faults, self._host_faults
        for host in self.hosts.values():
            host.start()
        self.network.connect_all()
        self.client.start()
        faults.start()
        if self.mode.sets_clocks or self.mode.tells_time:
            faults.every(1.0, others.set_wall)
        else:
            faults.every(0.3, others.jump)
        if len(self.hosts) > 1:
            faults.every(0.5, others.transfer)
        if self.mode.changes_members:
            faults.every(2.0, others.change_members)
        if self.mode.damages_disks:
            faults.every(2.0, others.damage_disk)
        if self.mode.damages_entries:
            faults.every(1.5, others.damage_entries)
            faults.every(0.5, others.lose_end)
        if self.mode.rots:
            faults.every(1.0, others.rot)
        if self.mode.erases:
            faults.every(2.0, others.erase)

    def heal(self) -> None:
        """No more faults, and no more work than what has begun."""
        self.client.publishes, self.client.diligent, self.feature.is_over = False, True, True
        self.faults.heal()
        if self.mode.rots:
            for host in self.hosts.values():
                host.scrub()

    def publish_last(self) -> None:
        """One more message, which must be acknowledged."""
        if self.feature.publishes:
            self._last = self.client.publish_last()

    def _read_all(self) -> None:
        """Read every message everywhere, and have damage repaired: a block that still grew was not scrubbed."""
        has_found = False
        for host in self.hosts.values():
            if host.alive and host.group is not None and host.group.failed is None:
                try:
                    live_messages(host)
                except StoreCorrupt as error:
                    has_found = True
                    host.do(partial(host.group.distrust, error))
        if has_found:
            self.world.run_until(self.world.now_ns + LAST_NS)

    # The end.

    def judge(self) -> str | None:
        """What is wrong at the end."""
        leaders = [host for host in self.hosts.values() if host.leads]
        if len(leaders) != 1:
            return f"liveness: {len(leaders)} leaders after healing"
        leader = leaders[0]
        lost = self.client.lost()
        if lost:
            return f"violation: {len(lost)} of {len(self.client.acknowledged)} acknowledged messages are lost"
        if self.feature.publishes and self._last not in self.client.acknowledged:
            return "liveness: a message after healing is not acknowledged"
        if unended := self.client.unended():
            return f"violation: {len(unended)} reads were never answered"
        self.client.compare_with_log(replicated=self.mode.members > 1)
        if self.ages is not None:
            self.ages.judge(live_messages(leader))
        problem = self._compare(leader) or self.feature.judge()
        return problem or (self._judge_consumer(leader) if self.feature.works else None)

    def _compare(self, leader: Host) -> str | None:
        """All members hold the same, and what they hold is what was committed."""
        assert leader.replica is not None
        state, live = leader.replica.machine.snapshot(), live_messages(leader)
        wrong = [seq for seq, payload in live.items() if self.checker.messages.get(seq) != payload]
        if wrong:
            return f"violation: messages {wrong} are not what was committed"
        for node in leader.replica.group.members:
            host = self.hosts[node]
            if host.replica is None or host.replica.group.applied_index != leader.replica.group.applied_index:
                return f"liveness: {node} has not caught up"
            if host.replica.machine.snapshot() != state or live_messages(host) != live:
                return f"violation: {node} holds something else than {leader.node_id}"
        return None

    def _judge_consumer(self, leader: Host) -> str | None:
        """Everything was delivered until it was acknowledged."""
        assert leader.replica is not None
        machine = leader.replica.machine
        consumer = machine.consumers.get("C")
        if consumer is None:
            return "liveness: the consumer was not created"
        due = [seq for seq in live_messages(leader) if seq <= self._due_seq]
        waiting = [seq for seq in due if consumer.is_waiting_for(seq)]
        return f"liveness: messages {waiting} are not delivered or not acknowledged" if waiting else None


def live_messages(host: Host) -> Mapping[int, bytes]:
    """By sequence."""
    assert host.replica is not None
    store = host.replica.machine.store
    return {message.seq: message.payload for message in store.load_many(range(store.first_seq, store.last_seq + 1))}
