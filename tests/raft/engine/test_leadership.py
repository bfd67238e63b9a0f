from typing import Unpack

import pytest

from jetraft.raft.engine.leadership import NEARLY_CAUGHT_UP_ENTRIES, MembershipChangeRefusedError
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    ReadProbe,
    ReadProbeSeen,
    Resigned,
    Role,
    SnapshotOffer,
    TransferNow,
    VoteRequest,
)
from jetraft.raft.engine.port import Limits, Proposal, Timing
from jetraft.store.frames._frame import make_record, parse_header, records
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import NodeId
from tests.raft.rig import A, B, C, D, E, Rig, RigOptions, entries


def propose(rig: Rig, *bodies: bytes) -> None:
    rig.core.propose([Proposal(kind=Kind.META, body=body) for body in bodies])


def accepted(verified_index: int, term: int = 1, prev_index: int = 0) -> AppendAccepted:
    return AppendAccepted(term=term, prev_index=prev_index, verified_index=verified_index)


def leading_rig(**options: Unpack[RigOptions]) -> Rig:
    """A leader whose no-op is committed and whose peers are replicated to."""
    rig = Rig(**options).make_leader()
    rig.flush()
    rig.sync()
    for peer in rig.core.configuration.others(A):
        rig.step(peer, accepted(rig.log.last_index, rig.core.term))
    rig.flush()
    rig.sent()
    return rig


def test_a_leader_begins_with_a_no_op_of_its_term() -> None:
    rig = Rig(log=entries(1, 1), term=1).make_leader()
    assert [(entry.kind, entry.term) for entry in rig.log.entries(3, 3, 1)] == [(Kind.NOOP, 2)]


def test_only_a_leader_that_is_alone_gives_each_message_a_checksum_of_its_own() -> None:
    """Who has peers gets a damaged frame back from them; in memory, or encrypted, sums are of no use."""
    body = make_record(b"s", b"", b"one", ts_ns=1) + make_record(b"s", b"", b"two", ts_ns=1)
    batch = Proposal(kind=Kind.MESSAGES, first_seq=1, count=2, body=body)
    single = Proposal(kind=Kind.MESSAGES, first_seq=3, count=1, body=make_record(b"s", b"", b"three", ts_ns=1))
    for voters, learners, is_of_use, version in (
        ((A,), (), True, 2),
        ((A,), (), False, 1),
        ((A,), (B,), True, 1),
        ((A, B, C), (), True, 1),
    ):
        rig = leading_rig(voters=voters, learners=learners)
        rig.log.sums_records = is_of_use
        index = rig.core.propose([batch, single])
        frames = [entry.frame for entry in rig.log.entries(index, index + 1, 1 << 20)]
        assert [parse_header(frame).version for frame in frames] == [version, 1]
        assert [payload for frame in frames for *_, payload in records(frame)] == [b"one", b"two", b"three"]


def test_entries_of_older_terms_are_not_committed_by_counting() -> None:
    """Rule 16, figure 8 of the paper."""
    rig = Rig(log=entries(1, 1), term=1).make_leader()
    rig.sync()
    rig.step(B, accepted(2, term=2))
    assert rig.core.commit_index == 0
    rig.step(B, accepted(3, term=2))
    assert rig.core.commit_index == 3


def test_appends_leave_before_the_own_fsync() -> None:
    """Rule 3."""
    rig = leading_rig()
    propose(rig, b"x")
    rig.flush()
    assert [to for to, _ in rig.sent(Append)] == [B, C]


def test_the_own_entry_counts_when_it_is_durable() -> None:
    """Rule 4: of two voters both must have it, and one is the leader."""
    rig = leading_rig(voters=(A, B))
    propose(rig, b"x")
    rig.step(B, accepted(2))
    assert rig.core.commit_index == 1
    rig.sync()
    assert rig.core.commit_index == 2


def test_a_commit_beyond_the_own_disk_is_neither_applied_nor_told() -> None:
    """Rule 5: both followers may be faster than the leader's disk."""
    rig = leading_rig()
    propose(rig, b"x")
    rig.flush()
    rig.sent()
    rig.step(B, accepted(2))
    rig.step(C, accepted(2))
    rig.now_ns += Timing().commit_notice_ns
    rig.flush()
    assert (rig.core.commit_index, rig.core.applicable_index) == (2, 1)
    assert rig.sent(CommitNotice) == []
    rig.sync()
    rig.flush()
    assert [message.commit_index for _, message in rig.sent(CommitNotice)] == [2, 2]


@pytest.mark.parametrize("message", [accepted(2, term=0), accepted(2, term=2)])
def test_acknowledgements_of_other_terms_are_dropped(message: AppendAccepted) -> None:
    """Rule 12, hole 3 of the stock library."""
    rig = leading_rig()
    propose(rig, b"x")
    rig.sync()
    rig.step(B, message)
    assert rig.core.commit_index == 1


def test_acknowledgements_of_strangers_are_dropped() -> None:
    rig = leading_rig()
    propose(rig, b"x")
    rig.sync()
    rig.step(D, accepted(2))
    assert rig.core.commit_index == 1


def test_an_acknowledgement_counts_for_what_is_in_the_own_log_and_is_never_taken_back() -> None:
    """Rule 12: a peer that claims more, and an answer that comes late."""
    rig = leading_rig()
    propose(rig, b"x")
    rig.sync()
    rig.step(B, accepted(1000))
    (peer,) = [peer for peer in rig.core.peer_progress() if peer.node == B]
    assert (peer.match_index, rig.core.commit_index) == (2, 2)
    rig.step(B, accepted(1))
    (peer,) = [peer for peer in rig.core.peer_progress() if peer.node == B]
    assert (peer.match_index, rig.core.commit_index) == (2, 2)


def test_a_leader_tells_no_commit_index_before_its_state_is_complete() -> None:
    """More may be committed than it knows: a member that has applied what it was told would take itself for current."""
    rig = Rig(log=entries(1, 1, 1), term=1)
    rig.core.commit_index = 2
    rig.make_leader()
    rig.flush()
    rig.sync()
    assert {message.commit_index for _, message in rig.sent(Append)} == {0}
    rig.step(B, AppendAccepted(term=2, prev_index=3, verified_index=4))
    rig.flush()
    told = [message for to, message in rig.sent() if to == B]
    assert [getattr(message, "commit_index", 0) for message in told] == [4]


def test_learners_do_not_count() -> None:
    """Rule 29. As many learners as a majority of all needs."""
    rig = leading_rig(learners=(D, E))
    propose(rig, b"x")
    rig.sync()
    rig.step(D, accepted(2))
    rig.step(E, accepted(2))
    assert rig.core.commit_index == 1
    rig.step(B, accepted(2))
    assert rig.core.commit_index == 2


def test_many_proposals_of_a_turn_leave_in_one_append_per_peer() -> None:
    rig = leading_rig()
    propose(rig, b"1", b"2", b"3")
    rig.flush()
    assert [(to, len(message.entries)) for to, message in rig.sent(Append)] == [(B, 3), (C, 3)]


def test_nothing_is_sent_twice_in_a_session() -> None:
    """Rule 13, hole 12: an acknowledgement must not set the pipeline back."""
    rig = leading_rig()
    sent: list[int] = []
    for _ in range(5):
        propose(rig, b"x")
        rig.flush()
        sent += [entry.index for to, message in rig.sent(Append) if to == B for entry in message.entries]
    rig.step(B, accepted(3))
    rig.flush()
    assert sent == [2, 3, 4, 5, 6]
    assert rig.sent(Append) == []


def test_a_peer_is_paused_when_its_window_is_full() -> None:
    """Rule 15."""
    rig = leading_rig(limits=Limits(append_bytes_max=200, window_bytes=500))
    for _ in range(20):
        propose(rig, b"y" * 100)
        rig.flush()
    in_flight = [message for to, message in rig.sent(Append) if to == B]
    assert 3 <= len(in_flight) <= 5
    rig.step(B, accepted(in_flight[0].entries[-1].index))
    rig.flush()
    assert len([to for to, _ in rig.sent(Append) if to == B]) == 1


def test_a_reject_counts_only_for_the_outstanding_probe() -> None:
    """Rule 13; otherwise a diverged follower swings for ever (hole 11)."""
    rig = Rig(log=entries(1, 1, 1, 1), term=1).make_leader()
    rig.flush()
    rig.sync()
    probe = next(message for to, message in rig.sent(Append) if to == B)
    assert probe.prev_index == 4
    rig.step(B, AppendRejected(term=2, prev_index=2, hint_index=1))
    rig.flush()
    assert rig.sent(Append) == []
    rig.step(B, AppendRejected(term=2, prev_index=4, hint_index=2))
    rig.flush()
    assert [message.prev_index for to, message in rig.sent(Append) if to == B] == [1]


def test_an_old_reject_does_not_disturb_the_pipeline() -> None:
    rig = leading_rig()
    propose(rig, b"x")
    rig.flush()
    rig.sent()
    rig.step(B, AppendRejected(term=1, prev_index=0, hint_index=1))
    rig.flush()
    assert rig.sent(Append) == []


def test_a_new_session_is_probed_before_the_pipeline_continues() -> None:
    rig = leading_rig()
    propose(rig, b"x")
    rig.flush()
    rig.core.peer_down(B, rig.now_ns)
    rig.sent()
    rig.core.peer_up(B, rig.now_ns)
    rig.flush()
    [(to, probe)] = rig.sent(Append)
    assert (to, probe.prev_index) == (B, 2)
    rig.step(B, AppendRejected(term=1, prev_index=2, hint_index=2))
    rig.flush()
    [(_, again)] = rig.sent(Append)
    assert [entry.index for entry in again.entries] == [2]


def test_a_silent_probe_is_repeated_with_growing_pauses() -> None:
    rig = Rig().make_leader()
    rig.core.peer_down(C, rig.now_ns)
    rig.step(B, accepted(0))
    rig.core.peer_up(C, rig.now_ns)
    rig.flush()
    began_ns, pauses = rig.now_ns, []
    for _ in range(5):
        rig.sent()
        while not any(to == C for to, _ in rig.sent(Append)):
            rig.tick_at_deadline()
            rig.step(B, accepted(1))
            rig.flush()
        pauses.append(rig.now_ns - began_ns)
        began_ns = rig.now_ns
    assert pauses == sorted(pauses)
    assert pauses[-1] <= Timing().probe_retry_max_ns


def test_unacknowledged_entries_are_verified_again_after_a_while() -> None:
    rig = leading_rig()
    propose(rig, b"x")
    rig.flush()
    rig.sent()
    rig.now_ns += Timing().ack_timeout_ns
    rig.core.tick(rig.now_ns)
    rig.flush()
    assert {to for to, _ in rig.sent(Append)} == {B, C}


def test_an_idle_leader_waits_for_the_renewal_of_its_claim_only() -> None:
    rig = leading_rig()
    rig.now_ns += Timing().commit_notice_ns
    rig.flush()
    assert rig.core.deadline_ns is not None
    assert rig.core.deadline_ns - rig.now_ns > Timing().renewal_min_ns // 2


def test_a_peer_behind_the_log_is_offered_a_snapshot() -> None:
    rig = Rig(term=1)
    rig.log = rig.core.log = _trimmed(rig)
    rig.offer = SnapshotOffer(term=2, index=5, index_term=1, members=b"")
    rig.core.start(rig.now_ns)
    rig.make_leader()
    rig.flush()
    rig.sync()
    rig.step(B, AppendRejected(term=rig.core.term, prev_index=6, hint_index=1))
    rig.flush()
    assert (B, rig.offer) in rig.sent()
    rig.step(B, accepted(5, rig.core.term))
    rig.flush()
    assert [message.prev_index for to, message in rig.sent(Append) if to == B] == [5]


def _trimmed(rig: Rig) -> MemLog:
    log = MemLog(block_bytes=60, durable_on_submit=False)
    log.append(entries(1, 1, 1, 1, 1, 1))
    log.set_hard_state(rig.log.hard_state)
    log.submit()
    log.complete()
    log.save_checkpoint(5, 1, b"", b"")
    log.submit()
    log.complete()
    log.trim(2**63, 5)
    assert log.boundary[0] >= 4
    return log


@pytest.mark.parametrize("accepting", [(B,), (B, C)], ids=["committed with its own disk", "committed without it"])
def test_transfer_tells_the_target_when_it_has_everything_and_all_is_answered(accepting: tuple[NodeId, ...]) -> None:
    """Rule 20, and decision 92: of what is not durable here, this leader tells no publisher."""
    rig = leading_rig()
    propose(rig, b"x")
    rig.flush()
    assert rig.core.transfer(B, rig.now_ns)
    assert not rig.core.accepts_proposals
    rig.flush()
    assert rig.sent(TransferNow) == []
    for member in accepting:
        rig.step(member, accepted(2))
    rig.flush()
    assert rig.sent(TransferNow) == []
    rig.sync()
    rig.flush()
    assert rig.sent(TransferNow) == [(B, TransferNow(term=1))]


def test_a_transfer_waits_for_the_majority_beside_its_target() -> None:
    """Decision 92: what is not committed has no answer yet; three of five have it first."""
    rig = leading_rig(voters=(A, B, C, D, E))
    propose(rig, b"x")
    assert rig.core.transfer(B, rig.now_ns)
    rig.flush()
    rig.sync()
    rig.step(B, accepted(2))
    rig.flush()
    assert rig.sent(TransferNow) == []
    rig.step(C, accepted(2))
    rig.flush()
    assert rig.sent(TransferNow) == [(B, TransferNow(term=1))]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_leader_that_has_asked_another_to_lead_knows_it_afterwards(*, is_told: bool) -> None:
    """Decision 92: only then anybody fetches what it holds."""
    rig = leading_rig()
    propose(rig, b"x")
    assert rig.core.transfer(B, rig.now_ns)
    if is_told:
        rig.flush()
        rig.sync()
        rig.step(B, accepted(2))
        rig.flush()
    rig.step(B, VoteRequest(term=2, last_index=2, last_term=1, transfer=True))
    assert rig.core.role is Role.FOLLOWER
    assert rig.core.has_handed_over is is_told


def test_a_transfer_that_leads_nowhere_ends() -> None:
    rig = leading_rig()
    assert rig.core.transfer(None, rig.now_ns)
    rig.now_ns += Timing().transfer_ns
    rig.core.tick(rig.now_ns)
    assert rig.core.accepts_proposals


def test_a_transfer_to_a_member_that_is_removed_meanwhile_ends_too() -> None:
    """The leader that is left alone waits for nothing else (simulator, member seed 459)."""
    rig = leading_rig(voters=(A, B))
    assert rig.core.transfer(B, rig.now_ns)
    rig.core.change_members(Configuration(voters=(A,)), rig.now_ns)
    rig.sync()
    assert not rig.core.accepts_proposals
    rig.tick_at_deadline()
    assert rig.core.accepts_proposals
    assert rig.core.deadline_ns is None


def test_leadership_is_not_handed_to_a_node_that_is_away_or_a_learner() -> None:
    rig = leading_rig(learners=(D,))
    rig.core.peer_down(B, rig.now_ns)
    assert not rig.core.transfer(B, rig.now_ns)
    assert not rig.core.transfer(D, rig.now_ns)


def test_a_read_is_confirmed_by_contact_after_it_began() -> None:
    """Rule 21."""
    rig = leading_rig()
    number = rig.core.begin_read(rig.now_ns)
    assert [to for to, _ in rig.sent(ReadProbe)] == [B]
    assert rig.core.confirmed_read_round < number
    rig.step(B, ReadProbeSeen(term=1, round=number))
    assert rig.core.confirmed_read_round == number


def test_a_group_of_one_confirms_reads_itself() -> None:
    rig = leading_rig(voters=(A,))
    assert rig.core.begin_read(rig.now_ns) == rig.core.confirmed_read_round


def test_members_change_one_voter_at_a_time_after_a_caught_up_learner() -> None:
    """Rules 28, 29 and 31."""
    rig = leading_rig()
    with pytest.raises(MembershipChangeRefusedError, match="caught up"):
        rig.core.change_members(Configuration(voters=(A, B, C, D)), rig.now_ns)
    rig.core.change_members(Configuration(voters=(A, B, C), learners=(D,)), rig.now_ns)
    with pytest.raises(MembershipChangeRefusedError, match="not committed"):
        rig.core.change_members(Configuration(voters=(A, B, C)), rig.now_ns)
    rig.core.peer_up(D, rig.now_ns)
    rig.sync()
    for peer in (B, C, D):
        rig.step(peer, accepted(2))
    rig.core.change_members(Configuration(voters=(A, B, C, D)), rig.now_ns)
    assert rig.core.configuration.voters == (A, B, C, D)
    rig.sync()
    rig.step(B, accepted(3))
    assert rig.core.commit_index == 2, "two of four are no majority"
    rig.step(D, accepted(3))
    assert rig.core.commit_index == 3


def test_a_learner_that_is_far_behind_does_not_vote_yet() -> None:
    """Rule 29: the quorum would wait for it."""
    rig = leading_rig(learners=(D,))
    rig.core.peer_up(D, rig.now_ns)
    propose(rig, *[b"x"] * (NEARLY_CAUGHT_UP_ENTRIES + 1))
    rig.sync()
    last_index = rig.core.log.last_index
    rig.step(B, accepted(last_index))
    rig.step(D, accepted(last_index - NEARLY_CAUGHT_UP_ENTRIES - 1))
    with pytest.raises(MembershipChangeRefusedError, match=f"{D} has not caught up"):
        rig.core.change_members(Configuration(voters=(A, B, C, D)), rig.now_ns)
    rig.step(D, accepted(last_index - NEARLY_CAUGHT_UP_ENTRIES))
    rig.core.change_members(Configuration(voters=(A, B, C, D)), rig.now_ns)


def test_a_learner_votes_when_it_has_the_configuration_that_made_it_one() -> None:
    """Rule 30: before, it gives no vote."""
    rig = leading_rig()
    rig.core.change_members(Configuration(voters=(A, B, C), learners=(D,)), rig.now_ns)
    rig.core.peer_up(D, rig.now_ns)
    rig.sync()
    rig.step(B, accepted(2))
    rig.step(D, accepted(1))
    with pytest.raises(MembershipChangeRefusedError, match=f"{D} has not caught up"):
        rig.core.change_members(Configuration(voters=(A, B, C, D)), rig.now_ns)


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (Configuration(voters=(A,)), "one voter"),
        (Configuration(voters=(B, C)), "removed last"),
    ],
)
def test_impossible_changes_are_refused(configuration: Configuration, reason: str) -> None:
    rig = leading_rig()
    with pytest.raises(MembershipChangeRefusedError, match=reason):
        rig.core.change_members(configuration, rig.now_ns)


def test_nobody_is_removed_when_those_that_remain_are_no_majority() -> None:
    """Rule 32: with C away, A and B can commit; without B as well nobody could, for ever."""
    rig = leading_rig()
    rig.core.peer_down(C, rig.now_ns)
    with pytest.raises(MembershipChangeRefusedError, match="no majority in contact"):
        rig.core.change_members(Configuration(voters=(A, C)), rig.now_ns)
    with pytest.raises(MembershipChangeRefusedError, match="no majority in contact"):
        rig.core.change_members(Configuration(voters=(A, C), learners=(B,)), rig.now_ns)
    rig.core.change_members(Configuration(voters=(A, B)), rig.now_ns)
    assert rig.core.configuration.voters == (A, B), "who is away may go"


def test_a_change_waits_for_an_entry_of_the_own_term() -> None:
    rig = Rig().make_leader()
    with pytest.raises(MembershipChangeRefusedError, match="not committed"):
        rig.core.change_members(Configuration(voters=(A, B)), rig.now_ns)


def test_a_leader_that_has_nothing_to_find_out_writes_nothing() -> None:
    """All that it holds is known to be committed, so it holds all that ever was: idle groups fail over so."""
    rig = Rig(log=entries(1, 1, 1), term=1, commit_index=3).make_leader()
    assert (rig.log.last_index, rig.core.term_start_index) == (3, 3)
    rig.flush()
    assert {(to, message.prev_index, tuple(message.entries)) for to, message in rig.sent(Append)} == {
        (B, 3, ()),
        (C, 3, ()),
    }
    propose(rig, b"x")
    rig.sync()
    assert rig.core.commit_index == 3
    rig.step(B, AppendAccepted(term=2, prev_index=3, verified_index=4))
    assert rig.core.commit_index == 4


def test_a_leader_that_does_not_know_whether_all_is_committed_writes_a_no_op() -> None:
    rig = Rig(log=entries(1, 1, 1), term=1, commit_index=2).make_leader()
    assert (rig.log.last_index, rig.core.term_start_index) == (4, 4)


def test_a_change_of_members_waits_for_an_entry_of_the_own_term_and_asks_for_it() -> None:
    """Rule 28: else two leaders could change the members of one configuration, each by another majority."""
    rig = Rig(log=entries(1, 1, 1), term=1, commit_index=3, learners=(D,)).make_leader()
    wanted = Configuration(voters=(A, B, C))
    with pytest.raises(MembershipChangeRefusedError, match="beginning of this term"):
        rig.core.change_members(wanted, rig.now_ns)
    assert rig.log.last_index == 4
    with pytest.raises(MembershipChangeRefusedError, match="beginning of this term"):
        rig.core.change_members(wanted, rig.now_ns)
    assert rig.log.last_index == 4, "one no-op is enough"
    rig.sync()
    rig.step(B, AppendAccepted(term=2, prev_index=3, verified_index=4))
    assert rig.core.change_members(wanted, rig.now_ns) == 5


def test_who_is_removed_is_told_that_nobody_leads_it_any_more() -> None:
    """Should the change be rolled back, the others need its vote: it must not go on waiting for this leader."""
    rig = Rig(log=entries(1), term=1).make_leader()
    rig.sync()
    rig.step(B, AppendAccepted(term=2, prev_index=1, verified_index=2))
    rig.sent()
    rig.core.change_members(Configuration(voters=(A, B)), rig.now_ns)
    rig.sync()
    assert (C, Resigned(term=2)) in rig.sent(Resigned)
