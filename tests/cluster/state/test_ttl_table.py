"""The table of ends: a bounded part of it is looked at in one step, and what is kept follows what is live."""

from functools import partial
from operator import lt

from jetraft.cluster.state.ttl import LOOKS_MAX, NEVER_NS, TtlTable
from jetraft.store.stream.stream_store import Liveness


def always(_seq: int) -> bool:
    return True


def never(_seq: int) -> bool:
    return False


def test_what_is_gone_is_dropped_a_bounded_number_at_a_time_and_what_is_due_comes_behind_it() -> None:
    table = TtlTable()
    count = 3 * LOOKS_MAX
    for seq in range(1, count + 1):
        table.add(seq, 10, seq, always)
    only_last = partial(lt, count - 1)
    assert table.due(1 << 60, only_last, 9) == []
    assert len(table) == count - LOOKS_MAX
    assert table.deadline_ns(only_last) is not None, "not later than the next end"
    assert len(table) == count - 2 * LOOKS_MAX
    assert table.due(1 << 60, only_last, 9) == [count]
    assert table.due(1 << 60, only_last, 9) == [count], "it stays until it is gone"
    assert table.deadline_ns(never) is None


def test_messages_that_never_end_are_known_and_those_that_are_gone_are_swept() -> None:
    table = TtlTable()
    kept = 50
    most = 0
    for seq in range(1, 10_001):
        table.add(seq, NEVER_NS, 0, partial(lt, seq - kept))
        most = max(most, len(table))
        assert table.is_never(seq)
        assert table.is_never(max(1, seq - kept + 1))
    assert not table.is_never(10_001)
    assert most <= 4 * kept
    assert table.deadline_ns(always) is None


def test_a_snapshot_has_only_what_is_live() -> None:
    table = TtlTable()
    for seq in range(1, 10):
        table.add(seq, NEVER_NS if seq % 2 else 5, 0, always)
    packed = table.copy().pack(Liveness(first_seq=4, last_seq=9, dead=b""))
    again = TtlTable()
    again.restore(packed)
    assert [seq for seq in range(10) if again.is_never(seq)] == [5, 7, 9]
    assert again.due(5, always, 9) == [4, 6, 8]
    again.add(11, NEVER_NS, 0, always)
    assert again.is_never(11)
    assert bytes(again.copy().pack(Liveness(first_seq=1, last_seq=9, dead=b""))) == bytes(packed)
