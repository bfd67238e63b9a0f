"""Whom a leader asks before it answers a read, and when it asks others (rule 21)."""

from jetraft.raft.engine.messages import ReadProbe, ReadProbeSeen, TermNotice
from jetraft.raft.engine.read_rounds import RETRY_NS
from jetraft.store.model.ids import NodeId
from tests.raft.engine.test_leadership import leading_rig
from tests.raft.rig import A, B, C, D, E, Rig


def asked(rig: Rig) -> list[NodeId]:
    return [to for to, _ in rig.sent(ReadProbe)]


def test_a_round_asks_as_many_as_make_a_majority_with_the_leader() -> None:
    for voters, count in (((A, B), 1), ((A, B, C), 1), ((A, B, C, D), 2), ((A, B, C, D, E), 2)):
        rig = leading_rig(voters=voters)
        number = rig.core.begin_read(rig.now_ns)
        first = asked(rig)
        assert len(first) == count
        for node in first:
            assert rig.core.confirmed_read_round < number
            rig.step(node, ReadProbeSeen(term=1, round=number))
        assert rig.core.confirmed_read_round == number


def test_a_round_asks_the_member_that_was_heard_last_and_no_learner() -> None:
    rig = leading_rig(learners=(D,))
    for node in (B, C, D):
        rig.now_ns += 1
        rig.step(node, ReadProbeSeen(term=1, round=0))
    rig.core.begin_read(rig.now_ns)
    assert asked(rig) == [C]


def test_a_round_asks_nobody_without_a_link_while_another_can_be_asked() -> None:
    rig = leading_rig()
    rig.core.peer_down(B, rig.now_ns)
    rig.core.begin_read(rig.now_ns)
    assert asked(rig) == [C]


def test_everybody_is_asked_when_who_was_asked_is_silent() -> None:
    rig = leading_rig()
    number = rig.core.begin_read(rig.now_ns)
    assert asked(rig) == [B]
    assert rig.core.deadline_ns == rig.now_ns + RETRY_NS
    rig.tick_at_deadline()
    assert asked(rig) == [B, C]
    rig.step(C, ReadProbeSeen(term=1, round=number))
    assert rig.core.confirmed_read_round == number
    rig.tick_at_deadline()
    assert asked(rig) == []
    assert rig.core.deadline_ns is not None
    assert rig.core.deadline_ns > rig.now_ns + RETRY_NS  # nothing of a round is due any more


def test_everybody_is_asked_when_the_link_to_who_was_asked_ends() -> None:
    rig = leading_rig()
    number = rig.core.begin_read(rig.now_ns)
    asked(rig)
    rig.core.peer_down(B, rig.now_ns)
    assert rig.core.deadline_ns == rig.now_ns
    rig.tick_at_deadline()
    assert C in asked(rig)
    rig.step(C, ReadProbeSeen(term=1, round=number))
    assert rig.core.confirmed_read_round == number


def test_an_answer_to_an_earlier_round_confirms_no_later_one() -> None:
    rig = leading_rig()
    earlier = rig.core.begin_read(rig.now_ns)
    later = rig.core.begin_read(rig.now_ns)
    rig.step(B, ReadProbeSeen(term=1, round=earlier))
    assert rig.core.confirmed_read_round == earlier < later
    rig.step(B, ReadProbeSeen(term=1, round=later + 5))  # no answer confirms what was not asked
    assert rig.core.confirmed_read_round == later
    assert rig.core.begin_read(rig.now_ns) == later + 1 > rig.core.confirmed_read_round


def test_who_is_asked_and_knows_a_later_term_ends_the_leadership() -> None:
    rig = leading_rig()
    rig.core.begin_read(rig.now_ns)
    rig.step(B, TermNotice(term=2))
    assert rig.core.leadership is None
    assert rig.core.confirmed_read_round == 0
