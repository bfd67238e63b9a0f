"""Stock PySyncObj in the simulator: its eyes are tested on a library whose holes are known.

The same faults, network and checkers as for the project's engines, but the nodes run PySyncObj 0.3.17 as it comes, with
its own replication, elections and snapshots; only clock, luck, wire and disk are simulated. Two kinds of run:

- `power`: the disk of a library that never calls fsync. Written pages reach it when the kernel likes; a kill loses
  nothing, a power cut loses what was not written back. This is what the first holes listed in docs/raft.md are.
- `snapshots`: a disk that loses nothing, no crash at all, links in order; only partitions, pauses and compaction every
  30 entries. Whatever breaks here breaks in a healthy data centre.

`python -m tests.simulator.stock --seeds 100` counts the seeds that violate safety.
"""

import argparse
import contextlib
import logging
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import attrs
import msgpack
import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.syncobj
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from jetraft.raft.manager import CHANNEL_RAFT
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog
from tests.simulator.checkers import Checker
from tests.simulator.faults import Faults
from tests.simulator.network import Network
from tests.simulator.process import Process
from tests.simulator.run import FAULTS_NS, HEALING_NS, Result
from tests.simulator.world import MS, ViolationError, World

LEADER = 2  # PySyncObj's _RAFT_STATE
CLOCK_STEP_S = 0.0002  # a real clock moves inside a tick, and some loops of PySyncObj end by time only


@attrs.frozen(kw_only=True)
class Kind:
    """What of the surroundings is imperfect."""

    crashes: bool
    compaction_entries: int


KINDS = {
    "power": Kind(crashes=True, compaction_entries=1 << 62),
    "snapshots": Kind(crashes=False, compaction_entries=30),
}


class StockNode(Node):  # type: ignore[misc]  # PySyncObj has no types
    """Hashed by its number, so that PySyncObj's sets are walked in the same order in every process."""

    def __hash__(self) -> int:
        return int(self.id[-4:])


class StockJournal:
    """PySyncObj's journal over a simulated disk; also what the checkers ask of a log."""

    def __init__(self, host: "StockHost", on_append: Callable[..., None]) -> None:
        self._operations = host.disk.operations
        self._on_append: Callable[..., None] | None = None
        self.rows: list[tuple[bytes, int, int]] = []
        self.term, self.vote, self.commit_index = 0, None, 1
        for operation in self._operations:
            operation(cast("Any", self))
        self._on_append = on_append

    def _do(self, operation: Callable[["StockJournal"], object]) -> None:
        operation(self)
        self._operations.append(cast("Any", operation))

    def add(self, command: bytes, idx: int, term: int) -> None:
        if self.rows and self._on_append is not None:
            entry = Entry(index=idx, term=term, kind=0, frame=command)
            self._on_append(self, entry, entry)
        self._do(lambda journal: journal.rows.append((command, idx, term)))

    def clear(self) -> None:
        self._do(lambda journal: journal.rows.clear())

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803  (PySyncObj's names)
        self._do(lambda journal: journal.rows.__delitem__(slice(entryFrom, None)))

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803  (PySyncObj's names)
        self._do(lambda journal: journal.rows.__delitem__(slice(0, entryTo)))

    def setCurrentTerm(self, term: int, votedForNodeId: Any) -> None:  # noqa: N802, N803  (PySyncObj's names)
        self._do(lambda journal: journal.__dict__.update(term=term, vote=votedForNodeId))

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803  (PySyncObj's names)
        if raftCommitIndex != self.commit_index:
            self._do(lambda journal: journal.__dict__.update(commit_index=raftCommitIndex))

    def getCurrentTerm(self) -> int:  # noqa: N802  (PySyncObj's name)
        return self.term

    def getVotedForNodeId(self) -> Any:  # noqa: N802  (PySyncObj's name)
        return self.vote

    def getRaftCommitIndex(self) -> int:  # noqa: N802  (PySyncObj's name)
        return self.commit_index

    def onOneSecondTimer(self) -> None:  # noqa: N802  (PySyncObj's name)
        pass

    def __getitem__(self, position: Any) -> Any:
        return self.rows[position]

    def __len__(self) -> int:
        return len(self.rows)

    # What the checkers ask.

    @property
    def first_index(self) -> int:
        return self.rows[0][1]

    def term_at(self, index: int) -> int | None:
        position = index - self.first_index
        return self.rows[position][2] if 0 <= position < len(self.rows) else None


class StockTransport(Transport):  # type: ignore[misc]  # PySyncObj has no types
    """Messages as msgpack over the simulated links."""

    ready = True

    def __init__(self, host: "StockHost") -> None:
        super().__init__(None, None, None)
        self._host = host

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        return self._host.send(node.id, CHANNEL_RAFT, msgpack.packb(message))

    def receive(self, sender: NodeId, payload: memoryview) -> None:
        self._onMessageReceived(StockNode(sender), msgpack.unpackb(payload, use_list=False))


class StockMachine(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """Its replicated state: the list of all commands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.bodies: list[bytes] = []

    @replicated  # type: ignore[untyped-decorator]  # PySyncObj has no types
    def put(self, body: bytes) -> None:
        self.bodies.append(body)


class StockDisk:
    """The operations of one node's journal, in order, and how many of them are durable."""

    def __init__(self, world: World, kind: Kind) -> None:
        self._world = world
        self._kind = kind
        self.operations: list[Callable[[StockJournal], object]] = []
        self.durable = 0
        self.stall_ns = 0  # nobody waits for an fsync here
        self.broken = False  # and so nobody hears of a failed one

    def write_back(self) -> None:
        """The kernel writes pages when it likes; without crashes it does not matter."""
        if self._world.chance(0.05):
            self.durable = self._world.rng.randint(self.durable, len(self.operations))

    def stop(self, *, power: bool) -> None:
        """A power cut takes what was not written back, or a part of it; after a kill the kernel writes it all."""
        if power:
            if self._world.chance(0.5):
                self.durable = self._world.rng.randint(self.durable, len(self.operations))
            del self.operations[self.durable :]
        self.durable = len(self.operations)


class StockHost(Process):
    """A node with PySyncObj."""

    disk: StockDisk

    def __init__(  # noqa: PLR0913  (what a node is made of)
        self,
        world: World,
        network: Network,
        checker: Checker,
        *,
        node_id: NodeId,
        members: tuple[NodeId, ...],
        kind: Kind,
        history: list[bytes],
    ) -> None:
        super().__init__(world, network, node_id=node_id, members=members)
        self.disk = StockDisk(world, kind)
        self.acknowledged: set[bytes] = set()
        self._checker = checker
        self._kind = kind
        self._history = history  # of all nodes: the order in which commands were first applied anywhere
        self._commit_seen = self._checked = 0

    def start(self) -> None:
        self.begin_process()
        self._commit_seen = self._checked = 0
        self.journal = StockJournal(self, self._checker.on_append)
        transport = StockTransport(self)
        others = [StockNode(member) for member in self.others]
        self.library = StockMachine(
            StockNode(self.node_id), others, self._configuration(), nodeClass=StockNode, transport=transport
        )
        self._handlers[CHANNEL_RAFT] = transport.receive
        self.on_peer_up.connect(lambda node: transport._onNodeConnected(StockNode(node)))
        self.on_peer_down.connect(lambda node: transport._onNodeDisconnected(StockNode(node)))
        for other in others:
            if self.is_up(other.id):
                transport._onNodeConnected(other)
        self._tick()

    @property
    def leads(self) -> bool:
        return self.alive and bool(self.library._isLeader())

    def _configuration(self) -> SyncObjConf:
        return SyncObjConf(
            autoTick=False,
            journalFile=self.journal,
            appendEntriesBatchSizeBytes=400,
            logCompactionMinEntries=self._kind.compaction_entries,
            logCompactionMinTime=10**9,
            useFork=False,
            onStateChanged=self._on_state_changed,
        )

    def _on_state_changed(self, _old: int, new: int) -> None:
        if new == LEADER:
            term = self.library.raftCurrentTerm
            self._world.note(f"{self.node_id} leads term {term}")
            self._checker.on_leader(term, self.node_id, self.number, cast("GroupLog", self.journal))

    def _tick(self) -> None:
        """As its own thread would: tick for ever, log an exception and go on."""
        self.do(self.library.doTick)
        self.disk.write_back()
        number = self.number

        def again() -> None:
            if self.number == number and self.alive:
                self._tick()

        self._world.after(self._world.between(10 * MS, 40 * MS), again)

    def do(self, event: Callable[[], object]) -> None:
        def careless() -> None:
            try:
                event()
            except ViolationError:
                raise
            except Exception as error:  # noqa: BLE001  (its thread catches everything)
                self._world.counts[f"raised {type(error).__name__}"] += 1

        super().do(careless)

    def schedule_turn(self) -> None:
        self.observe()

    def propose(self, body: bytes) -> None:
        """A client's command."""

        def done(_result: object, error: int) -> None:
            if error == 0:
                self.acknowledged.add(body)

        self.do(lambda: self.library.put(body, callback=done))

    def crash(self, *, power: bool) -> None:
        if self._kind.crashes:
            super().crash(power=power)

    # What must hold.

    def observe(self) -> None:
        """Look at what it takes for committed, and at what it has applied."""
        commit_index, rows = self.library.raftCommitIndex, self.journal.rows
        low = max(self._commit_seen + 1, rows[0][1]) if rows else commit_index + 1
        for index in range(low, min(commit_index, rows[-1][1] if rows else 0) + 1):
            command, _, term = rows[index - rows[0][1]]
            entry = Entry(index=index, term=term, kind=0, frame=command)
            self._checker.on_commit(self.node_id, self.library.raftCurrentTerm, entry)
            self._commit_seen = index
        self._compare_history()

    def _compare_history(self) -> None:
        """All nodes apply the same commands in the same order."""
        bodies = self.library.bodies
        if len(bodies) < self._checked:
            self._checked = 0  # a snapshot was installed
        for position in range(self._checked, len(bodies)):
            if position == len(self._history):
                self._history.append(bodies[position])
            elif self._history[position] != bodies[position]:
                raise ViolationError(f"{self.node_id} applies {bodies[position]!r} as its command {position}")
        self._checked = len(bodies)


class StockSimulation:
    """One seed with stock PySyncObj."""

    def __init__(self, seed: int, kind: Kind) -> None:
        self.seed = seed
        self.world = World(seed)
        self.checker = Checker(self.world)
        nodes = tuple(NodeId(f"node000{number}") for number in (1, 2, 3))
        self.network = Network(self.world, list(nodes), chaos=False)
        history: list[bytes] = []
        self.hosts = {
            node: StockHost(
                self.world, self.network, self.checker, node_id=node, members=nodes, kind=kind, history=history
            )
            for node in nodes
        }
        self._commands = 0
        self._end_ns = self.world.now_ns + FAULTS_NS
        self._faults = Faults(self.world, self.network, self.hosts, end_ns=self._end_ns, before=self._propose)

    def run(self) -> Result:
        """Play the seed."""
        problem = None
        with stock_library(self.world):
            try:
                for host in self.hosts.values():
                    host.start()
                self.network.connect_all()
                self.world.after(100 * MS, self._client)
                self._faults.start()
                self.world.run_until(self._end_ns)
                self._faults.heal()
                self.world.run_until(self._end_ns + HEALING_NS)
                problem = self._judge()
            except ViolationError as violation:
                problem = f"violation: {violation}"
        return Result(seed=self.seed, problem=problem, counts=dict(self.world.counts), history=self.world.history)

    def _client(self) -> None:
        if self.world.now_ns < self._end_ns:
            self._propose()
            self.world.after(int(self.world.rng.expovariate(20) * NS_PER_S), self._client)

    def _propose(self) -> None:
        for host in self.hosts.values():
            if host.leads:
                for _ in range(self.world.rng.choice((1, 1, 3, 8))):
                    self._commands += 1
                    host.propose(b"command %d " % self._commands + b"." * self.world.rng.choice((0, 0, 20, 300)))

    def _judge(self) -> str | None:
        leaders = [host for host in self.hosts.values() if host.leads]
        if len(leaders) != 1:
            return f"liveness: {len(leaders)} leaders after healing"
        bodies = leaders[0].library.bodies
        acknowledged = set().union(*(host.acknowledged for host in self.hosts.values()))
        if lost := acknowledged.difference(bodies):
            return f"violation: {len(lost)} of {len(acknowledged)} acknowledged commands are lost"
        if len(set(bodies)) != len(bodies):
            return "violation: a command was applied twice"
        behind = [host.node_id for host in self.hosts.values() if host.library.bodies != bodies]
        return f"liveness: {behind} have not caught up" if behind else None


@contextlib.contextmanager
def stock_library(world: World) -> Iterator[None]:
    """Give PySyncObj the world's clock, luck and disk, and its pickle back where the engine has taken it away."""
    reads = Counter[int]()

    def monotonic_time() -> float:
        reads[world.now_ns] += 1
        return world.now_ns / NS_PER_S + reads[world.now_ns] * CLOCK_STEP_S

    library = pysyncobj.syncobj
    changes: list[tuple[Any, str, Any]] = [
        (library, "createJournal", lambda journal: journal),
        (library, "monotonicTime", monotonic_time),
        (library, "random", world.rng),
        *[(pysyncobj.pickle, name, getattr(pickle, name)) for name in ("load", "loads", "dump", "dumps")],
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    logger = logging.getLogger("pysyncobj.syncobj")  # it tells every truncation of what it has applied
    was_disabled, logger.disabled = logger.disabled, True
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        logger.disabled = was_disabled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    for name, kind in KINDS.items():
        problems = {
            seed: StockSimulation(seed, kind).run().problem
            for seed in range(options.first, options.first + options.seeds)
        }
        violations = {seed: text for seed, text in problems.items() if text and text.startswith("violation")}
        others = sum(text is not None for text in problems.values()) - len(violations)
        print(f"{name}: {len(violations)} of {len(problems)} seeds violate safety, {others} do not recover")  # noqa: T201
        for seed, text in list(violations.items())[:5]:
            print(f"    seed {seed}: {text}")  # noqa: T201  (a command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
