from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome, Proposals
from jetraft.store.frames.format import Kind

ONE = Proposal(kind=Kind.META, body=b"1")


class Diary:
    """What was told, in order."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def done(self, outcome: Outcome, result: object) -> None:
        self.lines.append((outcome, result))

    def committed(self) -> None:
        self.lines.append("committed")


def sealed(diary: Diary, *, first_index: int, count: int) -> Proposals:
    proposals = Proposals()
    for _ in range(count):
        proposals.add(ONE, diary.done, diary.committed)
    proposals.seal(lambda _proposals: first_index)
    return proposals


def test_the_commit_is_told_once_and_only_up_to_the_index() -> None:
    diary = Diary()
    proposals = sealed(diary, first_index=5, count=3)
    assert not proposals.tell_committed(4)
    assert proposals.tell_committed(6)
    assert not proposals.tell_committed(6)
    assert diary.lines == ["committed", "committed"]


def test_each_proposal_ends_once_with_its_own_result() -> None:
    diary = Diary()
    proposals = sealed(diary, first_index=5, count=3)
    proposals.tell_applied(4, ["other", "a", "b"])
    proposals.tell_applied(7, ["c"])
    proposals.end()
    assert diary.lines == [(Outcome.OK, "a"), (Outcome.OK, "b"), (Outcome.OK, "c")]


def test_after_the_end_of_leadership_nobody_hears_of_a_commit() -> None:
    diary = Diary()
    proposals = sealed(diary, first_index=5, count=1)
    proposals.add(ONE, diary.done, diary.committed)
    proposals.end()
    assert not proposals.tell_committed(9)
    assert diary.lines == [(Outcome.UNKNOWN, None), (Outcome.REFUSED, None)]


def test_a_read_waits_for_its_round_and_for_what_was_committed() -> None:
    diary = Diary()
    proposals = Proposals()
    proposals.add_read(diary.done)
    proposals.tell_readers(9, 9)
    assert proposals.new_reads
    proposals.begin_reads(2, 7)
    assert not proposals.new_reads
    proposals.tell_readers(1, 9)
    proposals.tell_readers(2, 6)
    assert proposals.reads
    proposals.tell_readers(2, 7)
    assert diary.lines == [(Outcome.OK, None)]
    assert not proposals.reads
