"""The window of duplicates: time is the messages' own, and a copy made from a snapshot behaves the same."""

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jetraft.store.stream.dedup import Dedup


class WindowAgainstModel(RuleBasedStateMachine):
    """The model remembers everything and compares timestamps."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Dedup(10)
        self.window_ns = 10
        self.horizon_ts_ns = -10
        self.stored: dict[bytes, tuple[int, int]] = {}
        self.now_ns = 100
        self.seq = 0

    @rule(msg_id=st.sampled_from([b"a", b"b", b"c", b"d"]), pause_ns=st.integers(0, 6))
    def store(self, msg_id: bytes, pause_ns: int) -> None:
        self.now_ns += pause_ns
        self.seq += 1
        self.window.add(msg_id, self.seq, self.now_ns)
        self.stored[msg_id] = (self.seq, self.now_ns)

    @rule(pause_ns=st.integers(0, 15))
    def expire(self, pause_ns: int) -> None:
        self.now_ns += pause_ns
        self.horizon_ts_ns = max(self.horizon_ts_ns, self.now_ns - self.window_ns)
        expected = [one for one, (_, ts_ns) in self.stored.items() if ts_ns < self.horizon_ts_ns]
        assert self.window.expire(self.now_ns) == len(expected)
        for msg_id in expected:
            del self.stored[msg_id]

    @rule()
    def restart(self) -> None:
        restored = Dedup.restore(self.window.snapshot())
        assert restored.statistics() == self.window.statistics()
        assert restored.snapshot() == self.window.snapshot()
        self.window = restored

    @invariant()
    def what_is_remembered_agrees(self) -> None:
        assert len(self.window) == len(self.stored)
        for msg_id in (b"a", b"b", b"c", b"d"):
            expected = self.stored.get(msg_id)
            assert self.window.check(msg_id) == (expected[0] if expected else None)


TestWindowAgainstModel = WindowAgainstModel.TestCase
TestWindowAgainstModel.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_an_id_is_known_up_to_the_end_of_its_window() -> None:
    window = Dedup(10)
    window.add(b"a", 1, 100)
    window.expire(110)
    assert window.check(b"a") == 1
    window.expire(111)
    assert window.check(b"a") is None


def test_the_leader_may_look_ahead_of_the_last_message() -> None:
    window = Dedup(10)
    window.add(b"a", 1, 100)
    assert window.check(b"a", now_ts_ns=110) == 1
    assert window.check(b"a", now_ts_ns=111) is None


def test_time_never_brings_an_id_back() -> None:
    window = Dedup(10)
    window.add(b"a", 1, 100)
    window.expire(200)
    window.set_window(1000)
    assert window.expire(150) == 0
    assert window.check(b"a") is None


def test_a_narrower_window_forgets_at_once() -> None:
    window = Dedup(100)
    window.add(b"a", 1, 100)
    window.add(b"b", 2, 150)
    window.set_window(20)
    assert (window.check(b"a"), window.check(b"b")) == (None, 2)


@pytest.mark.parametrize("window_ns", [0])
def test_a_window_of_zero_remembers_nothing(window_ns: int) -> None:
    window = Dedup(window_ns)
    window.add(b"a", 1, 100)
    assert window.check(b"a") is None
    narrowed = Dedup(5)
    narrowed.add(b"a", 1, 100)
    narrowed.set_window(window_ns)
    assert len(narrowed) == 0


def test_a_foreign_snapshot_is_refused() -> None:
    window = Dedup(5)
    state = bytearray(window.snapshot())
    state[1] = 99
    with pytest.raises(ValueError, match="version 99"):
        Dedup.restore(bytes(state))


def test_an_id_stored_twice_at_one_time_is_forgotten_once() -> None:
    window = Dedup(5)
    window.add(b"a", 1, 100)
    window.add(b"a", 2, 100)
    assert Dedup.restore(window.snapshot()).check(b"a") == 2
    assert window.expire(1000) == 1
    assert len(window) == 0


def test_statistics_are_a_snapshot() -> None:
    window = Dedup(5)
    before = window.statistics()
    window.add(b"a", 1, 100)
    assert attrs.asdict(before) == {"ids": 0, "window_ns": 5, "horizon_ts_ns": 0}
    assert window.statistics().ids == 1


def test_ids_that_expire_together_are_unknown_at_once_and_removed_a_bounded_number_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jetraft.store.stream.dedup.EXPIRED_MAX", 4)
    window = Dedup(5)
    for seq in range(1, 11):
        window.add(b"%d" % seq, seq, 100)
    assert window.expire(1_000) == 4
    assert [window.check(b"%d" % seq) for seq in range(1, 11)] == [None] * 10
    window.add(b"7", 11, 1_000)
    assert Dedup.restore(window.snapshot()).check(b"7") == 11
    assert [window.expire(1_000) for _ in range(3)] == [3, 2, 0]  # the old one of 7 counts for nothing
    assert [window.check(b"%d" % seq) for seq in range(1, 11)] == [None] * 6 + [11] + [None] * 3
