"""Who goes on alone when too few members remember a group in memory, and who must not."""

from collections.abc import Mapping

import attrs
import pytest

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.port import Proposal
from jetraft.raft.mesh.rpc import PeerUnavailableError
from jetraft.raft.recovery.joining import Begins, JoinPendingError
from jetraft.raft.recovery.joining_messages import TERMS_SKIPPED
from jetraft.raft.recovery.survivor import Answer, Forgot, Remembers, survival
from jetraft.store.frames.format import Kind
from jetraft.store.model.ids import NodeId
from tests.raft.lab import MS
from tests.raft.recovery.test_joining import N1, N2, N3, N4, Town

N5 = NodeId("n5")
THREE = (N1, N2, N3)
GONE = Forgot(b"12345678", THREE)


def remembers(*voters: NodeId, learners: tuple[NodeId, ...] = (), last: tuple[int, int] = (3, 10)) -> Remembers:
    configuration = Configuration(voters=voters, learners=learners)
    return Remembers(leader=None, term=4, last_term=last[0], last_index=last[1], configuration=configuration)


MINE = remembers(*THREE)
ALONE: Mapping[NodeId, Answer] = {N1: MINE, N2: GONE, N3: GONE}


def test_the_only_one_of_three_that_remembers_goes_on_and_may_lack_what_the_others_had_acknowledged() -> None:
    found = survival(N1, ALONE)

    assert found is not None
    assert found.configuration == Configuration(voters=(N1,))
    assert found.term == 4 + TERMS_SKIPPED
    assert found.may_have_lost


def test_one_of_two_voters_has_taken_part_in_every_commit_whatever_the_learner_has() -> None:
    mine = remembers(N1, N2, learners=(N3,))
    learner = remembers(N1, N2, learners=(N3,), last=(3, 4))

    found = survival(N1, {N1: mine, N2: GONE, N3: learner})

    assert found is not None
    assert found.configuration == Configuration(voters=(N1,), learners=(N3,))
    assert not found.may_have_lost
    assert survival(N3, {N1: mine, N2: GONE, N3: learner}) is None, "it has less"


def test_an_empty_member_with_a_configuration_in_which_it_needs_the_vote_of_one_that_has_more_is_no_hindrance() -> None:
    mine, empty = remembers(N1, N3, learners=(N2,)), remembers(*THREE, last=(0, 0))

    found = survival(N1, {N1: mine, N2: empty, N3: GONE})

    assert found is not None
    assert found.configuration == Configuration(voters=(N1,), learners=(N2,))


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({N1: MINE, N2: GONE}, "one has not answered"),
        ({N1: MINE, N2: GONE, N3: Forgot(b"1", (*THREE, N4))}, "there is another that may be a member"),
        ({N1: MINE, N2: GONE, N3: attrs.evolve(MINE, last_index=9)}, "those that remember elect one of them"),
        ({N1: attrs.evolve(MINE, leader=N2), N2: GONE, N3: GONE}, "somebody leads"),
        ({N1: remembers(N1, N2), N2: Forgot(b"1", (N1, N2))}, "of two the other comes back as a voter"),
        ({N1: MINE, N2: MINE, N3: MINE}, "nobody has forgotten"),
        ({N1: GONE, N2: GONE, N3: GONE}, "all begin again"),
        (
            {N1: remembers(N1, N2, learners=(N3,)), N2: GONE, N3: remembers(N3, last=(1, 1))},
            "another, of an older configuration, may be elected by itself",
        ),
    ],
)
def test_nobody_goes_on_alone_when(answers: Mapping[NodeId, Answer], why: str) -> None:
    assert survival(N1, answers) is None, why


def test_of_two_that_remember_among_five_the_one_with_more_goes_on() -> None:
    five = (N1, N2, N3, N4, N5)
    gone = Forgot(b"1", five)
    less, more = remembers(*five, last=(3, 99)), remembers(*five, last=(4, 11))
    answers: Mapping[NodeId, Answer] = {N1: less, N2: more, N3: gone, N4: gone, N5: gone}

    assert survival(N1, answers) is None
    found = survival(N2, answers)
    assert found is not None
    assert found.configuration == Configuration(voters=(N2,), learners=(N1,))
    assert found.may_have_lost


# --- with groups


def lead_with_an_entry(town: Town) -> bytes:
    leader = town.found(*THREE)
    leader.propose(Proposal(kind=Kind.STREAM_OP, body=b"kept"))
    town.lab.run(500 * MS)
    return b"kept"


async def admitted(town: Town, node: NodeId) -> None:
    """Ask until the survivor, which has to be elected first, admits the node."""
    for _ in range(20):
        try:
            town.begin(node, await town.ask(node, *(other for other in THREE if other != node), begins=Begins.WITH_ALL))
        except JoinPendingError:
            town.lab.run(300 * MS)
        else:
            town.lab.run(1000 * MS)
            return
    raise AssertionError(f"{node} was never admitted")


async def test_the_survivor_leads_again_and_fills_the_others() -> None:
    town = Town(*THREE)
    kept = lead_with_an_entry(town)
    town.lose(N2)
    town.lose(N3)
    town.lab.run(2000 * MS)
    with pytest.raises(JoinPendingError):  # N3 is not waiting yet: it may remember
        await town.ask(N2, N1, N3, begins=Begins.WITH_ALL)
    assert not town.group(N1).is_leader

    with pytest.raises(JoinPendingError):
        await town.ask(N3, N1, N2, begins=Begins.WITH_ALL)
    assert town.forgotten == [town.group(N1).group_id]
    await admitted(town, N2)
    await admitted(town, N3)

    assert town.group(N1).is_leader
    assert town.group(N1).term > TERMS_SKIPPED
    for node in (N2, N3):
        assert kept in town.lab.managers[node].groups[town.group(N1).group_id].machine.bodies  # type: ignore[attr-defined]


async def test_a_member_that_does_not_answer_holds_the_survivor_back() -> None:
    town = Town(*THREE)
    lead_with_an_entry(town)
    town.lose(N2)
    town.lose(N3)
    town.calls.away.add(N3)
    town.lab.run(2000 * MS)

    for _ in range(3):
        with pytest.raises(JoinPendingError):
            await town.ask(N2, N1, N3, begins=Begins.WITH_ALL)

    town.lab.run(2000 * MS)
    assert not town.group(N1).is_leader


async def test_what_changes_between_the_two_rounds_holds_the_survivor_back() -> None:
    town = Town(*THREE)
    lead_with_an_entry(town)
    town.lose(N2)
    town.lose(N3)
    town.lab.run(2000 * MS)  # it gives up: no majority is in contact
    with pytest.raises(JoinPendingError):
        await town.ask(N2, N1, N3, begins=Begins.WITH_ALL)
    recall, answered = town.calls.handlers[N3, "raft.recall"], []

    async def recall_once(sender: NodeId, payload: bytes) -> bytes:
        """N3 is another process when it is asked again."""
        answered.append(sender)
        if len(answered) == 2:
            town.lose(N3)
            raise PeerUnavailableError(N3)
        return await recall(sender, payload)

    town.calls.handlers[N3, "raft.recall"] = recall_once
    with pytest.raises(JoinPendingError):
        await town.ask(N3, N1, N2, begins=Begins.WITH_ALL)
    town.lab.run(2000 * MS)
    assert answered == [N1, N1]
    assert not town.group(N1).is_leader
