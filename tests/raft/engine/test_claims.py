"""What a member believes of others without asking ends some time, whatever word it has missed (rule 41)."""

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Append, LeaderSeen, PreVoteGrant, PreVoteRequest, Removed, Resigned
from jetraft.raft.engine.port import Proposal, Timing
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.manager import CHANNEL_RAFT
from jetraft.raft.wire import encode
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import MS, Lab, ListMachine
from tests.raft.rig import Rig

A, B, C = (NodeId(name * 8) for name in "ABC")
NAME = GroupId("S-R3F-test0000")
SOON_NS = 3_000 * MS
FALLBACK_NS = Timing().lease_max_ns + SOON_NS


def lab_led_by_a() -> Lab:
    lab = Lab((A, B, C))
    lab.create(str(NAME), preferred=A)
    lab.run(2000 * MS)
    assert lab.leader_of() == A
    return lab


def member(lab: Lab, node: NodeId) -> Group:
    return lab.managers[node].groups[NAME]


def heartbeat(term: int) -> Append:
    return Append(term=term, prev_index=0, prev_term=0, commit_index=0, entries=())


def test_a_leader_that_falls_silent_inside_a_session_is_replaced() -> None:
    """Its `Resigned` was never sent or is lost; the links are up, and nobody else says that it is gone."""
    lab = lab_led_by_a()
    lab.managers[A].remove(NAME)
    for links in lab.links.values():
        assert links.is_up(B) or links.node_id == B
    lab.managers[A]._outgoing.clear()
    lab.run(FALLBACK_NS, 20 * MS)
    assert lab.leader_of_those((B, C), NAME) in {B, C}


def test_a_majority_elects_when_a_removal_is_rolled_back_whose_leader_lost_the_majority() -> None:
    """A appends that C is removed, and loses B: A and B cannot reach each other, C is not told and is needed."""
    lab = lab_led_by_a()
    member(lab, A).change_members(Configuration(voters=(A, B)))
    lab.managers[A].flush()
    lab.unlink(A, B)
    lab.run(SOON_NS + Timing().quorum_check_ns)
    assert lab.leader_of_those((B, C), NAME) in {B, C}


def test_it_does_so_too_when_the_word_to_the_removed_member_is_lost() -> None:
    lab = lab_led_by_a()
    member(lab, A).change_members(Configuration(voters=(A, B)))
    lab.managers[A].flush()
    lab.queue.clear()
    lab.unlink(A, B)
    lab.run(FALLBACK_NS, 20 * MS)
    assert lab.leader_of_those((B, C), NAME) in {B, C}


def test_a_learner_that_begins_again_inside_a_session_is_contacted() -> None:
    lab = lab_led_by_a()
    a = member(lab, A)
    a.change_members(Configuration(voters=(A, B), learners=(C,)))
    lab.run(500 * MS)
    a.propose(Proposal(kind=Kind.META, body=b"x"))
    lab.run(500 * MS)
    log = member(lab, C).log
    lab.managers[C].remove(NAME)
    lab.settle()
    lab.managers[C].create(GroupSpec(group_id=NAME, incarnation=7, members=(A, B, C)), log, ListMachine())
    lab.run(SOON_NS)
    c = member(lab, C)
    assert (c.leader, c.applied_index) == (A, a.commit_index)


def test_it_is_contacted_too_when_its_farewell_is_lost() -> None:
    lab = lab_led_by_a()
    a = member(lab, A)
    a.change_members(Configuration(voters=(A, B), learners=(C,)))
    lab.run(500 * MS)
    lab.managers[C].remove(NAME)
    lab.managers[C]._outgoing.clear()
    lab.managers[C].create(GroupSpec(group_id=NAME, incarnation=7, members=(A, B, C)), MemLog(), ListMachine())
    lab.run(Timing().renewal_max_ns + SOON_NS, 20 * MS)
    assert member(lab, C).leader == A


def test_a_member_that_has_not_answered_for_long_is_not_in_contact() -> None:
    """Two followers stop without a word inside their sessions: a leader that counts them would lead for ever."""
    lab = lab_led_by_a()
    for node in (B, C):
        lab.managers[node].remove(NAME)
        lab.managers[node]._outgoing.clear()
    lab.run(Timing().contact_lease_ns + Timing().renewal_max_ns + SOON_NS, 20 * MS)
    assert not member(lab, A).is_leader


def test_who_is_followed_in_a_term_that_it_does_not_lead_says_so() -> None:
    rig = Rig(term=4)
    rig.step(NodeId("B"), LeaderSeen(term=3))
    rig.step(NodeId("C"), LeaderSeen(term=4))
    assert rig.sent(Resigned) == [("B", Resigned(term=3)), ("C", Resigned(term=4))]


def test_a_late_word_of_a_leader_that_is_none_any_more_delays_an_election_by_a_moment() -> None:
    """Simulator, damage-snap 5155: the log of the old leader waited for others, who waited for its lease to end."""
    lab = lab_led_by_a()
    term = member(lab, A).term
    lab.managers[A].remove(NAME)
    lab.settle()
    for node in (B, C):
        late = encode(NAME.encode(), 7, heartbeat(term))
        lab.links[node].handlers[CHANNEL_RAFT](A, memoryview(b"".join(late)))
        assert member(lab, node).leader == A
    lab.run(SOON_NS)
    assert lab.leader_of_those((B, C), NAME) in {B, C}


def test_a_removed_member_is_told_and_asks_slowly_from_then_on() -> None:
    lab = lab_led_by_a()
    member(lab, A).change_members(Configuration(voters=(A, B)))
    lab.run(SOON_NS)
    before = lab.managers[C].statistics().messages_sent
    lab.run(60_000 * MS, 20 * MS)
    assert lab.leader_of_those((A, B), NAME) == A
    assert lab.managers[C].statistics().messages_sent - before <= 30


def test_a_healthy_idle_group_keeps_its_leader_and_its_term() -> None:
    lab = lab_led_by_a()
    term = member(lab, A).term
    lab.run(300_000 * MS, 50 * MS)
    assert lab.leader_of() == A
    assert member(lab, A).term == term


def test_who_doubts_asks_before_it_gives_the_leader_up() -> None:
    rig = Rig(term=1)
    rig.step(NodeId("B"), heartbeat(1))
    rig.sync()
    rig.sent()
    rig.tick_at_deadline()
    assert {to for to, _ in rig.sent(PreVoteRequest)} == {"B", "C"}
    assert rig.core.claimed, "the leader may be there all the same"
    rig.step(NodeId("B"), heartbeat(1))
    assert rig.core.deadline_ns is not None
    assert rig.core.deadline_ns - rig.now_ns >= Timing().lease_min_ns


def test_who_doubts_in_vain_grants_others_what_they_ask_for() -> None:
    """Else two that both wait for a leader that is gone refuse each other for ever."""
    rig = Rig(term=1)
    rig.step(NodeId("B"), heartbeat(1))
    rig.sync()
    rig.sent()
    rig.tick_at_deadline()
    while rig.core.claimed:
        rig.tick_at_deadline()
    rig.now_ns += Timing().precedence_ns
    rig.sent()
    rig.step(NodeId("C"), PreVoteRequest(term=2, last_index=0, last_term=0))
    assert (NodeId("C"), PreVoteGrant(term=2)) in rig.sent()


def test_old_news_of_a_removal_silences_nobody_who_follows_a_leader() -> None:
    rig = Rig(term=1)
    rig.step(NodeId("B"), heartbeat(1))
    rig.step(NodeId("B"), Removed(term=1))
    assert rig.core.claimed
    rig.step(NodeId("B"), Resigned(term=1))
    rig.sync()
    assert rig.core.deadline_ns is not None
    assert rig.core.deadline_ns - rig.now_ns <= Timing().election_max_ns
