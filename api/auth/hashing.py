"""Compares passwords with bcrypt hashes in threads: a few at a time, in a bounded queue that is fair to addresses.

A comparison takes 50 ms to seconds of one processor, and a stranger decides how many there are. So at most
`threads_max()` run, at most QUEUE_MAX wait, and of one address ADDRESS_MAX; addresses take turns, so one that tries
passwords delays itself. A result is never remembered: what is in memory could be read, and a changed configuration
must hold at once.
"""

import os
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio

from jetraft.api.options.interfaces import payer_of

QUEUE_MAX: Final = 4096  # of all addresses; a check holds a few hundred bytes
ADDRESS_MAX: Final = 1024  # of one address: a gateway with many clients behind it that all reconnect
BCRYPT_BYTES: Final = 72  # bcrypt reads no further; nats-server refuses what is longer


def threads_max() -> int:
    """Half of the processors: the other half serves clients that are connected."""
    return max(1, (os.cpu_count() or 2) // 2)


def matches(offered: bytes, hashed: bytes) -> bool:
    """Whether a password is the one that was hashed. Takes as long for one that bcrypt does not take."""
    import bcrypt  # noqa: PLC0415  servers without hashed passwords do not pay for it

    try:
        same = bcrypt.checkpw(offered[:BCRYPT_BYTES].replace(b"\0", b"?"), hashed)
    except ValueError:  # not a hash after all: it matches nothing
        return False
    return same and len(offered) <= BCRYPT_BYTES and b"\0" not in offered


@attrs.frozen(slots=True)
class _Waiting:
    offered: bytes = attrs.field(repr=False)
    hashed: bytes = attrs.field(repr=False)
    is_wanted: Callable[[], bool]
    done: Callable[[bool], None]


@attrs.define(eq=False)
class PasswordChecks:
    """The queue and the tasks that serve it."""

    check: Callable[[bytes, bytes], bool] = matches
    threads: int = attrs.field(factory=threads_max)
    checked: int = 0
    refused: int = 0
    _queues: dict[str, deque[_Waiting]] = attrs.field(factory=dict)  # by address; the first one is served next
    _waiting: int = 0
    _work: trio.Event = attrs.field(factory=trio.Event)

    def submit(
        self, address: str, offered: bytes, hashed: bytes, is_wanted: Callable[[], bool], done: Callable[[bool], None]
    ) -> bool:
        """Queue a comparison and call `done` with its result; False when the queue is full.

        `is_wanted` is asked when its turn comes: a connection that has gone costs nothing.
        """
        address = payer_of(address)
        queue = self._queues.get(address)
        if self._waiting >= QUEUE_MAX or (queue is not None and len(queue) >= ADDRESS_MAX):
            self.refused += 1
            return False
        if queue is None:
            queue = self._queues[address] = deque()
        queue.append(_Waiting(offered, hashed, is_wanted, done))
        self._waiting += 1
        self._work.set()
        return True

    async def run(self) -> None:
        """Serve the queue until cancelled."""
        limiter = trio.CapacityLimiter(self.threads)
        async with trio.open_nursery() as nursery:
            for _ in range(self.threads):
                nursery.start_soon(self._serve, limiter)

    async def _serve(self, limiter: trio.CapacityLimiter) -> None:
        while True:
            waiting = self._next()
            if waiting is None:
                self._work = trio.Event() if self._work.is_set() else self._work
                await self._work.wait()
                continue
            if not waiting.is_wanted():
                # At most QUEUE_MAX in a row.
                await trio.lowlevel.checkpoint()
                continue
            same = await trio.to_thread.run_sync(
                self.check, waiting.offered, waiting.hashed, abandon_on_cancel=True, limiter=limiter
            )
            self.checked += 1
            waiting.done(same)

    def _next(self) -> _Waiting | None:
        """The first of the address whose turn it is."""
        if not self._queues:
            return None
        address = next(iter(self._queues))
        queue = self._queues.pop(address)
        waiting = queue.popleft()
        if queue:
            self._queues[address] = queue  # behind the others
        self._waiting -= 1
        return waiting

    def statistics(self) -> dict[str, int]:
        """How many were compared, refused because the queue was full, and wait."""
        return {"checked": self.checked, "refused": self.refused, "waiting": self._waiting}
