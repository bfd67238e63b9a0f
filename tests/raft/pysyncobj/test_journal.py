import pytest

from jetraft.raft.engine.port import Proposal
from jetraft.raft.pysyncobj.journal import OPAQUE_COMMAND, JournalView
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState
from tests.raft.rig import INCARNATION, entries, entry


def view_of(log: MemLog, commit_index: int = 0) -> JournalView:
    return JournalView(log, seal=seal, incarnation=INCARNATION, commit_index=commit_index)


def test_an_empty_log_shows_its_boundary() -> None:
    journal = view_of(MemLog())
    assert len(journal) == 1
    assert journal[0] == journal[-1] == (OPAQUE_COMMAND, 1, 0)


def test_positions_and_slices_are_those_of_a_list() -> None:
    log = MemLog()
    log.append(entries(1, 1, 2))
    journal = view_of(log)
    as_list = [(OPAQUE_COMMAND, 1, 0), (OPAQUE_COMMAND, 2, 1), (OPAQUE_COMMAND, 3, 1), (OPAQUE_COMMAND, 4, 2)]
    assert journal[:] == as_list
    for part in (slice(2, None), slice(1, 3), slice(3, 99), slice(7, None)):
        assert journal[part] == as_list[part]
    with pytest.raises(IndexError):
        journal[4]


def test_the_boundary_of_a_trimmed_log_is_the_first_position() -> None:
    log = MemLog(block_bytes=100)
    log.append(entries(*[3] * 8))
    log.submit()
    for _ in range(2):
        log.save_checkpoint(6, 3, b"", b"")
    log.submit()
    log.trim(2**63, 6)
    journal, boundary = view_of(log), log.boundary[0]
    assert boundary > 0
    assert (journal[0], journal[-1], len(journal)) == (
        (OPAQUE_COMMAND, boundary + 1, 3),
        (OPAQUE_COMMAND, 9, 3),
        9 - boundary,
    )
    journal.deleteEntriesFrom(len(journal) - 1)
    assert log.last_index == 7


def test_what_is_added_is_in_the_log_at_once() -> None:
    log = MemLog()
    journal = view_of(log)
    journal.add(entry(1, 1, b"from a leader"), 2, 1)
    journal.add(b"\x01", 3, 2)
    journal.add(Proposal(kind=Kind.META, body=b"proposed"), 4, 2)
    assert [(each.index, each.term, each.kind) for each in log.entries(1, 3, 1 << 20)] == [
        (1, 1, Kind.META),
        (2, 2, Kind.NOOP),
        (3, 2, Kind.META),
    ]


def test_term_and_vote_are_the_logs() -> None:
    log = MemLog()
    view_of(log).setCurrentTerm(5, NodeId("B"))
    assert log.hard_state == HardState(term=5, vote=NodeId("B"))
    again = view_of(log, commit_index=7)
    assert (again.getCurrentTerm(), again.getVotedForNodeId(), again.getRaftCommitIndex()) == (5, "B", 8)


def test_nothing_else_can_be_done_to_the_log() -> None:
    journal = view_of(MemLog())
    with pytest.raises(NotImplementedError):
        journal.clear()
    with pytest.raises(NotImplementedError):
        journal.deleteEntriesTo(1)
    with pytest.raises(AssertionError):
        journal.deleteEntriesFrom(0)
