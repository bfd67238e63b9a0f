import pickle

import pysyncobj
import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.serializer
import pysyncobj.syncobj
import pysyncobj.tcp_connection
import pysyncobj.version
import pytest

from jetraft.raft.engine.messages import VoteRequest
from jetraft.raft.engine.port import EngineUnavailableError, Proposal
from jetraft.raft.pysyncobj.engine import PickleRefusedError, SyncObjReplica, prepare_library
from jetraft.raft.pysyncobj.journal import JournalView
from jetraft.raft.pysyncobj.replica import OWN_DISK
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState
from tests.raft.rig import INCARNATION, A, B, C, entries


def replica_over(log: MemLog, others: tuple[NodeId, ...] = (B, C), commit_index: int = 0) -> SyncObjReplica:
    prepare_library()
    return SyncObjReplica(A, others, JournalView(log, seal=seal, incarnation=INCARNATION, commit_index=commit_index))


def leader_over(log: MemLog, others: tuple[NodeId, ...] = (B, C), commit_index: int = 0) -> SyncObjReplica:
    replica = replica_over(log, others, commit_index)
    replica.stand()
    replica.count_vote(others[0])
    assert replica.leads
    return replica


# The library that is let in.


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pysyncobj.version, "VERSION", "0.3.16")
    with pytest.raises(EngineUnavailableError, match=r"needs pysyncobj==0\.3\.17, 0\.3\.16 is installed"):
        prepare_library()


def test_nothing_in_the_library_can_pickle_or_unpickle() -> None:
    prepare_library()
    code = pickle.dumps("harmless")
    for module in (pysyncobj.syncobj, pysyncobj.serializer, pysyncobj.tcp_connection):
        with pytest.raises(PickleRefusedError):
            module.pickle.loads(code)
        with pytest.raises(PickleRefusedError):
            module.pickle.dumps("harmless")
    with pytest.raises(PickleRefusedError):
        pysyncobj.journal.loads(code)


def test_the_librarys_own_membership_command_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = leader_over(MemLog())
    monkeypatch.setattr(replica._sync_obj.conf, "dynamicMembershipChange", True)
    with pytest.raises(PickleRefusedError):
        replica._sync_obj.addNodeToCluster("node0004")


def test_time_alone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders step down and followers stand by the guard's clock, not by the library's."""
    leader, follower = leader_over(MemLog()), replica_over(MemLog())
    follower.follow(B, 1)
    years_s = 100 * 365 * 86400
    monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: float(years_s))
    leader.holds(B, 0)
    follower._tick()
    assert leader.leads
    assert (follower.stands, follower.term) == (False, 1)


# Elections.


def test_standing_writes_term_and_vote_and_asks_nobody() -> None:
    log = MemLog()
    replica = replica_over(log)
    replica.stand()
    assert (replica.term, replica.stands, log.hard_state) == (1, True, HardState(term=1, vote=A))


def test_a_majority_of_votes_makes_a_leader_that_begins_with_a_no_op() -> None:
    log = MemLog()
    replica = replica_over(log)
    replica.stand()
    assert not replica.leads
    replica.count_vote(C)
    assert replica.leads
    assert [(each.index, each.term, each.kind) for each in log.entries(1, 1, 1)] == [(1, 1, Kind.NOOP)]


def test_a_group_of_one_needs_the_vote_of_its_disk() -> None:
    replica = replica_over(MemLog(), (OWN_DISK,))
    replica.stand()
    assert not replica.leads
    replica.count_vote(OWN_DISK)
    assert replica.leads


def test_one_vote_is_given_in_a_term_and_to_a_log_that_is_up_to_date() -> None:
    log = MemLog()
    log.append(entries(1, 1))
    replica = replica_over(log)
    assert not replica.asked_for_vote(B, VoteRequest(term=2, last_index=1, last_term=1, transfer=False))
    assert replica.asked_for_vote(C, VoteRequest(term=2, last_index=2, last_term=1, transfer=False))
    assert not replica.asked_for_vote(B, VoteRequest(term=2, last_index=9, last_term=1, transfer=False))
    assert log.hard_state == HardState(term=2, vote=C)


def test_a_raised_term_carries_no_vote() -> None:
    log = MemLog()
    replica = leader_over(log)
    replica.raise_term(7)
    assert (replica.leads, replica.stands, log.hard_state) == (False, False, HardState(term=7, vote=None))


# The log.


def test_an_empty_log_stays_empty() -> None:
    """PySyncObj writes an entry of its own into an empty journal; the view shows it the boundary instead."""
    log = MemLog()
    replica = replica_over(log)
    assert (log.last_index, replica.commit_index, replica.term) == (0, 0, 0)


def test_entries_of_a_leader_are_written_as_they_came() -> None:
    log, received = MemLog(), entries(1, 1, 2)
    replica = replica_over(log)
    replica.follow(B, 2)
    replica.take(B, prev_index=0, entries=received, commit_index=2)
    assert log.entries(1, 3, 1 << 20) == received
    assert replica.commit_index == 2


def test_proposals_are_sealed_with_their_place_and_term() -> None:
    log = MemLog()
    replica = leader_over(log)
    replica.propose([Proposal(kind=Kind.MESSAGES, first_seq=5, count=2, body=[b"a", b"b"]), Proposal(kind=Kind.META)])
    expected = seal(Kind.MESSAGES, index=2, term=1, incarnation=INCARNATION, body=b"ab", first_seq=5, count=2)
    assert [each.frame for each in log.entries(2, 2, 1)] == [expected]
    assert [(each.index, each.kind) for each in log.entries(2, 3, 1 << 20)] == [(2, Kind.MESSAGES), (3, Kind.META)]


def test_an_entry_larger_than_any_batch_of_the_library_is_no_case_of_its_own() -> None:
    log = MemLog()
    replica = leader_over(log)
    replica.propose([Proposal(kind=Kind.META, body=bytes(1 << 20))])
    replica.holds(B, 2)
    assert replica.commit_index == 2


def test_a_majority_commits_entries_of_the_own_term_only() -> None:
    log = MemLog()
    log.append(entries(1, 1))
    replica = replica_over(log)
    replica.stand()
    replica.count_vote(B)
    replica.holds(B, 2)
    assert replica.commit_index == 0
    replica.holds(B, 3)
    assert replica.commit_index == 3


def test_a_replica_over_a_trimmed_log_goes_on_committing() -> None:
    """Stock PySyncObj applies nothing any more after such a restart."""
    log = MemLog(block_bytes=100)
    log.append(entries(*[1] * 8))
    log.submit()
    log.save_checkpoint(6, 1, b"", b"")
    log.save_checkpoint(6, 1, b"", b"")
    log.submit()
    assert log.trim(2**63, 6) > 0
    replica = leader_over(log, commit_index=6)
    replica.holds(B, 9)
    assert (replica.commit_index, log.last_index) == (9, 9)
