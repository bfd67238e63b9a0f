"""Stock PySyncObj in the simulator: its eyes are tested on a library whose holes are known.

The same faults, network and checkers as for the project's engines, but the nodes run PySyncObj 0.3.17 as it comes, with
its own replication, elections and snapshots; only clock, luck, wire and disk are simulated. Two kinds of run:

- `power`: the disk of a library that never calls fsync. Written pages reach it when the kernel likes; a kill loses
  nothing, a power cut loses what was not written back. This is what the first holes of ARCHITECTURE.md (Raft) are.
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
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import attrs
import msgpack
import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.syncobj
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.manager import CHANNEL_RAFT
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog
from tests.simulator.host import HistoryMachine, Host
from tests.simulator.run import Mode, Result, Simulation
from tests.simulator.world import MS, ViolationError, World

if TYPE_CHECKING:
    from jetraft.raft.group import Group

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


class StockNode(Node):
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


class StockTransport(Transport):
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


class StockHost(Host):
    """A node with PySyncObj in place of the manager and its group."""

    kind: Kind
    history: list[bytes]  # the order in which commands were first applied anywhere

    def start(self) -> None:
        assert not self.alive
        self.alive = True
        self.process += 1
        self._paused, self._turn_scheduled = None, True  # the turns of the manager are not needed
        self._commit_seen = self._checked = 0
        self.journal = StockJournal(self, self._checker.on_append)
        self.log = cast("Any", self.journal)
        transport = StockTransport(self)
        others = [StockNode(member) for member in self._members if member != self.node_id]
        self.library = StockMachine(
            StockNode(self.node_id), others, self._configuration(), nodeClass=StockNode, transport=transport
        )
        self.machine = cast("HistoryMachine", self.library)
        self.group = cast("Group", SimpleNamespace(is_leader=False, failed=None, members=self._members))
        self._handlers[CHANNEL_RAFT] = transport.receive
        self.on_peer_up[:] = [lambda node: transport._onNodeConnected(StockNode(node))]
        self.on_peer_down[:] = [lambda node: transport._onNodeDisconnected(StockNode(node))]
        for other in others:
            if self.is_up(other.id):
                transport._onNodeConnected(other)
        self._tick(self.process)

    def _configuration(self) -> SyncObjConf:
        return SyncObjConf(
            autoTick=False,
            journalFile=self.journal,
            appendEntriesBatchSizeBytes=400,
            logCompactionMinEntries=self.kind.compaction_entries,
            logCompactionMinTime=10**9,
            useFork=False,
            onStateChanged=self._on_state_changed,
        )

    def _on_state_changed(self, _old: int, new: int) -> None:
        if new == LEADER:
            term = self.library.raftCurrentTerm
            self._world.note(f"{self.node_id} leads term {term}")
            self._checker.on_leader(term, self.node_id, self.process, cast("GroupLog", self.journal))

    def _tick(self, process: int) -> None:
        """As its own thread would: tick for ever, log an exception and go on."""
        if self.process == process and self.alive:
            self._do(self.library.doTick)
            self._write_back()
            self._world.after(self._world.between(10 * MS, 40 * MS), lambda: self._tick(process))

    def _do(self, event: Callable[[], object]) -> None:
        def careless() -> None:
            try:
                event()
            except ViolationError:
                raise
            except Exception as error:  # noqa: BLE001  (its thread catches everything)
                self._world.counts[f"raised {type(error).__name__}"] += 1

        super()._do(careless)

    def propose(self, _number: int, body: bytes) -> None:
        def done(_result: object, error: int) -> None:
            if error == 0:
                self._checker.acknowledged[body] = 0

        self._do(lambda: self.library.put(body, callback=done))

    # Its disk.

    def _write_back(self) -> None:
        """The kernel writes pages when it likes; without crashes it does not matter."""
        if self._world.chance(0.05):
            self.disk.durable = self._world.rng.randint(self.disk.durable, len(self.disk.operations))

    def crash(self, *, power: bool) -> None:
        if self.kind.crashes:
            if not power:
                self.disk.durable = len(self.disk.operations)  # the kernel lives on and writes it all
            self.disk.submitted = self.disk.durable
            super().crash(power=power)

    # What must hold.

    def _observe(self) -> None:
        self.group.is_leader = bool(self.library._isLeader())
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
            if position == len(self.history):
                self.history.append(bodies[position])
            elif self.history[position] != bodies[position]:
                raise ViolationError(f"{self.node_id} applies {bodies[position]!r} as its command {position}")
        self._checked = len(bodies)


class StockSimulation(Simulation):
    """One seed with stock PySyncObj."""

    def __init__(self, seed: int, kind: Kind) -> None:
        super().__init__(seed, Mode())
        members, history = tuple(self.hosts), list[bytes]()
        policy = CheckpointPolicy()  # not used: compaction is PySyncObj's own
        for node in members:
            host = StockHost(self.world, self.network, self.checker, node_id=node, members=members, policy=policy)
            host.kind, host.history = kind, history
            self.hosts[node] = host

    def run(self) -> Result:
        with stock_library(self.world):
            return super().run()


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
