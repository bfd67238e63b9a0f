import attrs
import pytest

from jetraft.raft.engine import elections
from jetraft.raft.engine.membership import SettledUpTo
from jetraft.raft.engine.messages import (
    Append,
    PreVoteGrant,
    PreVoteRequest,
    Resigned,
    Role,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)
from jetraft.raft.engine.port import Proposal, Timing
from jetraft.store.frames.format import Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState
from tests.raft.rig import A, B, C, D, Rig, entries, role_of


def heartbeat(term: int) -> Append:
    return Append(term=term, prev_index=0, prev_term=0, commit_index=0, entries=())


def vote_request(term: int, last_index: int = 0, last_term: int = 0, *, transfer: bool = False) -> VoteRequest:
    return VoteRequest(term=term, last_index=last_index, last_term=last_term, transfer=transfer)


def wait_ns(rig: Rig) -> int:
    assert rig.core.deadline_ns is not None
    return rig.core.deadline_ns - rig.now_ns


def test_an_election_begins_within_the_election_time() -> None:
    rig, timing = Rig(), Timing()
    rig.core.up.clear()
    rig.core.start(rig.now_ns)
    assert timing.election_min_ns <= wait_ns(rig) <= timing.election_max_ns


def test_it_begins_sooner_when_nobody_is_known_to_lead_and_a_majority_can_be_asked() -> None:
    """All servers of a cluster were started again: the first two that see each other need not wait."""
    rig, timing = Rig(), Timing()
    rig.core.up.clear()
    rig.core.start(rig.now_ns)
    rig.core.peer_up(B, rig.now_ns)
    assert 0 <= wait_ns(rig) < timing.failover_spread_ns


def test_who_follows_a_leader_is_not_made_restless_by_another_link() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.step(B, heartbeat(1))
    rig.sync()
    before_ns = wait_ns(rig)
    assert before_ns >= Timing().lease_min_ns
    rig.core.peer_up(C, rig.now_ns)
    assert wait_ns(rig) == before_ns


def test_the_preferred_leader_of_a_fresh_group_asks_at_once() -> None:
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    assert [to for to, _ in rig.sent(PreVoteRequest)] == [B, C]


def test_the_preferred_leader_of_an_old_group_waits_like_others() -> None:
    rig = Rig(eager=True, log=entries(1), term=1)
    rig.core.start(rig.now_ns)
    assert rig.sent() == []


def test_a_pre_vote_changes_nothing_at_the_voter() -> None:
    rig = Rig(term=3)
    rig.core.start(rig.now_ns)
    rig.step(B, PreVoteRequest(term=4, last_index=0, last_term=0))
    assert rig.sent() == [(B, PreVoteGrant(term=4))]
    assert (rig.core.term, rig.core.vote) == (3, None)


def test_a_pre_vote_without_majority_leaves_the_term_alone() -> None:
    """Rule 18: a node that comes back alone does not raise the term."""
    rig = Rig(term=3)
    rig.core.start(rig.now_ns)
    for _ in range(20):
        rig.tick_at_deadline()
    assert rig.core.term == 3


def test_vote_requests_are_repeated_to_silent_voters() -> None:
    """A peer may create its replica a moment later than the candidate asked."""
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    rig.sent()
    rig.tick_at_deadline()
    assert [to for to, _ in rig.sent(PreVoteRequest)] == [B, C]


def test_a_real_election_waits_for_the_durable_own_term_and_vote() -> None:
    """Rules 2 and 4."""
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    rig.step(B, PreVoteGrant(term=1))
    assert role_of(rig) is Role.CANDIDATE
    assert rig.sent(VoteRequest) == []
    rig.step(B, VoteGrant(term=1))
    assert role_of(rig) is Role.CANDIDATE, "one of three: the own vote is not durable yet"
    rig.sync()
    assert [to for to, _ in rig.sent(VoteRequest)] == [B, C]
    assert role_of(rig) is Role.LEADER


def test_one_voter_delivered_twice_counts_once() -> None:
    """Rule 17, hole 4 of the stock library."""
    rig = Rig(voters=(A, B, C, D, *"E"), eager=True)
    rig.core.start(rig.now_ns)
    for voter in (B, C, D):
        rig.step(voter, PreVoteGrant(term=1))
    rig.sync()
    rig.step(B, VoteGrant(term=1))
    rig.step(B, VoteGrant(term=1))
    assert role_of(rig) is Role.CANDIDATE
    rig.step(C, VoteGrant(term=1))
    assert role_of(rig) is Role.LEADER


@pytest.mark.parametrize("grant", [VoteGrant(term=2), PreVoteGrant(term=1)])
def test_votes_of_another_term_or_kind_do_not_count(grant: VoteGrant | PreVoteGrant) -> None:
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    rig.step(B, PreVoteGrant(term=1))
    rig.sync()
    rig.step(B, grant)
    assert rig.core.role is Role.CANDIDATE


def test_a_vote_of_a_stranger_does_not_count() -> None:
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    rig.step(D, PreVoteGrant(term=1))
    assert rig.core.role is Role.FOLLOWER


def test_a_group_of_one_leads_as_soon_as_its_vote_is_durable() -> None:
    rig = Rig(voters=(A,), term=4)
    rig.core.start(rig.now_ns)
    assert role_of(rig) is Role.CANDIDATE
    rig.sync()
    assert role_of(rig) is Role.LEADER
    assert rig.log.hard_state == HardState(term=5, vote=A)


def test_the_only_member_of_an_empty_group_leads_at_once_and_writes_no_no_op() -> None:
    """What it appends is durable with its vote, or not at all; and nothing of it counts before (decision 116)."""
    rig = Rig(voters=(A,))
    rig.core.start(rig.now_ns)
    assert role_of(rig) is Role.LEADER
    assert (rig.log.last_index, rig.core.term_start_index) == (0, 0)
    rig.core.propose([Proposal(kind=Kind.META, body=b"first")])
    assert (rig.core.applicable_index, rig.log.durable_token) == (0, 0)
    rig.sync()
    assert rig.core.applicable_index == 1
    assert rig.log.hard_state == HardState(term=1, vote=A)


def test_an_empty_group_with_a_learner_has_a_leader_when_the_vote_is_durable() -> None:
    rig = Rig(voters=(A,), learners=(B,))
    rig.core.start(rig.now_ns)
    assert role_of(rig) is Role.CANDIDATE
    rig.sync()
    assert role_of(rig) is Role.LEADER


def test_one_vote_per_term() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.step(B, vote_request(1))
    rig.step(C, vote_request(1))
    rig.sync()
    assert rig.sent(VoteGrant) == [(B, VoteGrant(term=1))]


def test_a_vote_leaves_when_it_is_durable() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.step(B, vote_request(1))
    assert rig.sent() == []
    rig.sync()
    assert rig.sent() == [(B, VoteGrant(term=1))]
    assert rig.log.hard_state == HardState(term=1, vote=B)


def test_a_vote_is_remembered_over_a_restart() -> None:
    rig = Rig(term=1, vote=B)
    rig.core.start(rig.now_ns)
    rig.step(C, vote_request(1))
    rig.sync()
    assert rig.sent(VoteGrant) == []


def test_a_repeated_request_of_the_same_candidate_is_granted_again() -> None:
    rig = Rig(term=1, vote=B)
    rig.core.start(rig.now_ns)
    rig.step(B, vote_request(1))
    assert rig.sent(VoteGrant) == [(B, VoteGrant(term=1))]


@pytest.mark.parametrize(("last_index", "last_term"), [(2, 2), (9, 1)])
def test_no_vote_for_a_log_that_ends_earlier(last_index: int, last_term: int) -> None:
    rig = Rig(log=entries(1, 2, 2), term=2)
    rig.core.start(rig.now_ns)
    rig.step(B, vote_request(3, last_index, last_term))
    rig.step(C, PreVoteRequest(term=4, last_index=last_index, last_term=last_term))
    rig.sync()
    assert rig.sent() == []
    assert rig.core.term == 3, "the higher term is taken over all the same"


def test_votes_are_refused_while_a_leader_claims_the_group() -> None:
    """Rule 18: a node that cannot hear the leader does not unseat it."""
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.sync()
    rig.sent()
    rig.step(C, PreVoteRequest(term=2, last_index=9, last_term=9))
    rig.step(C, vote_request(2, 9, 9))
    assert rig.sent() == []
    assert rig.core.term == 1


def test_a_transfer_election_is_served_although_a_leader_is_alive() -> None:
    """Rule 20."""
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.step(C, vote_request(2, 9, 9, transfer=True))
    rig.sync()
    assert (C, VoteGrant(term=2)) in rig.sent()


def test_the_claim_ends_with_the_link() -> None:
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.sync()
    assert wait_ns(rig) >= Timing().lease_min_ns, "an idle follower waits for the end of a long lease only"
    rig.core.peer_down(B, rig.now_ns)
    assert rig.core.deadline_ns is not None
    assert rig.core.deadline_ns - rig.now_ns <= 2 * Timing().failover_spread_ns
    rig.step(C, PreVoteRequest(term=2, last_index=0, last_term=0))
    rig.sync()
    assert (C, PreVoteGrant(term=2)) in rig.sent()


def test_the_claim_ends_when_the_leader_resigns() -> None:
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.step(B, Resigned(term=1))
    assert rig.core.leader is None
    assert rig.core.deadline_ns is not None


def test_the_claim_ends_when_the_leader_itself_asks_for_votes() -> None:
    """A late append of an old session could otherwise leave a claim that nobody ends."""
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.step(B, PreVoteRequest(term=2, last_index=0, last_term=0))
    assert rig.core.deadline_ns is not None


def test_a_late_append_of_a_dead_session_does_not_stop_the_timer() -> None:
    rig = Rig(term=1)
    rig.core.start(rig.now_ns)
    rig.core.peer_down(B, rig.now_ns)
    rig.step(B, heartbeat(1))
    assert rig.core.deadline_ns is not None


def test_old_terms_are_answered_with_the_own_term() -> None:
    """Rule 8, for every request."""
    rig = Rig(term=5)
    rig.step(B, heartbeat(4))
    rig.step(B, vote_request(4, 9, 9))
    rig.step(B, PreVoteRequest(term=5, last_index=9, last_term=9))
    assert rig.sent() == [(B, TermNotice(term=5))] * 3


def test_a_leader_that_hears_of_a_higher_term_resigns() -> None:
    rig = Rig().make_leader()
    rig.sent()
    rig.step(B, TermNotice(term=7))
    assert (rig.core.role, rig.core.term, rig.core.vote) == (Role.FOLLOWER, 7, None)
    assert rig.sent(Resigned) == [(B, Resigned(term=1)), (C, Resigned(term=1))]


def test_a_leader_without_contact_to_a_majority_steps_down_after_a_second() -> None:
    """Rule 19."""
    rig = Rig().make_leader()
    rig.core.peer_down(B, rig.now_ns)
    rig.core.peer_down(C, rig.now_ns)
    lost_ns = rig.now_ns
    while rig.core.role is Role.LEADER:
        rig.tick_at_deadline()
    assert rig.now_ns - lost_ns == Timing().quorum_check_ns


def test_transfer_is_accepted_from_the_current_leader_only() -> None:
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.step(C, TransferNow(term=1))
    assert rig.core.role is Role.FOLLOWER
    rig.step(B, TransferNow(term=1))
    assert (rig.core.role, rig.core.term) == (Role.CANDIDATE, 2)


def test_a_leader_knows_who_has_asked_it_to_lead() -> None:
    """Decision 92: it fetches what that one holds. Who was elected because of silence owes nothing to anyone."""
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.step(B, TransferNow(term=1))
    rig.sync()
    rig.step(C, VoteGrant(term=2))
    assert (rig.core.role, rig.core.handed_by) == (Role.LEADER, B)

    rig.step(C, heartbeat(3))
    elections.stand(rig.core, rig.now_ns, transfer=False)
    rig.sync()
    rig.step(C, VoteGrant(term=4))
    assert (rig.core.role, rig.core.handed_by) == (Role.LEADER, None)


def test_a_learner_never_stands_for_election() -> None:
    """Rule 29."""
    rig = Rig(voters=(B, C), learners=(A,))
    rig.core.start(rig.now_ns)
    assert rig.core.deadline_ns is None
    rig.step(B, heartbeat(1))
    rig.core.peer_down(B, rig.now_ns)
    assert rig.core.deadline_ns is None


def test_a_learner_gives_no_vote_before_it_has_what_has_admitted_it() -> None:
    """Rule 30: D, which was away since A, B and D were the members, could win with what A has forgotten."""
    rig = Rig(voters=(B, C), learners=(A,), log=entries(1, 1), settled=SettledUpTo(3, 2))
    rig.core.start(rig.now_ns)
    rig.step(D, PreVoteRequest(term=2, last_index=2, last_term=1))
    rig.step(D, vote_request(2, 2, 1))
    rig.sync()
    assert rig.sent() == []
    rig.step(B, Append(term=2, prev_index=2, prev_term=1, commit_index=3, entries=entries(2, first=3)))
    rig.step(B, Resigned(term=2))
    rig.sync()
    rig.sent()
    rig.step(C, PreVoteRequest(term=3, last_index=3, last_term=2))
    rig.step(C, vote_request(3, 3, 2))
    rig.sync()
    assert rig.sent() == [(C, PreVoteGrant(term=3)), (C, VoteGrant(term=3))]


def test_votes_are_served_for_nodes_outside_the_configuration() -> None:
    """Rule 17: the own configuration may be an old one."""
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.step(D, vote_request(1))
    rig.sync()
    assert rig.sent(VoteGrant) == [(D, VoteGrant(term=1))]


def test_a_late_request_of_the_leaders_own_campaign_does_not_end_its_claim() -> None:
    """Simulator, member-chaos 2167: the request was of the election that the leader has won since."""
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.step(B, PreVoteRequest(term=1, last_index=0, last_term=0))
    assert rig.core.leader == B
    assert wait_ns(rig) >= Timing().lease_min_ns


def test_of_two_candidates_that_began_together_one_stands_back_for_a_moment() -> None:
    """Two that grant each other both stand, and split the votes."""
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    rig.sent()
    rig.step(B, PreVoteRequest(term=1, last_index=0, last_term=0))
    assert rig.sent(PreVoteGrant) == [(B, PreVoteGrant(term=1))], "B's name goes before ours"
    rig.step(NodeId("9"), PreVoteRequest(term=1, last_index=0, last_term=0))
    assert rig.sent(PreVoteGrant) == [], "ours goes before 9's"
    rig.now_ns += Timing().precedence_ns
    rig.step(NodeId("9"), PreVoteRequest(term=1, last_index=0, last_term=0))
    assert len(rig.sent(PreVoteGrant)) == 1, "it may be that only the other one reaches a majority"


def test_who_grants_a_pre_vote_waits_with_its_own_but_only_once() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    assert rig.core.deadline_ns is not None
    rig.now_ns = rig.core.deadline_ns - 1
    rig.step(B, PreVoteRequest(term=1, last_index=0, last_term=0))
    later_ns = rig.core.deadline_ns
    assert later_ns == rig.now_ns + Timing().precedence_ns
    rig.now_ns = later_ns - 1
    rig.step(B, PreVoteRequest(term=1, last_index=0, last_term=0))
    assert rig.core.deadline_ns == later_ns


def test_one_of_those_that_are_left_goes_first_and_another_in_each_group() -> None:
    """All that began within the same moment kept the disks busy for each other."""
    spread_ns, firsts = Timing().failover_spread_ns, 0
    for number in range(1, 41):
        rig = Rig(term=1, log=entries(1))
        rig.core.setup = attrs.evolve(rig.core.setup, incarnation=number)
        rig.step(B, heartbeat(1))
        rig.sync()
        rig.core.peer_down(B, rig.now_ns)
        is_first = wait_ns(rig) < spread_ns
        assert is_first or spread_ns <= wait_ns(rig) < 2 * spread_ns
        firsts += is_first
    assert 15 <= firsts <= 25


def test_who_is_left_alone_goes_first() -> None:
    rig = Rig(term=1)
    rig.step(B, heartbeat(1))
    rig.sync()
    rig.core.peer_down(C, rig.now_ns)
    rig.core.peer_down(B, rig.now_ns)
    assert wait_ns(rig) < Timing().failover_spread_ns


def test_who_has_more_than_the_one_that_asks_asks_instead() -> None:
    rig = Rig(term=1, log=entries(1, 1))
    rig.step(B, heartbeat(1))
    rig.sync()
    rig.core.peer_down(B, rig.now_ns)
    rig.step(C, PreVoteRequest(term=2, last_index=1, last_term=1))
    assert wait_ns(rig) == 0
    rig.tick_at_deadline()
    assert {to for to, _ in rig.sent(PreVoteRequest)} == {B, C}
    rig.step(C, PreVoteRequest(term=2, last_index=1, last_term=1))
    assert wait_ns(rig) > 0, "once, until it has an answer or its own time has come"


def test_who_would_rather_not_lead_stands_when_the_others_have_had_their_chance() -> None:
    rig, timing = Rig(), Timing()
    rig.core.start(rig.now_ns)
    rig.step(B, heartbeat(1))
    rig.sync()
    rig.core.reluctant = True
    rig.core.peer_down(B, rig.now_ns)
    assert timing.reluctance_ns <= wait_ns(rig) < timing.reluctance_ns + timing.failover_spread_ns
    rig.tick_at_deadline()
    assert [to for to, _ in rig.sent(PreVoteRequest)] == [B, C], "it may be the only one that can lead"


def test_who_would_rather_not_lead_gives_its_vote_as_ever() -> None:
    rig = Rig()
    rig.core.reluctant = True
    rig.core.start(rig.now_ns)
    rig.step(B, vote_request(1))
    rig.sync()
    assert rig.sent() == [(B, VoteGrant(term=1))]


def test_no_timer_runs_out_while_the_own_vote_is_not_durable() -> None:
    """Rule 41: with fsyncs slower than the timer each ballot was thrown away before it could be won."""
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    rig.step(B, PreVoteGrant(term=1))
    assert role_of(rig) is Role.CANDIDATE
    assert rig.core.deadline_ns is None
    rig.now_ns += 60_000_000_000
    rig.core.tick(rig.now_ns)
    assert rig.core.term == 1
    rig.sync()
    assert rig.sent(VoteRequest) == [(to, vote_request(1)) for to in (B, C)]
    assert wait_ns(rig) > 0
    rig.step(B, VoteGrant(term=1))
    assert role_of(rig) is Role.LEADER


def test_a_voter_waits_from_the_moment_at_which_its_vote_is_durable() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.step(B, vote_request(1))
    assert rig.core.deadline_ns is None
    rig.now_ns += 3_000_000_000
    rig.core.tick(rig.now_ns)
    rig.sync()
    assert rig.sent() == [(B, VoteGrant(term=1))]
    assert wait_ns(rig) >= 3_000_000_000, "the candidate's disk may be as slow"


def test_who_has_a_vote_on_its_way_to_disk_grants_no_pre_vote_of_the_next_term() -> None:
    """The candidate would throw away the ballot that this vote decides."""
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.step(B, vote_request(1))
    rig.step(B, PreVoteRequest(term=2, last_index=0, last_term=0))
    rig.step(C, PreVoteRequest(term=2, last_index=0, last_term=0))
    assert rig.sent() == []
    rig.sync()
    assert rig.sent() == [(B, VoteGrant(term=1))]
    rig.step(C, PreVoteRequest(term=2, last_index=0, last_term=0))
    assert rig.sent() == [(C, PreVoteGrant(term=2))]


def test_votes_of_the_present_term_count_while_the_next_one_is_asked_about() -> None:
    rig = Rig(eager=True)
    rig.core.start(rig.now_ns)
    rig.step(B, PreVoteGrant(term=1))
    rig.sync()
    while not rig.sent(PreVoteRequest) or rig.core.pre_ballot is None:
        rig.tick_at_deadline()
    assert rig.core.term == 1
    rig.step(B, VoteGrant(term=1))
    assert role_of(rig) is Role.LEADER


def test_a_vote_that_is_asked_for_again_is_held_once() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    for _ in range(3):
        rig.step(B, vote_request(1))
    rig.sync()
    assert rig.sent() == [(B, VoteGrant(term=1))]


def test_lost_ballots_are_followed_by_longer_and_longer_waits() -> None:
    rig, waits = Rig(eager=True), []
    rig.core.start(rig.now_ns)
    for _ in range(4):
        rig.step(B, PreVoteGrant(term=rig.core.term + 1))
        rig.sync()
        assert rig.core.ballot is not None
        began_ns = rig.now_ns
        while rig.core.pre_ballot is None:
            rig.tick_at_deadline()
        waits.append(rig.now_ns - began_ns)
    timing = Timing()
    assert all(
        timing.election_min_ns << lost <= wait <= timing.election_max_ns << lost for lost, wait in enumerate(waits)
    )
