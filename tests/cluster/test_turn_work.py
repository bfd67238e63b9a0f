"""Work in slices: a bounded part of each turn, and nobody's work before everybody else has had a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.turn_work import JOBS_MAX, OWNER_JOBS_MAX, TURN_NS, TurnWork
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.steady import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Handle:
    def cancel(self) -> None:
        raise AssertionError("a slice is not put off")


class Turns:
    """Timers of which each turn calls those that are due."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.due: list[Callable[[], None]] = []
        self.work = TurnWork(self, SteadyClock(self.clock))

    def call_at(self, mono_ns: int, callback: Callable[[], None]) -> Handle:
        assert mono_ns > self.clock.mono_ns()
        self.due.append(callback)
        return Handle()

    def turn(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()

    def job(self, name: str, done: list[str], *, slices: int, slice_ns: int = TURN_NS) -> Callable[[int], bool]:
        left = [slices]

        def work(until_ns: int) -> bool:
            assert until_ns <= self.clock.mono_ns() + TURN_NS
            done.append(name)
            self.clock.advance(slice_ns)
            left[0] -= 1
            return left[0] > 0

        return work


def test_a_turn_has_one_slice_when_that_takes_it_all_and_owners_take_turns() -> None:
    turns, done = Turns(), list[str]()
    for name in ("greedy.1", "greedy.2", "greedy.3"):
        assert turns.work.add("greedy", turns.job(name, done, slices=2))
    turns.work.add("modest", turns.job("modest", done, slices=1))

    turns.turn()
    assert done == ["greedy.1"]
    turns.turn()
    assert done == ["greedy.1", "modest"]
    for _ in range(5):
        turns.turn()
    assert done == ["greedy.1", "modest", "greedy.1", "greedy.2", "greedy.2", "greedy.3", "greedy.3"]
    assert turns.due == []
    assert turns.work.statistics().jobs == 0


def test_short_jobs_share_a_turn() -> None:
    turns, done = Turns(), list[str]()
    for number in range(10):
        turns.work.add(number % 3, turns.job(str(number), done, slices=1, slice_ns=TURN_NS // 4))
    turns.turn()
    assert len(done) == 4
    turns.turn()
    turns.turn()
    assert sorted(done) == [str(number) for number in range(10)]


def test_nobody_has_all_places_and_there_is_an_end_to_them() -> None:
    turns, done = Turns(), list[str]()
    for _ in range(OWNER_JOBS_MAX):
        assert turns.work.add("greedy", turns.job("greedy", done, slices=1))
    assert not turns.work.add("greedy", turns.job("greedy", done, slices=1))
    others = [turns.work.add(number, turns.job("other", done, slices=1)) for number in range(JOBS_MAX)]
    assert others.count(True) == JOBS_MAX - OWNER_JOBS_MAX
    assert turns.work.statistics().jobs == JOBS_MAX
