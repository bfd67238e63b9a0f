"""Steps from one set of members to another: each safe, and all together they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.membership.reshape import Contact, HandOver, MembershipChange, Settled, Step, Wait, next_step
from jetraft.raft.engine.membership import Configuration
from jetraft.store.model.ids import NodeId

A, B, C, D, E = (NodeId(name) for name in "ABCDE")
ALL = frozenset((A, B, C, D, E))


def step(  # noqa: PLR0913  (a scene in letters)
    wanted: str, voters: str, learners: str = "", *, leader: str = "A", online: str = "ABCDE", current: str = "ABCDE"
) -> Step:
    now = Configuration(voters=map(NodeId, voters), learners=map(NodeId, learners))
    contact = Contact(online=set(map(NodeId, online)), current=set(map(NodeId, current)))
    return next_step(NodeId(leader), map(NodeId, wanted), now, contact)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (step("A", "A"), Settled()),
        (step("ABC", "A"), MembershipChange((A,), (B,))),
        (step("ABC", "A", "B", online="A", current="A"), MembershipChange((A,), (B, C))),
        (step("ABC", "A", "B", current="A"), Wait()),
        (step("ABC", "A", "B"), MembershipChange((A, B), ())),
        (step("ABC", "AB"), MembershipChange((A, B), (C,))),
        (step("AB", "ABC"), MembershipChange((A, B), ())),
        (step("AB", "ABCD", online="BD"), MembershipChange((A, B, D), ())),
        (step("A", "ABC", online="", current=""), Wait()),
        (step("AD", "AB"), MembershipChange((A, B), (D,))),
        (step("AD", "AB", "D", current="AB"), Wait()),
        (step("A", "A", "B"), MembershipChange((A,), ())),
        (step("B", "AB"), HandOver(B)),
        (step("B", "AB", current="A"), Wait()),
    ],
    ids=[
        "nothing to do",
        "a learner first",
        "a learner that does not answer holds up no other",
        "a learner has to catch up",
        "a learner that has caught up votes",
        "then the next learner",
        "one that should not be there goes",
        "of two that should go the one that is away goes first",
        "nobody goes while the rest has no majority in contact",
        "a replacement comes before the other goes",
        "and the other stays until it has caught up",
        "a learner that is not wanted any more goes",
        "the leader hands over before it goes",
        "but only to a member that has everything",
    ],
)
def test_the_next_step(found: Step, expected: Step) -> None:
    assert found == expected


members = st.frozensets(st.sampled_from(sorted(ALL)), min_size=1)


@given(voters=members, wanted=members, data=st.data())
def test_any_members_become_any_others_in_safe_steps(
    voters: frozenset[NodeId], wanted: frozenset[NodeId], data: st.DataObject
) -> None:
    leader = data.draw(st.sampled_from(sorted(voters)))
    now = Configuration(voters=voters)
    everybody = Contact(online=ALL, current=ALL)
    for _ in range(30):
        found = next_step(leader, wanted, now, everybody)
        match found:
            case Settled():
                break
            case HandOver(to):
                assert to in now.voters
                leader = to
            case MembershipChange(to_vote, to_learn):
                then = Configuration(voters=to_vote, learners=to_learn)
                assert now.differs_by_one_voter(then)
                assert leader in then.voters
                now = then
            case Wait():
                raise AssertionError("everybody is there")
    assert set(now.voters) == wanted
    assert not now.learners
