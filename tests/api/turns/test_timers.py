"""Deadlines are met in order, and work that goes on at once lets others run."""

from __future__ import annotations

from functools import partial

import trio
import trio.testing

from jetraft.api.turns.timers import TrioTimers
from jetraft.store.model.clock import NS_PER_S
from tests.doubles.trio_clock import TrioClock
from tests.harness.patience import PATIENCE_S


async def test_deadlines_are_met_in_order_and_each_round_ends_a_turn(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[str] = []
    timers = TrioTimers(TrioClock(), lambda: seen.append("turn"))
    nursery.start_soon(timers.run)
    begin_ns = timers.clock.mono_ns()
    for name, after_s in (("late", 3), ("soon", 1), ("never", 2), ("soon too", 1)):
        handle = timers.call_at(begin_ns + after_s * NS_PER_S, partial(seen.append, name))
        if name == "never":
            handle.cancel()
    await trio.sleep(2)
    timers.call_at(0, lambda: seen.append("overdue"))
    await trio.sleep(2)
    assert seen == ["soon", "soon too", "turn", "overdue", "turn", "late", "turn"]


async def test_a_callback_that_goes_on_at_once_does_not_keep_others_from_running(nursery: trio.Nursery) -> None:
    rounds, others = 0, 0
    done = trio.Event()
    timers = TrioTimers(TrioClock(), lambda: None)

    def go_on() -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 100:
            timers.call_at(timers.clock.mono_ns() + 1, go_on)
        else:
            done.set()

    async def other() -> None:
        nonlocal others
        while not done.is_set():
            others += 1
            await trio.lowlevel.checkpoint()

    timers.call_at(0, go_on)
    nursery.start_soon(timers.run)
    nursery.start_soon(other)
    with trio.fail_after(PATIENCE_S):
        await done.wait()
    assert others > 30


def test_a_deadline_beyond_64_bits_is_the_last_one() -> None:
    timers = TrioTimers(TrioClock(), lambda: None)
    timers.call_at(1 << 80, lambda: None)
    assert timers.next_deadline_ns() == (1 << 63) - 1
