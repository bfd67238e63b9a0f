"""What the guard adds to PySyncObj, message by message. What both engines share is in test_rules.py."""

import pytest

from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import (
    Append,
    AppendAccepted,
    LeaderSeen,
    PreVoteGrant,
    Resigned,
    Role,
    VoteGrant,
    VoteRequest,
)
from jetraft.raft.engine.port import Proposal, Timing
from jetraft.raft.pysyncobj.engine import create_engine
from jetraft.raft.pysyncobj.guard import FixedMembershipError
from jetraft.store.frames.format import Kind
from jetraft.store.port import Entry
from tests.raft import rig as rigs
from tests.raft.rig import A, B, C, Rig, entries, entry


@pytest.fixture(autouse=True)
def _guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rigs, "create_engine", create_engine)


def append(term: int, prev_index: int, prev_term: int, frames: list[Entry], commit_index: int = 0) -> Append:
    return Append(term=term, prev_index=prev_index, prev_term=prev_term, commit_index=commit_index, entries=frames)


def command(body: bytes = b"x") -> Proposal:
    return Proposal(kind=Kind.META, body=body)


def accepted(index: int, term: int) -> AppendAccepted:
    return AppendAccepted(term=term, prev_index=0, verified_index=index)


# A group of one.


def test_a_group_of_one_leads_when_its_vote_is_on_its_disk() -> None:
    rig = Rig(voters=(A,))
    rig.core.start(rig.now_ns)
    assert (rig.core.role, rig.core.vote) == (Role.CANDIDATE, A)
    rig.sync()
    assert rig.core.role is Role.LEADER


def test_a_group_of_one_commits_what_is_on_its_disk_and_not_more() -> None:
    rig = Rig(voters=(A,)).make_leader()
    rig.sync()
    rig.core.propose([command(), command()])
    assert rig.core.commit_index == 1, "the no-op"
    rig.sync()
    assert rig.core.commit_index == rig.core.applicable_index == 3


# Leading.


def test_a_leader_does_not_count_itself_before_its_own_disk_has_the_entry() -> None:
    rig = Rig().make_leader()
    rig.step(B, accepted(1, 1))
    assert rig.core.commit_index == 0
    rig.sync()
    assert rig.core.commit_index == 1


def test_a_proposal_is_sealed_once_and_sent_as_it_stands_in_the_log() -> None:
    rig = Rig().make_leader()
    rig.step(B, accepted(1, 1))
    rig.sent()
    index = rig.core.propose([command(b"some body")])
    rig.flush()
    sent = [message for to, message in rig.sent(Append) if to == B]
    assert [each.frame for each in sent[0].entries] == [rig.log.entries(index, index, 1)[0].frame]
    assert sent[0].entries[0].frame.endswith(b"some body")


def test_a_leader_out_of_contact_goes_on_to_a_term_without_a_leader() -> None:
    """PySyncObj leads for ever otherwise: it steps down for a higher term only."""
    rig = Rig().make_leader()
    rig.core.peer_down(B, rig.now_ns)
    rig.core.peer_down(C, rig.now_ns)
    rig.sent()
    rig.now_ns += Timing().quorum_check_ns
    rig.core.tick(rig.now_ns)
    assert (rig.core.role, rig.core.leader, rig.core.term, rig.core.vote) == (Role.FOLLOWER, None, 2, None)
    assert rig.sent(Resigned) == [(B, Resigned(term=1)), (C, Resigned(term=1))], "of the term that it led"


def test_a_deposed_leader_votes_in_the_next_term() -> None:
    rig = Rig().make_leader()
    rig.sync()
    rig.step(B, VoteRequest(term=2, last_index=1, last_term=1, transfer=True))
    assert rig.core.role is Role.FOLLOWER
    assert rig.sent(VoteGrant) == [], "not durable yet"
    rig.sync()
    assert rig.sent(VoteGrant) == [(B, VoteGrant(term=2))]


def test_a_candidate_whose_votes_come_late_does_not_lead_in_a_later_term() -> None:
    rig = Rig()
    rig.core.start(rig.now_ns)
    rig.tick_at_deadline()
    rig.step(B, PreVoteGrant(term=1))
    rig.sync()
    rig.step(C, append(2, 0, 0, []))
    rig.step(B, VoteGrant(term=1))
    rig.step(B, VoteGrant(term=2))
    assert (rig.core.role, rig.core.leader) == (Role.FOLLOWER, C)


# Following.


def test_a_late_duplicate_cuts_nothing_that_was_acknowledged() -> None:
    """Stock PySyncObj is cut from 5 to 3 here, after it acknowledged and applied 5."""
    rig = Rig(term=1)
    early = append(1, 0, 0, entries(1, 1, 1))
    rig.step(B, early)
    rig.step(B, append(1, 3, 1, entries(1, 1, first=4), commit_index=5))
    rig.step(B, early)
    assert (rig.log.last_index, rig.core.commit_index) == (5, 5)


def test_a_diverged_tail_is_cut_at_the_first_conflict_only() -> None:
    rig = Rig(log=entries(1, 1, 2, 2), term=2)
    rig.step(B, append(3, 1, 1, [*entries(1, first=2), *entries(3, first=3)]))
    assert [rig.log.term_at(index) for index in (1, 2, 3)] == [1, 1, 3]
    assert rig.log.last_index == 3


def test_a_heartbeat_does_not_commit_a_tail_that_was_never_compared() -> None:
    """Stock PySyncObj commits min(the leader's index, its own last one) with some messages: its worst hole."""
    rig = Rig(log=entries(1, 1, 2, 2), term=2)
    rig.step(B, append(3, 1, 1, [], commit_index=4))
    assert rig.core.commit_index == 1
    assert rig.log.last_index == 4, "and what may still match is kept"


def test_what_is_acknowledged_is_what_was_verified() -> None:
    rig = Rig(log=entries(1, 1, 1), term=1)
    rig.step(B, append(2, 1, 1, []))
    rig.sync()
    assert [message for _, message in rig.sent(AppendAccepted)] == [
        AppendAccepted(term=2, prev_index=1, verified_index=1)
    ]


def test_a_leader_is_followed_at_once_but_acknowledged_when_durable() -> None:
    rig = Rig()
    rig.step(B, append(1, 0, 0, entries(1)))
    assert rig.sent() == [(B, LeaderSeen(term=1))]
    rig.sync()
    assert rig.sent() == [(B, accepted(1, 1))]


# The fixed membership.


def test_a_change_of_members_is_refused() -> None:
    rig = Rig().make_leader()
    with pytest.raises(MembershipChangeRefusedError, match="pysyncobj keeps a group's members"):
        rig.core.change_members(Configuration(voters=(A, B)), rig.now_ns)
    assert rig.log.last_index == 1


def test_a_configuration_from_a_leader_with_the_other_engine_halts_the_group() -> None:
    rig = Rig(term=1)
    wider = Configuration(voters=(A, B, C), learners=(rigs.D,))
    with pytest.raises(FixedMembershipError, match="use raft_engine core"):
        rig.step(B, append(1, 0, 0, [entry(1, 1, wider.encode(), Kind.RAFT_CONFIG)]))
    assert rig.log.last_index == 0


# Restarts.


def test_term_vote_and_log_come_back_from_the_log() -> None:
    before = Rig()
    before.step(B, append(1, 0, 0, entries(1, 1)))
    before.step(C, VoteRequest(term=4, last_index=2, last_term=1, transfer=True))
    before.sync()
    after = Rig(log=before.log.entries(1, 2, 1 << 20), term=before.log.hard_state.term, vote=before.log.hard_state.vote)
    assert (after.core.term, after.core.vote, after.core.commit_index) == (4, C, 0)
    after.step(B, VoteRequest(term=4, last_index=9, last_term=3, transfer=False))
    after.step(C, VoteRequest(term=4, last_index=2, last_term=1, transfer=False))
    assert after.sent(VoteGrant) == [(C, VoteGrant(term=4))], "one vote in a term, given again to whom it was given"


def test_a_member_goes_on_from_what_its_checkpoint_covers() -> None:
    rig = Rig(log=entries(1, 1, 1), term=1, commit_index=2).make_leader()
    rig.sync()
    assert rig.core.commit_index == 2
    rig.step(B, accepted(4, 2))
    assert rig.core.commit_index == 4
