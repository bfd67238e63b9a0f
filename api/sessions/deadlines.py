"""Closes clients that do not name themselves in time, and those whose user has expired."""

import heapq
from collections.abc import Callable

import attrs
import trio

from jetraft.api.credentials.verdicts import USER_EXPIRED
from jetraft.api.plane.reasons import Reason
from jetraft.store.model.clock import NS_PER_S, Clock

AUTHENTICATION_TIMEOUT = b"-ERR 'Authentication Timeout'\r\n"
HEAP_SLACK = 64  # entries of closed connections that are not worth a clean-up


Close = Callable[[int, int, bytes], None]  # connection, reason, last words


def _not_counted(_cid: int) -> None:
    """Drop the deadline of a connection that is over."""


@attrs.define(eq=False)
class AuthDeadlines:
    """Two queues of deadlines: of unnamed clients, which all get the same time, and of users that expire."""

    timeout_ns: int
    clock: Clock
    on_over: Callable[[int], None] = _not_counted  # a connection has named itself, or is closed
    _unnamed: dict[int, int] = attrs.field(factory=dict)  # connection -> deadline (monotonic), the earliest first
    _expiring: list[tuple[int, int]] = attrs.field(factory=list)  # heap of (deadline in Unix time, connection)
    # of open connections, with their last words; what else is in the heap has gone
    _expires: dict[int, tuple[int, bytes]] = attrs.field(factory=dict)
    _changed: trio.Event = attrs.field(factory=trio.Event)

    def begin(self, cid: int) -> None:
        """A client has to name itself from now on, whatever its time was before."""
        self._unnamed.pop(cid, None)
        self._unnamed[cid] = self.clock.mono_ns() + self.timeout_ns
        if len(self._unnamed) == 1:
            self._changed.set()

    def named(self, cid: int) -> None:
        """It has."""
        self._unnamed.pop(cid, None)
        self.on_over(cid)

    def gone(self, cid: int) -> None:
        """A connection is closed."""
        self._unnamed.pop(cid, None)
        self.on_over(cid)
        self.expire(cid, None)

    def expire(self, cid: int, at_unix_ns: int | None, last_words: bytes = USER_EXPIRED) -> None:
        """The user of a connection expires then (None: never), and hears this; what was said before does not hold."""
        if at_unix_ns is None:
            self._expires.pop(cid, None)
        else:
            self._expires[cid] = at_unix_ns, last_words
            heapq.heappush(self._expiring, (at_unix_ns, cid))
            self._changed.set()
        if len(self._expiring) > 2 * len(self._expires) + HEAP_SLACK:
            self._expiring = [(at_ns, known) for known, (at_ns, _) in self._expires.items()]
            heapq.heapify(self._expiring)

    async def run(self, close: Close, end_turn: Callable[[], None]) -> None:
        """Close those whose time is over until cancelled."""
        while True:
            wait_ns = self._next_ns()
            if wait_ns is None or wait_ns > 0:
                with trio.move_on_after(float("inf") if wait_ns is None else wait_ns / NS_PER_S):
                    await self._changed.wait()
                self._changed = trio.Event()
            if self.run_due(close):
                end_turn()
            # At most one round of due deadlines between two checkpoints.
            await trio.lowlevel.checkpoint()

    def _next_ns(self) -> int | None:
        """Until the earliest deadline, or None when there is none."""
        waits = [deadline - self.clock.mono_ns() for deadline in list(self._unnamed.values())[:1]]
        waits += [deadline - self.clock.unix_ns() for deadline, _ in self._expiring[:1]]
        return min(waits, default=None)

    def run_due(self, close: Close) -> int:
        """Close everybody whose time is over; returns how many."""
        now_ns, closed = self.clock.mono_ns(), 0
        while self._unnamed:
            cid, deadline = next(iter(self._unnamed.items()))
            if deadline > now_ns:
                break
            del self._unnamed[cid]
            close(cid, Reason.AUTHENTICATION_TIMEOUT, AUTHENTICATION_TIMEOUT)
            closed += 1
        while self._expiring and self._expiring[0][0] <= self.clock.unix_ns():
            at_ns, cid = heapq.heappop(self._expiring)
            expires_ns, last_words = self._expires.get(cid, (None, b""))
            if expires_ns == at_ns:
                del self._expires[cid]
                close(cid, Reason.AUTHENTICATION_EXPIRED, last_words)
                closed += 1
        return closed

    def statistics(self) -> dict[str, int]:
        """How many clients have not named themselves yet, and how many users will expire."""
        return {"unnamed": len(self._unnamed), "expiring": len(self._expires)}
