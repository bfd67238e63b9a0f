"""How a node without memory of a group is let in, or why it has to wait."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest
import trio

from jetraft.raft.engine.membership import Configuration, SettledUpTo
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.rpc import Handler, PeerUnavailableError
from jetraft.raft.recovery.joining import Begins, Joining, JoinPendingError, MemberAdmission
from jetraft.store.frames.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from tests.harness.log_lines import kinds_in
from tests.raft.lab import MS, Lab, ListMachine

NAME, INCARNATION = GroupId("S-R3F-test0000"), 7
N1, N2, N3, N4 = (NodeId(f"n{number}") for number in range(1, 5))
T = TypeVar("T")


class Calls:
    """The calls between the nodes of a lab; a node that is away answers nobody."""

    def __init__(self) -> None:
        self.handlers: dict[tuple[NodeId, str], Handler] = {}
        self.away: set[NodeId] = set()


class CallsOf:
    """One node's end."""

    def __init__(self, calls: Calls, node: NodeId) -> None:
        self._calls = calls
        self._node = node

    def serve(self, method: str, handler: Handler) -> None:
        self._calls.handlers[self._node, method] = handler

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        del timeout_s, bulk
        await trio.lowlevel.checkpoint()
        if to in self._calls.away or (to, method) not in self._calls.handlers:
            raise PeerUnavailableError(to)
        return await self._calls.handlers[to, method](self._node, payload)


class Town:
    """A lab whose nodes can ask each other."""

    def __init__(self, *nodes: NodeId) -> None:
        self.lab = Lab(nodes=nodes)
        self.calls = Calls()
        self.admitted: list[GroupId] = []
        self.forgotten: list[GroupId] = []
        self.joining = {node: self.process(node) for node in nodes}

    def process(self, node: NodeId) -> Joining:
        """A new process of this node."""
        return Joining(
            self.lab.managers[node],
            CallsOf(self.calls, node),
            on_admitted=self.admitted.append,
            on_forgotten=self.forgotten.append,
        )

    def found(self, *members: NodeId) -> Group:
        """The group on these nodes; returns the leader's."""
        for node in members:
            spec = GroupSpec(group_id=NAME, incarnation=INCARNATION, members=members, preferred_leader=members[0])
            self.lab.managers[node].create(spec, MemLog(), ListMachine())
        self.lab.run(2000 * MS)
        return next(self.group(node) for node in members if self.group(node).is_leader)

    def group(self, node: NodeId) -> Group:
        return self.lab.managers[node].groups[NAME]

    def lose(self, node: NodeId) -> None:
        """The node is started again, and has forgotten the group."""
        if NAME in self.lab.managers[node].groups:
            self.lab.managers[node].remove(NAME)
        self.joining[node] = self.process(node)
        self.lab.run(50 * MS)

    def begin(self, node: NodeId, admission: MemberAdmission, log: MemLog | None = None) -> None:
        """The node is a member as it was admitted, with what its log has been filled with."""
        log = log or MemLog()
        admission.begin(log)
        spec = GroupSpec(group_id=NAME, incarnation=INCARNATION, members=(N4,))
        self.lab.managers[node].create(spec, log, ListMachine())

    async def ask(self, node: NodeId, *others: NodeId, begins: Begins = Begins.NEVER) -> MemberAdmission:
        ask = partial(self.joining[node].ask, NAME, INCARNATION, own=node, others=others, begins=begins)
        return await self._while_time_passes(ask)

    async def _while_time_passes(self, call: Callable[[], Awaitable[T]]) -> T:
        found: list[T] = []
        refused: list[JoinPendingError] = []

        async def work() -> None:
            try:
                found.append(await call())
            except JoinPendingError as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            while not found and not refused:
                await trio.testing.wait_all_tasks_blocked()
                self.lab.run(5 * MS)
        if refused:
            raise refused[0]
        return found[0]


async def test_a_voter_that_has_forgotten_is_demoted_before_it_may_begin(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    town = Town(N1, N2, N3)
    leader = town.found(N1, N2, N3)
    town.lose(N3)

    admission = await town.ask(N3, N2, N1)

    assert admission.configuration == Configuration(voters=(N1, N2), learners=(N3,))
    assert (admission.term, admission.vote) == (leader.term, N1)
    assert leader.configuration == admission.configuration
    assert leader.configuration_is_committed
    assert town.admitted == [NAME]
    town.begin(N3, admission)
    town.lab.run(2000 * MS)
    assert town.group(N3).commit_index == leader.commit_index
    leader.change_members(Configuration(voters=(N1, N2, N3)))
    town.lab.run(100 * MS)
    assert town.group(N3).configuration.voters == (N1, N2, N3)
    assert {"replica_refilled"} <= kinds_in(caplog)


async def test_a_stranger_becomes_a_learner() -> None:
    town = Town(N1, N2, N3, N4)
    town.found(N1, N2, N3)
    admission = await town.ask(N4, N1, N2, N3)
    assert admission.configuration == Configuration(voters=(N1, N2, N3), learners=(N4,))


async def test_a_learner_that_forgets_again_is_followed_from_the_beginning() -> None:
    town = Town(N1, N2, N3)
    leader = town.found(N1, N2, N3)
    town.lose(N3)
    town.begin(N3, await town.ask(N3, N1))
    town.lab.run(2000 * MS)
    town.lose(N3)

    assert (await town.ask(N3, N1)).configuration == leader.configuration

    (progress,) = [peer for peer in leader.core.peer_progress() if peer.node == N3]
    assert progress.match_index == 0


async def test_nobody_is_admitted_where_that_would_leave_no_majority() -> None:
    town = Town(N1, N2, N3)
    leader = town.found(N1, N2, N3)
    town.lose(N3)
    town.lab.unlink(N1, N2)
    with pytest.raises(JoinPendingError):
        await town.ask(N3, N1, N2)
    assert leader.configuration.learners == ()


async def test_who_is_not_wanted_is_not_admitted() -> None:
    town = Town(N1, N2, N3, N4)
    town.found(N1, N2, N3)
    for node in (N1, N2, N3):
        Joining(town.lab.managers[node], CallsOf(town.calls, node), may_join=lambda *_: False)
    with pytest.raises(JoinPendingError):
        await town.ask(N4, N1, N2, N3)


async def test_a_group_that_nobody_remembers_begins_anew_when_all_have_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    town = Town(N1, N2, N3)
    for node in (N1, N2):
        with pytest.raises(JoinPendingError):
            await town.ask(node, *({N1, N2, N3} - {node}), begins=Begins.WITH_ALL)

    admission = await town.ask(N3, N1, N2, begins=Begins.WITH_ALL)

    assert admission == MemberAdmission(configuration=Configuration(voters=(N1, N2, N3)))
    town.begin(N3, admission)
    assert await town.ask(N1, N2, N3, begins=Begins.WITH_ALL) == admission
    town.begin(N1, admission)
    assert await town.ask(N2, N1, begins=Begins.WITH_ALL) == admission, "who began hands on whom it counted on"
    assert {"replica_empty"} <= kinds_in(caplog)


async def test_who_was_restarted_after_others_had_counted_on_it_has_to_be_admitted() -> None:
    town = Town(N1, N2, N3)
    for node in (N1, N2):
        with pytest.raises(JoinPendingError):
            await town.ask(node, *({N1, N2, N3} - {node}), begins=Begins.WITH_ALL)
    town.begin(N3, await town.ask(N3, N1, N2, begins=Begins.WITH_ALL))
    town.lose(N1)
    with pytest.raises(JoinPendingError):
        await town.ask(N1, N2, N3, begins=Begins.WITH_ALL)


async def test_who_has_begun_and_forgotten_since_has_to_be_admitted() -> None:
    """In the same process: its replica was moved away and back, or its log in memory failed."""
    town = Town(N1, N2, N3)
    for node in (N1, N2):
        with pytest.raises(JoinPendingError):
            await town.ask(node, *({N1, N2, N3} - {node}), begins=Begins.WITH_ALL)
    town.begin(N3, await town.ask(N3, N1, N2, begins=Begins.WITH_ALL))
    town.begin(N1, await town.ask(N1, N2, N3, begins=Begins.WITH_ALL))
    town.lab.run(2000 * MS)
    follower, leader = (N1, N3) if town.group(N3).is_leader else (N3, N1)
    town.begin(N2, await town.ask(N2, follower, begins=Begins.WITH_ALL))
    town.lab.run(3000 * MS)
    assert town.group(N2).commit_index > 0, "it has acknowledged something"
    town.lab.managers[N2].remove(NAME)
    again = await town.ask(N2, follower, leader, begins=Begins.WITH_ALL)
    assert again.configuration == Configuration(voters=(N1, N3), learners=(N2,))


async def test_nothing_begins_anew_when_one_that_had_forgotten_is_filled_while_the_last_one_is_asked() -> None:
    town = Town(N1, N2, N3)
    for node in (N1, N3):
        with pytest.raises(JoinPendingError):
            await town.ask(node, *({N1, N2, N3} - {node}), begins=Begins.WITH_ALL)
    answer = town.calls.handlers[N3, "raft.join"]

    async def answer_late(sender: NodeId, payload: bytes) -> bytes:
        """N3 has filled N1, and has been restarted, since N1 was asked."""
        town.begin(N1, MemberAdmission(configuration=Configuration(voters=(N3,), learners=(N1,)), term=3, vote=N3))
        return await answer(sender, payload)

    town.calls.handlers[N3, "raft.join"] = answer_late
    with pytest.raises(JoinPendingError):
        await town.ask(N2, N1, N3, begins=Begins.WITH_ALL)


async def test_a_node_that_a_group_has_left_is_not_counted_on() -> None:
    """It would not begin: the others would wait for it, and vote in its name."""
    town = Town(N1, N2, N3)
    for node in (N1, N2, N3):
        with pytest.raises(JoinPendingError):
            await town.ask(node, *({N1, N2, N3} - {node}))
    town.joining[N3].forget(NAME)

    with pytest.raises(JoinPendingError):
        await town.ask(N1, N2, N3, begins=Begins.WITH_ALL)
    assert not town.joining[N3].is_waiting((NAME, INCARNATION))


async def test_a_group_that_is_deleted_while_its_node_asks_does_not_begin() -> None:
    town = Town(N1, N2)
    with pytest.raises(JoinPendingError):
        await town.ask(N2, N1)
    answer = town.calls.handlers[N2, "raft.recall"]

    async def answer_late(sender: NodeId, payload: bytes) -> bytes:
        town.joining[N1].forget(NAME)
        return await answer(sender, payload)

    town.calls.handlers[N2, "raft.recall"] = answer_late
    with pytest.raises(JoinPendingError):
        await town.ask(N1, N2, begins=Begins.WITH_ALL)
    assert not town.joining[N1].has_begun_empty(NAME)


@pytest.mark.parametrize("begins", [Begins.NEVER, Begins.AS_PAIR])
async def test_nothing_begins_anew_unless_the_caller_vouches_for_it(begins: Begins) -> None:
    town = Town(N1, N2)
    for node, other in ((N1, N2), (N2, N1)):
        with pytest.raises(JoinPendingError):
            await town.ask(node, other, begins=begins)


def change(town: Town, leader: NodeId, *voters: NodeId) -> None:
    """The leader of the group writes something in its term, then makes these its voters."""
    town.group(leader).propose(Proposal(kind=Kind.META, body=b"1"))
    town.lab.run(500 * MS)
    town.group(leader).change_members(Configuration(voters=voters))
    town.lab.run(500 * MS)


async def handed_over() -> Town:
    """A group that N1 had alone, and that N2 has alone now; N1 has forgotten it."""
    town = Town(N1, N2)
    town.found(N1)
    town.lab.link(N1, N2)
    change(town, N1, N1)
    town.begin(N2, await town.ask(N2, N1))
    change(town, N1, N1, N2)
    town.group(N1).transfer_leadership(N2)
    town.lab.run(500 * MS)
    change(town, N2, N2)
    town.lose(N1)
    return town


def when_alone(leading: Group) -> MemLog:
    """A log that is filled up to where N1 was the only voter."""
    found = leading.log.entries(1, leading.log.last_index, 1 << 20)
    end = next(place for place, entry in enumerate(found, 1) if entry.kind == Kind.RAFT_CONFIG)
    assert Configuration.decode(found[end - 1].frame[FRAME_HEADER_BYTES:]).voters == (N1,)
    log = MemLog()
    log.append(found[:end])
    return log


async def test_who_had_a_group_alone_before_does_not_lead_by_what_it_is_filled_with() -> None:
    town = await handed_over()
    admission = await town.ask(N1, N2)
    assert admission.configuration == Configuration(voters=(N2,), learners=(N1,))
    town.lab.unlink(N1, N2)  # it has come to where it was the only member
    town.begin(N1, admission, when_alone(town.group(N2)))
    town.lab.run(3000 * MS)
    assert (town.group(N1).is_leader, town.group(N1).term) == (False, admission.term)
    assert town.group(N1).configuration == admission.configuration
    town.lab.link(N1, N2)
    town.lab.run(3000 * MS)
    assert town.group(N1).commit_index == town.group(N2).commit_index


async def test_who_had_a_group_alone_before_does_not_lead_it_alone_as_one_of_a_pair() -> None:
    """N2 cannot lead without it, and cannot admit it: it comes back as a voter."""
    town = await handed_over()
    town.begin(N1, await town.ask(N1, N2))
    change(town, N2, N1, N2)
    town.lose(N1)
    town.lab.run(3000 * MS)
    admission = await town.ask(N1, N2, begins=Begins.AS_PAIR)
    assert admission.configuration == Configuration(voters=(N1, N2))
    town.lab.unlink(N1, N2)
    town.begin(N1, admission, when_alone(town.group(N2)))
    town.lab.run(3000 * MS)
    assert not town.group(N1).is_leader
    town.lab.link(N1, N2)
    town.lab.run(3000 * MS)
    assert town.group(N2).is_leader
    assert town.group(N1).commit_index == town.group(N2).commit_index


async def test_of_two_the_one_that_forgot_votes_for_the_one_that_did_not() -> None:
    town = Town(N1, N2)
    town.found(N1, N2)
    town.lose(N1)  # it led; the other cannot lead alone
    town.lab.run(2000 * MS)
    remembering = town.group(N2)
    assert not remembering.is_leader

    admission = await town.ask(N1, N2, begins=Begins.AS_PAIR)

    expected = MemberAdmission(
        configuration=Configuration(voters=(N1, N2)),
        term=remembering.term,
        settled=SettledUpTo(remembering.log.last_index, remembering.term),
    )
    assert admission == expected
    town.begin(N1, admission)
    town.lab.run(3000 * MS)
    assert remembering.is_leader
    assert town.group(N1).commit_index == remembering.commit_index


async def test_a_request_that_is_none_is_refused() -> None:
    town = Town(N1)
    for payload in (b"", b"\xc1", b"\x93\x01\x02\x03"):
        with pytest.raises(RemoteProtocolError):
            await town.calls.handlers[N1, "raft.join"](N2, payload)
