from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    LeaderSeen,
    ReadProbe,
    ReadProbeSeen,
    Role,
    SnapshotOffer,
    VoteGrant,
    VoteRequest,
)
from jetraft.store.frames.format import Kind
from jetraft.store.port import Entry
from tests.raft.rig import A, B, C, Rig, entries, entry


def append(term: int, prev_index: int, prev_term: int, new: list[Entry], commit_index: int = 0) -> Append:
    return Append(term=term, prev_index=prev_index, prev_term=prev_term, commit_index=commit_index, entries=new)


def test_an_acknowledgement_leaves_when_the_entries_are_durable() -> None:
    """Rule 2."""
    rig = Rig(term=1)
    rig.step(B, append(1, 0, 0, entries(1, 1)))
    assert rig.sent() == [(B, LeaderSeen(term=1))]
    rig.sync()
    assert rig.sent() == [(B, AppendAccepted(term=1, prev_index=0, verified_index=2))]


def test_what_is_acknowledged_is_what_was_verified_not_the_own_end() -> None:
    """Rule 10."""
    rig = Rig(log=entries(1, 1, 1, 1), term=1)
    rig.step(B, append(2, 2, 1, []))
    rig.sync()
    assert rig.sent(AppendAccepted) == [(B, AppendAccepted(term=2, prev_index=2, verified_index=2))]


def test_the_commit_index_never_exceeds_what_was_verified() -> None:
    """Rule 10; hole 7 of the stock library, the worst one."""
    rig = Rig(log=entries(1, 1, 1, 1), term=1)
    rig.step(B, append(2, 2, 1, [], commit_index=4))
    assert rig.core.commit_index == 2
    rig.step(B, CommitNotice(term=2, commit_index=4))
    assert rig.core.commit_index == 2


def test_verification_by_one_leader_does_not_serve_the_next() -> None:
    rig = Rig(term=1)
    rig.step(B, append(1, 0, 0, entries(1, 1, 1)))
    rig.step(C, append(2, 1, 1, [], commit_index=3))
    assert rig.core.commit_index == 1


def test_a_commit_notice_commits_what_this_leader_sent() -> None:
    rig = Rig(term=1)
    rig.step(B, append(1, 0, 0, entries(1, 1, 1)))
    rig.step(B, CommitNotice(term=1, commit_index=2))
    assert rig.core.commit_index == 2
    assert rig.core.applicable_index == 0, "nothing is durable yet (rule 5)"
    rig.sync()
    assert rig.core.applicable_index == 2


def test_the_commit_index_never_goes_back() -> None:
    rig = Rig(term=1)
    rig.step(B, append(1, 0, 0, entries(1, 1, 1), commit_index=3))
    rig.step(B, append(1, 0, 0, entries(1), commit_index=1))
    assert rig.core.commit_index == 3


def test_a_gap_is_rejected_with_term_and_position() -> None:
    rig = Rig(term=1)
    rig.step(B, append(1, 7, 1, entries(1, first=8)))
    rig.sync()
    assert rig.sent(AppendRejected) == [(B, AppendRejected(term=1, prev_index=7, hint_index=1))]


def test_promises_of_an_older_term_are_not_sent() -> None:
    """An acknowledgement that waited for its fsync while the term moved on is void."""
    rig = Rig(term=1)
    rig.step(B, append(1, 0, 0, entries(1)))
    rig.core.peer_down(B, rig.now_ns)
    rig.step(C, VoteRequest(term=2, last_index=1, last_term=1, transfer=False))
    rig.sync()
    assert rig.sent(AppendAccepted) == []
    rig.step(C, VoteRequest(term=2, last_index=1, last_term=1, transfer=False))
    assert rig.sent(VoteGrant)[0] == (C, VoteGrant(term=2))


def test_a_candidate_follows_the_leader_of_its_term() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.tick_at_deadline()
    rig.step(B, append(5, 0, 0, entries(5)))
    assert (rig.core.role, rig.core.leader, rig.core.term) == (Role.FOLLOWER, B, 5)


def test_a_configuration_is_in_force_when_appended_and_rolled_back_when_cut() -> None:
    """Rule 27."""
    rig = Rig(term=1)
    wider = Configuration(voters=(A, B, C, *"D"))
    rig.step(B, append(1, 0, 0, [*entries(1), entry(2, 1, wider.encode(), Kind.RAFT_CONFIG)]))
    assert rig.core.configuration == wider
    rig.step(C, append(2, 1, 1, entries(2, first=2)))
    assert rig.core.configuration == Configuration(voters=(A, B, C))


def test_a_member_that_is_removed_stops_standing_for_election() -> None:
    rig = Rig(term=1)
    rig.core.start(rig.now_ns)
    rig.core.peer_down(B, rig.now_ns)
    smaller = Configuration(voters=(B, C))
    rig.step(B, append(1, 0, 0, [entry(1, 1, smaller.encode(), Kind.RAFT_CONFIG)]))
    assert rig.core.deadline_ns is None


def test_a_read_probe_is_answered_with_its_round() -> None:
    rig = Rig(term=1)
    rig.step(B, ReadProbe(term=1, round=3))
    assert rig.sent(ReadProbeSeen) == [(B, ReadProbeSeen(term=1, round=3))]


def offer(term: int, index: int, index_term: int) -> SnapshotOffer:
    members = Configuration(voters=(A, B, C)).encode()
    return SnapshotOffer(term=term, index=index, index_term=index_term, members=members)


def test_an_offer_beyond_the_log_is_handed_to_the_shell() -> None:
    rig = Rig(log=entries(1), term=1)
    rig.step(B, offer(1, 10, 1))
    assert rig.offered() == (B, offer(1, 10, 1))


def test_an_offer_that_the_log_covers_is_acknowledged_and_ignored() -> None:
    """Rule 35: never go backwards."""
    rig = Rig(log=entries(1, 1, 1), term=1, commit_index=2)
    rig.step(B, offer(1, 2, 1))
    rig.step(B, offer(1, 3, 1))
    assert rig.offered() is None
    assert [message.verified_index for _, message in rig.sent(AppendAccepted)] == [2, 3]


def test_an_old_offer_is_answered_with_the_term() -> None:
    """Rule 8 for snapshots: a stale leader that only offers snapshots must learn the term."""
    rig = Rig(term=4)
    rig.step(B, offer(3, 10, 1))
    assert rig.offered() is None
    assert [message.term for _, message in rig.sent()] == [4]


def test_what_was_verified_holds_for_the_whole_term() -> None:
    """Simulator, member-chaos 2167: the claim was lost and renewed, and a commit notice then committed nothing."""
    rig = Rig(term=1)
    rig.step(B, append(1, 0, 0, entries(1, 1, 1)))
    rig.core.peer_down(B, rig.now_ns)
    rig.core.peer_up(B, rig.now_ns)
    rig.step(B, CommitNotice(term=1, commit_index=3))
    assert rig.core.commit_index == 3
