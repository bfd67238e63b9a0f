"""What a member wants done comes out as one value, once."""

from jetraft.raft.engine.messages import PreVoteRequest, Resigned, Role, TermNotice, VoteGrant, VoteRequest
from jetraft.raft.engine.ready import NOTHING, Standing
from tests.raft.rig import A, B, C, Rig


def test_nothing_to_do_is_always_the_same_object() -> None:
    rig = Rig()
    rig.core.take_ready()
    assert rig.core.take_ready() is NOTHING


def test_a_vote_is_said_with_the_token_that_it_waits_for() -> None:
    rig = Rig()
    rig.core.take_ready()
    rig.step(B, VoteRequest(term=1, last_index=0, last_term=0, transfer=False))
    ready = rig.core.take_ready()
    assert not ready.send_now
    assert ready.send_when_durable == [(rig.log.hard_state_token, B, VoteGrant(term=1))]
    assert ready.standing == Standing(role=Role.FOLLOWER, term=1, leader=None)
    assert rig.log.hard_state_token > rig.log.durable_token


def test_a_question_promises_nothing_and_leaves_now() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.tick_at_deadline()
    ready = rig.core.take_ready()
    assert [to for to, message in ready.send_now if isinstance(message, PreVoteRequest)] == [B, C]
    assert not ready.send_when_durable


def test_a_higher_term_voids_a_promise_that_was_not_taken_yet() -> None:
    rig = Rig()
    rig.step(B, VoteRequest(term=1, last_index=0, last_term=0, transfer=False))
    rig.step(C, TermNotice(term=2))
    ready = rig.core.take_ready()
    assert (ready.voids_held, ready.send_when_durable) == (True, [])


def test_a_leader_that_resigns_says_so_at_once_and_promises_nothing_more() -> None:
    rig = Rig().make_leader()
    rig.core.take_ready()
    rig.core.resign(rig.now_ns)
    ready = rig.core.take_ready()
    assert ready.standing == Standing(role=Role.FOLLOWER, term=1, leader=None)
    assert [(to, type(message)) for to, message in ready.send_now] == [(B, Resigned), (C, Resigned)]
    assert ready.voids_held


def test_standing_is_said_when_it_changes_only() -> None:
    rig = Rig().make_leader()
    assert rig.core.take_ready().standing == Standing(role=Role.LEADER, term=1, leader=A)
    rig.core.flush(rig.now_ns)
    assert rig.core.take_ready().standing is None
