"""Groups in memory whose members are restarted at random, two and three at a time: seeds, each decides everything.

Real are the engine, groups, links' order, asking and answering (joining.py, survivor.py); calls take time and get lost.
Checked all the time: one leader in a term, and no two members that have applied different entries. In the end: a
leader, all members hold the same, and what was acknowledged and is gone was told. When no more than one member at a
time lacks anything, nothing is gone, and nothing is told.
"""

import contextlib
import random
from collections.abc import Callable, Mapping
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from jetraft.cluster.membership.reshape import HandOver, MembershipChange, next_step
from jetraft.cluster.membership.reshaper import contact_of
from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.mesh.rpc import CallTimeoutError, Handler, PeerUnavailableError
from jetraft.raft.proposals import Outcome
from jetraft.raft.recovery import survivor
from jetraft.raft.recovery.joining import Begins, Joining, JoinPendingError
from jetraft.raft.recovery.survivor import Answer, Forgot, Survival, members_of, survival
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import MS, Lab, ListMachine

pytestmark = pytest.mark.campaign

NAME, INCARNATION = GroupId("S-R3M-test0000"), 7
THREE = tuple(NodeId(f"n{number}") for number in range(1, 4))
FIVE = tuple(NodeId(f"n{number}") for number in range(1, 6))
TICK_MS = 5
FAULTS_S = 15.0
HEALED_S = 25.0  # an admission after another takes 0.3 s, an election a second
SEEDS = 5  # 160 of three members have been played, and 20 of five


class BrokenPromiseError(Exception):
    """What a group must never do."""


@attrs.define(eq=False)
class Process:
    """One node from a start to the next one."""

    node: NodeId
    joining: Joining
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class Calls:
    """One process's calls: they take up to 40 ms, and are lost with either process or the link."""

    def __init__(self, town: "Town", node: NodeId) -> None:
        self._town = town
        self._node = node
        self.handlers: dict[str, Handler] = {}
        town.calls[node] = self

    def serve(self, method: str, handler: Handler) -> None:
        self.handlers[method] = handler

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        del bulk
        town, there = self._town, self._town.calls.get(to)
        with trio.move_on_after(timeout_s):
            await trio.sleep(town.random.uniform(0, 0.02))
            if there is None or town.calls.get(to) is not there or not town.lab.is_linked(self._node, to):
                raise PeerUnavailableError(to)
            answer = await there.handlers[method](self._node, payload)
            await trio.sleep(town.random.uniform(0, 0.02))
            if town.calls.get(to) is there and town.lab.is_linked(self._node, to):
                return answer
            raise PeerUnavailableError(to)
        raise CallTimeoutError(method)


class Town:
    """The nodes of one seed, and what must hold."""

    def __init__(self, seed: int, nodes: tuple[NodeId, ...]) -> None:
        self.random = random.Random(seed)
        self.nodes = nodes
        self.lab = Lab(nodes=nodes)
        self.calls: dict[NodeId, Calls] = {}
        self.processes: dict[NodeId, Process] = {}
        self.led: dict[int, Process] = {}
        self.acked: set[bytes] = set()
        self.told = False
        self.sent = 0
        for node in nodes:
            self._begin_process(node)
            self._begin_group(node, MemLog())

    def _begin_process(self, node: NodeId) -> Process:
        joining = Joining(self.lab.managers[node], Calls(self, node), on_forgotten=self._note_forgotten)
        process = self.processes[node] = Process(node, joining)
        return process

    def _note_forgotten(self, _group: GroupId) -> None:
        self.told = True

    def _begin_group(self, node: NodeId, log: MemLog) -> None:
        spec = GroupSpec(group_id=NAME, incarnation=INCARNATION, members=self.nodes)
        self.lab.managers[node].create(spec, log, ListMachine())

    def group(self, node: NodeId) -> Group | None:
        return self.lab.managers[node].groups.get(NAME)

    def bodies(self, node: NodeId) -> list[bytes]:
        group = self.group(node)
        assert group is not None
        assert isinstance(group.machine, ListMachine)
        return group.machine.bodies

    # --- what nodes do

    def restart(self, node: NodeId, nursery: trio.Nursery) -> None:
        """The process ends, and everything that it had in memory."""
        self.processes[node].scope.cancel()
        if self.group(node) is not None:
            self.lab.managers[node].remove(NAME)
        for other in self.nodes:
            if other != node and self.lab.is_linked(node, other):
                self.lab.unlink(node, other)
                self.lab.link(node, other)
        nursery.start_soon(self._live, self._begin_process(node))

    async def _live(self, process: Process) -> None:
        """Ask until admitted, as cluster/meta/backend.py does."""
        others = [node for node in self.nodes if node != process.node]
        ask = partial(process.joining.ask, NAME, INCARNATION, own=process.node, others=others, begins=Begins.WITH_ALL)
        with process.scope:
            await trio.sleep(self.random.uniform(0, 0.3))
            while True:
                try:
                    admission = await ask()
                    break
                except JoinPendingError:
                    await trio.sleep(0.3)
            if process.joining.has_begun_empty(NAME):  # terms begin again: nobody is left of the earlier ones
                self.told = True
                self.led = {term: led for term, led in self.led.items() if led is self.processes[led.node]}
            log = MemLog()
            admission.begin(log)
            self._begin_group(process.node, log)

    def isolate(self, node: NodeId) -> None:
        for other in self.nodes:
            if other != node and self.lab.is_linked(node, other):
                self.lab.unlink(node, other)

    def heal(self) -> None:
        for pair in list(self.lab.cut):
            self.lab.link(*sorted(pair))

    # --- time

    async def pass_time(self, duration_s: float, each: Callable[[], None] = lambda: None) -> None:
        for tick in range(int(duration_s * 1000) // TICK_MS):
            self.lab.run(TICK_MS * MS)
            await trio.sleep(TICK_MS / 1000)
            self._check()
            if not tick % 4:
                self._propose()
            if not tick % 20:
                self._reshape()
            each()

    def _propose(self) -> None:
        leader = next((group for group in map(self.group, self.nodes) if group is not None and group.is_leader), None)
        if leader is None:
            return
        self.sent += 1
        body = b"%d" % self.sent

        def done(outcome: Outcome, _result: object) -> None:
            if outcome is Outcome.OK:
                self.acked.add(body)

        leader.propose(Proposal(kind=Kind.STREAM_OP, body=body), done)

    def _reshape(self) -> None:
        for node in self.nodes:
            group = self.group(node)
            if group is None or not group.is_leader:
                continue
            match next_step(node, self.nodes, group.configuration, contact_of(group)):
                case MembershipChange(voters, learners):
                    with contextlib.suppress(MembershipChangeRefusedError):
                        group.change_members(Configuration(voters=voters, learners=learners))
                case HandOver(to):
                    group.transfer_leadership(to)

    def _check(self) -> None:
        longest: list[bytes] = []
        for node in self.nodes:
            group = self.group(node)
            if group is None:
                continue
            if group.failed is not None:
                raise BrokenPromiseError(f"{node} stopped: {group.failed!r}")
            if group.is_leader and self.led.setdefault(group.term, self.processes[node]) is not self.processes[node]:
                raise BrokenPromiseError(f"two leaders in term {group.term}")
            bodies = self.bodies(node)
            short, longest = sorted((bodies, longest), key=len)
            if longest[: len(short)] != short:
                raise BrokenPromiseError(f"{node} has applied other entries than others")

    @property
    def is_whole(self) -> bool:
        """Whether all members hold the same, vote, and have a leader."""
        groups = [self.group(node) for node in self.nodes]
        return all(group is not None and group.votes and group.behind_entries == 0 for group in groups)

    def judge(self) -> None:
        if not self.is_whole:
            state = {node: (group := self.group(node)) and group.statistics() for node in self.nodes}
            raise BrokenPromiseError(f"stuck: {state}")
        gone = self.acked.difference(self.bodies(self.nodes[0]))
        if gone and not self.told:
            raise BrokenPromiseError(f"{len(gone)} of {len(self.acked)} acknowledged are gone without a word")


async def play(seed: int, nodes: tuple[NodeId, ...], *, careful: bool = False) -> Town:
    """Restart members, any number at a time; or, if careful, only when all hold everything."""
    town = Town(seed, nodes)

    def fault(nursery: trio.Nursery) -> None:
        if town.random.random() > (0.02 if careful else 0.006):
            return
        if careful:
            if town.is_whole and not town.lab.cut:
                town.restart(town.random.choice(nodes), nursery)
            return
        match town.random.randrange(4):
            case 0:
                town.isolate(town.random.choice(nodes))
            case 1:
                town.heal()
            case _:
                for node in town.random.sample(nodes, town.random.randint(1, len(nodes) - 1)):
                    town.restart(node, nursery)

    async with trio.open_nursery() as nursery:
        await town.pass_time(2.0)
        await town.pass_time(FAULTS_S, partial(fault, nursery))
        town.heal()
        healed_s = trio.current_time()
        while not town.is_whole and trio.current_time() - healed_s < HEALED_S:
            await town.pass_time(0.5)
        nursery.cancel_scope.cancel()
    town.judge()
    return town


@pytest.mark.parametrize("nodes", [THREE, FIVE], ids=["three", "five"])
async def test_members_that_forget_are_refilled_and_what_is_gone_is_told(
    nodes: tuple[NodeId, ...], autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    told = 0
    for seed in range(SEEDS):
        told += (await play(seed, nodes)).told
    assert told, "some seeds lose something"


async def test_nothing_is_gone_when_each_waits_for_the_one_before(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    for seed in range(SEEDS):
        town = await play(seed, THREE, careful=True)
        assert not town.told
        assert not town.acked.difference(town.bodies(THREE[0]))


def silence_is_forgetting(own: NodeId, answers: Mapping[NodeId, Answer]) -> Survival | None:
    """Who does not answer is taken to have forgotten."""
    silent = members_of(own, answers) - answers.keys()
    return survival(own, {**answers, **dict.fromkeys(silent, Forgot(b"", ()))})


def nothing_is_told(own: NodeId, answers: Mapping[NodeId, Answer]) -> Survival | None:
    """Messages that may be gone are not spoken of."""
    found = survival(own, answers)
    return found and attrs.evolve(found, may_have_lost=False)


def nobody_goes_on(_own: NodeId, _answers: Mapping[NodeId, Answer]) -> None:
    """The group waits for a majority, as it did."""


@pytest.mark.parametrize(
    ("name", "instead", "nodes", "seed"),
    [
        ("survival", silence_is_forgetting, THREE, 2),
        ("survival", nothing_is_told, THREE, 2),
        ("survival", nobody_goes_on, THREE, 2),
        ("TERMS_SKIPPED", 0, THREE, 5),
    ],
    ids=["silence", "nothing told", "nobody", "the next term"],
)
async def test_a_rule_that_is_left_out_is_noticed(  # noqa: PLR0913, PLR0917  (fixtures)
    name: str,
    instead: object,
    nodes: tuple[NodeId, ...],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    monkeypatch.setattr(survivor, name, instead)
    for later in range(SEEDS):
        try:
            await play(seed + later, nodes)
        except (BrokenPromiseError, ExceptionGroup):
            return
    pytest.fail(f"not noticed in {SEEDS} seeds")
