"""Counters: every increment counts once, whatever is tried again, refused in the middle of a batch, or lost.

The sum that a message is stored with is the sum before it and its increment; what was acknowledged is there with the
sum that the publisher was told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import orjson

from jetraft.store.model import message
from tests.simulator.features.batches import block
from tests.simulator.features.feature import INBOX, Feature, Stored
from tests.simulator.world import MS, ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.store.model.config import StreamConfig
    from tests.simulator.host import Host

COUNTERS = 3
AGAIN_NS = 500 * MS
MEMBERS = 3


class CounterClients(Feature):
    """See the module."""

    publishes = False
    repeats_with = message.MSG_INCR

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sums: dict[bytes, int] = {}
        self._values: dict[int, int] = {}  # by sequence: the sum there
        self._ids: set[bytes] = set()
        self._sent = 0
        self._batches = 0
        self._acked: dict[int, tuple[int, int | None]] = {}  # by number: sequence, and the sum if it was told

    def configure(self, config: StreamConfig) -> StreamConfig:
        return attrs.evolve(super().configure(config), allow_msg_counter=True, allow_atomic=True)

    def start(self) -> None:
        self.often(12, self._increment)
        self.often(4, self._batch)

    def before_fault(self) -> None:
        self._increment()
        self._batch()

    def _increment(self) -> None:
        for host in self.leaders():
            self._sent += 1
            self._send(host, self._sent)

    def _send(self, host: Host, number: int) -> None:
        fields = {message.MSG_INCR: b"%+d" % (number % 7 - 2), message.MSG_ID: b"i%d" % number}
        host.publish(b"s.%d" % (number % COUNTERS), reply=INBOX + b"i.%d" % number, hdr=block(fields))

        def again() -> None:
            leader = self.some_leader()
            if number not in self._acked and not self.is_over and leader is not None:
                self.world.counts["tried again"] += 1
                self._send(leader, number)

        self.world.after(AGAIN_NS, again)

    def _batch(self) -> None:
        """A batch of increments, of which the last one may not be one, and increments around it."""
        host = self.some_leader()
        if host is None:
            return
        self._batches += 1
        is_wrong = self.world.chance(0.5)
        for place in range(1, MEMBERS + 1):
            fields = {
                message.MSG_INCR: b"x" if is_wrong and place == MEMBERS else b"1",
                message.MSG_ID: b"b%d.%d" % (self._batches, place),
                b"Nats-Batch-Id": b"b%d" % self._batches,
                b"Nats-Batch-Sequence": b"%d" % place,
            }
            if place == MEMBERS:
                fields[b"Nats-Batch-Commit"] = b"1"
            host.publish(b"s.%d" % (place % COUNTERS), reply=INBOX + b"b", hdr=block(fields))
            if place == 1:
                self._increment()
        self._increment()

    def on_messages(self, messages: Sequence[Stored]) -> None:
        for stored in messages:
            increment, msg_id = message.get(stored.hdr, message.MSG_INCR), message.get(stored.hdr, message.MSG_ID)
            if increment is None or msg_id is None:
                raise ViolationError(f"message {stored.seq} is no increment")
            if msg_id in self._ids:
                raise ViolationError(f"increment {msg_id.decode()} counts twice")
            self._ids.add(msg_id)
            total = self._sums.get(stored.subject, 0) + int(increment)
            if orjson.loads(stored.payload) != {"val": str(total)}:
                raise ViolationError(
                    f"message {stored.seq} of {stored.subject.decode()} says {stored.payload!r}: {total}"
                )
            self._sums[stored.subject] = self._values[stored.seq] = total
            self.world.counts["increments"] += 1

    def on_answer(self, about: bytes, payload: bytes, _hdr: bytes) -> None:
        kind, _, number = about.partition(b".")
        answer: dict[str, Any] = orjson.loads(payload) if payload else {"error": None}
        if kind == b"b" and "error" in answer:
            self.world.counts["batches refused"] += 1
        if kind == b"i" and "error" not in answer:
            value = answer.get("val")
            self._acked[int(number)] = answer["seq"], None if value is None else int(value)
            self.world.counts["ok"] += 1

    def judge(self) -> str | None:
        for number, (seq, value) in self._acked.items():
            if seq not in self._values or value not in (None, self._values[seq]):
                raise ViolationError(f"increment {number} was acknowledged at {seq} as {value}")
        return None if self._acked else "liveness: no increment is acknowledged"
