"""What makes whole nodes play the same run twice: virtual time, seeded scheduling, threads that run in their turn.

Trio asks its clock how long it may sleep only when no task can run; ours jumps to the next deadline then. Functions
that production gives to threads are called in the trio thread, between two waits. What the machine calls random comes
from the seed. All three end with the run.
"""

import hashlib
import heapq
import math
import os
import random
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest import mock

import trio

from jetraft.store.model.clock import NS_PER_S
from tests.simulator.world import MS, World

T = TypeVar("T")
EPOCH_NS = 1_700_000_000 * NS_PER_S
START_S = 100.0
IDLE_MAX = 100  # rounds in which trio itself has something to do


class StuckError(RuntimeError):
    """Every task waits for something that will never come."""


class JumpingClock(trio.abc.Clock):
    """Stands still while a task can run, and jumps to the next deadline when none can."""

    def __init__(self) -> None:
        self._now_s = START_S
        self._idle = 0

    def start_clock(self) -> None:
        """See trio."""

    def current_time(self) -> float:
        return self._now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if math.isinf(deadline):
            self._idle += 1
            if self._idle > IDLE_MAX:
                raise StuckError("no task can run, and none waits for a time")
            return 0.0
        self._idle = 0
        self._now_s = max(self._now_s, deadline)
        return 0.0

    @property
    def now_ns(self) -> int:
        return round(self._now_s * NS_PER_S)

    def unix_ns(self) -> int:
        return EPOCH_NS + self.now_ns


class VirtualWorld(World):
    """Events in trio's virtual time; one task makes them happen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.jumping = JumpingClock()
        self.clock = self.jumping  # type: ignore[assignment]  # as far as HostClock and World look
        self._woken: trio.Event | None = None
        self.thread_ns = 4 * MS  # half of what a thread's work takes at most
        self._trace = hashlib.blake2b(digest_size=16)

    def at(self, when_ns: int, event: Callable[[], None]) -> None:
        super().at(when_ns, event)
        if self._woken is not None and self._heap[0][2] is event:
            self._woken.set()

    async def run(self) -> None:
        """Let events happen, until cancelled."""
        heap = self._heap
        while True:
            while heap and heap[0][0] <= self.now_ns:
                heapq.heappop(heap)[2]()
            self._woken = trio.Event()
            with trio.move_on_at(heap[0][0] / NS_PER_S if heap else math.inf):
                await self._woken.wait()

    def mark(self, what: str) -> None:
        """Something happened: two runs of a seed have the same marks at the same times."""
        self._trace.update(b"%d %s\n" % (self.now_ns, what.encode()))

    @property
    def trace(self) -> str:
        """A digest of all marks."""
        return self._trace.hexdigest()

    async def sleep(self, duration_ns: int) -> None:
        """Let time pass in a task."""
        await trio.sleep(duration_ns / NS_PER_S)


@contextmanager
def one_thread(world: VirtualWorld) -> Generator[None, None, None]:
    """Replace threads, the scheduler's luck and the machine's random bytes while a run lasts."""
    luck = random.Random(world.rng.random())

    async def in_turn(function: Callable[[], T], *_args: object, **_kwargs: Any) -> T:
        """As a thread that is not abandoned: cancelling waits for it."""
        with trio.CancelScope(shield=True):
            await world.sleep(world.between(0, world.thread_ns))
            result = function()
            await world.sleep(world.between(0, world.thread_ns))
        await trio.lowlevel.checkpoint_if_cancelled()
        return result

    with ExitStack() as stack:
        for target, name, replacement in (
            (trio.to_thread, "run_sync", in_turn),
            (os, "urandom", luck.randbytes),
            (random, "_urandom", luck.randbytes),
            (trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        ):
            stack.enter_context(mock.patch.object(target, name, replacement))
        trio._core._run._r.seed(world.rng.random())
        yield
