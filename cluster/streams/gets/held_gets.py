"""Direct gets that ask for more than this replica has: held until it has it, for a moment.

A follower applies a message a few milliseconds after its acknowledgement left (raft/engine/port.py: commit_notice_ns).
A client that has published and reads its own write, from whichever replica answers, would be refused just then; waiting
costs it less than asking again. Bounded in number, bytes and time, also of one connection (get_places.py); beyond that
a request is refused at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.streams.gets.get_places import GetPlaces
from jetraft.store.model._fifo import Fifo

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.ports import TimerHandle, Timers
    from jetraft.store.model.clock import Clock

HELD_NS: Final = 250_000_000  # half of what nats-py waits for an answer: the refusal still arrives


@attrs.frozen(slots=True)
class Held:
    """A captured request, its connection, the position that it needs, and until when it may wait."""

    capture: bytes
    client: int
    min_last_seq: int
    deadline_ns: int


class HeldGets:
    """The held requests of one replica. `give_up` gets the captures of those whose time is over."""

    __slots__ = ("_clock", "_give_up", "_held", "_places", "_timer", "_timers")

    def __init__(self, timers: Timers, clock: Clock, give_up: Callable[[bytes], None]) -> None:
        self._timers = timers
        self._clock = clock
        self._give_up = give_up
        self._held: Fifo[Held] = Fifo()  # by deadline: all wait for the same time
        self._places = GetPlaces()
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    def hold(self, capture: bytes, client: int, min_last_seq: int) -> bool:
        """Keep a request; False when there is no room for it, or not for this connection."""
        if not self._places.take(client, len(capture)):
            return False
        self._held.append(Held(capture, client, min_last_seq, self._clock.mono_ns() + HELD_NS))
        self._wake_for_first()
        return True

    def reached(self, last_seq: int) -> bytes:
        """The captures of all that need no more than this, one after the other; they are not held any more."""
        ready = [held for held in self._held if held.min_last_seq <= last_seq]
        if not ready:
            return b""
        rest = [held for held in self._held if held.min_last_seq > last_seq]
        self.drop()
        for held in rest:
            self._held.append(held)
            self._places.take(held.client, len(held.capture))
        self._wake_for_first()
        return b"".join(held.capture for held in ready)

    def drop(self) -> bytes:
        """Forget all of them; returns their captures."""
        dropped = b"".join(held.capture for held in self._held)
        self._held.clear()
        self._places.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return dropped

    def _wake_for_first(self) -> None:
        if self._timer is None and self._held:
            self._timer = self._timers.call_at(self._held[0].deadline_ns, self._woken)

    def _woken(self) -> None:
        self._timer = None
        now_ns = self._clock.mono_ns()
        over: list[bytes] = []
        while self._held and self._held[0].deadline_ns <= now_ns:
            held = self._held.popleft()
            self._places.give_back(held.client, len(held.capture))
            over.append(held.capture)
        self._wake_for_first()
        if over:
            self._give_up(b"".join(over))
