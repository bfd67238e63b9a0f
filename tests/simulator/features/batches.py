"""Atomic and fast batches: half sent, sent to one leader after the other, too large, tried again, with expectations.

An atomic batch is in the log as one run of one entry, or not at all; what was acknowledged is there. A fast batch that
may not have gaps is in the log as a beginning of itself, and as much of it as any ack has said.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING
from unittest import mock

import attrs
import orjson

from jetraft.cluster.streams.batches import fast
from jetraft.store.model import message
from jetraft.store.model.limits import BatchLimits
from tests.simulator.features.feature import INBOX, Feature, Stored, leadership_of
from tests.simulator.world import MS, ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from jetraft.store.model.config import StreamConfig

MEMBERS_MAX = 6  # of an atomic batch, in a run
OPEN_MAX = 4  # batches of each kind
PLANS = ("whole", "whole", "whole", "gap", "cut short", "end", "too large", "twisted")
AGAIN_NS = 700 * MS
START, APPEND, COMMIT, COMMIT_BEFORE, PING = range(5)


@attrs.define(eq=False)
class Sent:
    """An atomic batch."""

    number: int
    plan: str
    count: int
    with_ids: bool
    tries: int = 0
    acked: tuple[int, int] | None = None  # (last sequence, count)


@attrs.define(eq=False)
class SentFast:
    """A fast batch."""

    number: int
    may_have_gaps: bool
    count: int
    flow: int
    skips: frozenset[int]
    sent: int = 0
    acked: int = 0  # what an ack said
    ended: tuple[int, int] | None = None  # (stream sequence, count)
    missing: set[int] = attrs.Factory(set)  # what was said to be missing


class Batches(Feature):
    """See the module."""

    batch_limits = BatchLimits(messages=MEMBERS_MAX, per_stream=OPEN_MAX)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._atomic: dict[int, Sent] = {}
        self._fast: dict[int, SentFast] = {}
        self._members: dict[int, list[int]] = {}  # of atomic batches in the log, by number: sequences
        self._stored: dict[int, list[tuple[int, int]]] = defaultdict(list)  # of fast ones: (place, sequence)
        self._last_of: dict[bytes, int] = {}  # by subject: its last sequence

    def configure(self, config: StreamConfig) -> StreamConfig:
        return attrs.evolve(super().configure(config), allow_atomic=True, allow_batched=True)

    @contextlib.contextmanager
    def patches(self) -> Generator[None, None, None]:
        with mock.patch.multiple(fast, FAST_PER_STREAM_MAX=OPEN_MAX):
            yield

    def start(self) -> None:
        self.often(5, self._begin_atomic)
        self.often(2, self._begin_fast)
        self.often(2, self._publish_if)

    def before_fault(self) -> None:
        self._begin_atomic()
        self._begin_fast()

    # Atomic batches.

    def _begin_atomic(self) -> None:
        rng = self.world.rng
        plan = rng.choice(PLANS)
        count = MEMBERS_MAX + 1 if plan == "too large" else rng.randint(2, MEMBERS_MAX)
        batch = Sent(len(self._atomic) + 1, plan, count, with_ids=rng.random() < 0.4)
        self._atomic[batch.number] = batch
        self._send(batch)

    def _send(self, batch: Sent) -> None:
        """All of it to the leaders of the moment, or one message after the other to those of later moments."""
        batch.tries += 1
        steps: list[tuple[int, bytes]] = [(place, b"") for place in range(1, batch.count + 1)]
        steps[-1] = (batch.count, b"1")
        if batch.plan == "gap":
            del steps[self.world.rng.randrange(batch.count - 1)]
        elif batch.plan == "cut short":
            del steps[-1]
        elif batch.plan == "end":
            steps[-1] = (batch.count, b"")
            steps.append((batch.count + 1, b"eob"))
        elif batch.plan == "twisted":
            steps[0], steps[1] = steps[1], steps[0]
        expected = self._expectation()
        wait_ns = 0 if self.world.chance(0.5) else 120 * MS
        delay_ns = 0
        for place, commit in steps:
            delay_ns += self.world.between(0, wait_ns)
            self.world.after(delay_ns, self._sending(batch, place, commit, expected if place == 1 else {}))
        if batch.with_ids and batch.plan in ("whole", "end"):
            self.world.after(delay_ns + AGAIN_NS, lambda: self._try_again(batch))

    def _try_again(self, batch: Sent) -> None:
        if batch.acked is None and not self.is_over and batch.tries < 4:
            self.world.counts["batches tried again"] += 1
            self._send(batch)

    def _expectation(self) -> dict[bytes, bytes]:
        leader = self.some_leader()
        leadership = None if leader is None else leadership_of(leader)
        if leadership is None or self.world.chance(0.8):
            return {}
        return {b"Nats-Expected-Last-Sequence": b"%d" % (leadership.next_seq - self.world.rng.choice((1, 1, 1, 2)))}

    def _sending(self, batch: Sent, place: int, commit: bytes, expected: dict[bytes, bytes]) -> Callable[[], None]:
        fields = {b"Nats-Batch-Id": b"b%d.%d" % (batch.number, batch.tries), b"Nats-Batch-Sequence": b"%d" % place}
        if commit:
            fields[b"Nats-Batch-Commit"] = commit
        if batch.with_ids:
            fields[message.MSG_ID] = b"b%d.%d" % (batch.number, place)
        hdr = block(fields | expected)
        body = b"batch %d %d of %d" % (batch.number, place, batch.count)
        reply = INBOX + b"b.%d" % batch.number

        def send() -> None:
            host = self.some_leader()
            if host is not None:
                host.publish(b"s.%d" % (place % 3), reply=reply, hdr=hdr, payload=body)

        return send

    def _publish_if(self) -> None:
        """A message that expects the last one of its subject to be where it was."""
        host = self.some_leader()
        if host is None or host.replica is None:
            return
        subject = b"s.%d" % self.world.rng.randrange(3)
        fields = {b"Nats-Expected-Last-Subject-Sequence": b"%d" % host.replica.machine.last_for(subject)}
        self.world.counts["compared and set"] += 1
        for _ in range(2):
            body = b"if %d " % self.world.counts["conditional"]
            self.world.counts["conditional"] += 1
            host.publish(subject, reply=INBOX + b"c", hdr=block(fields), payload=body)

    # Fast batches.

    def _begin_fast(self) -> None:
        rng, number = self.world.rng, len(self._fast) + 1
        count = rng.randint(3, 20)
        skips = frozenset([rng.randint(2, count - 1)]) if rng.random() < 0.4 else frozenset[int]()
        batch = SentFast(number, rng.random() < 0.4, count, rng.choice((1, 3, 10)), skips)
        self._fast[number] = batch
        self._go_on(batch)

    def _go_on(self, batch: SentFast) -> None:
        """Some messages, and later the next ones, until the last."""
        for _ in range(self.world.rng.choice((1, 2, 5))):
            if batch.sent < batch.count:
                batch.sent += 1
                if batch.sent not in batch.skips:
                    self._send_fast(batch, batch.sent, self._operation(batch))
        if self.world.chance(0.2) and batch.sent < batch.count:
            self._send_fast(batch, batch.sent, PING)
        if batch.sent < batch.count:
            self.world.after(self.world.between(0, 80 * MS), lambda: self._go_on(batch))

    def _operation(self, batch: SentFast) -> int:
        if batch.sent < batch.count:
            return START if batch.sent == 1 else APPEND
        return COMMIT_BEFORE if batch.number % 3 == 0 else COMMIT

    def _send_fast(self, batch: SentFast, place: int, operation: int) -> None:
        host = self.some_leader()
        if host is None:
            return
        gaps = b"ok" if batch.may_have_gaps else b"fail"
        reply = INBOX + b"f.%d.fast%d.%d.%s.%d.%d.$FI" % (
            batch.number,
            batch.number,
            batch.flow,
            gaps,
            place,
            operation,
        )
        host.publish(b"s.1", reply=reply, payload=b"fast %d %d " % (batch.number, place))

    # What the log has.

    def on_messages(self, messages: Sequence[Stored]) -> None:
        found: dict[int, list[tuple[int, Stored]]] = defaultdict(list)
        before = dict(self._last_of)
        for stored in messages:
            self._check_expected(stored, before if stored.payload.startswith(b"batch ") else self._last_of)
            self._last_of[stored.subject] = stored.seq
            words = stored.payload.split()
            if words[0] == b"batch":
                found[int(words[1])].append((int(words[2]), stored))
            elif words[0] == b"fast":
                self._on_fast(int(words[1]), int(words[2]), stored.seq)
        for number, members in found.items():
            self._on_batch(number, members)

    def _on_batch(self, number: int, members: Sequence[tuple[int, Stored]]) -> None:
        batch, seqs = self._atomic[number], [stored.seq for _, stored in members]
        if batch.plan not in ("whole", "end"):
            raise ViolationError(f"batch {number} ({batch.plan}) is stored")
        if [place for place, _ in members] != list(range(1, batch.count + 1)):
            raise ViolationError(f"an entry has {[place for place, _ in members]} of batch {number}")
        if seqs != list(range(seqs[0], seqs[0] + len(seqs))):
            raise ViolationError(f"batch {number} is stored at {seqs}")
        self._members[number] = seqs
        self.world.counts["batches"] += 1

    def _check_expected(self, stored: Stored, last_of: dict[bytes, int]) -> None:
        expected = message.get(stored.hdr, b"Nats-Expected-Last-Sequence") if stored.hdr else None
        if expected is not None and int(expected) != stored.seq - 1:
            raise ViolationError(f"message {stored.seq} was to follow {int(expected)}")
        expected = message.get(stored.hdr, b"Nats-Expected-Last-Subject-Sequence") if stored.hdr else None
        if expected is not None and int(expected) != last_of.get(stored.subject, 0):
            raise ViolationError(f"message {stored.seq} was to follow {int(expected)} of its subject")

    def _on_fast(self, number: int, place: int, seq: int) -> None:
        batch, stored = self._fast[number], self._stored[number]
        last = stored[-1][0] if stored else 0
        if place <= last or (not batch.may_have_gaps and place != last + 1):
            raise ViolationError(f"message {place} of fast batch {number} is stored behind {last}")
        stored.append((place, seq))
        self.world.counts["fast"] += 1

    # What publishers are told.

    def on_answer(self, about: bytes, payload: bytes, _hdr: bytes) -> None:
        kind, *rest = about.split(b".")
        if not payload or kind == b"c":
            return
        answer = orjson.loads(payload)
        if kind == b"b" and "error" not in answer:
            batch = self._atomic[int(rest[0])]
            told = answer["seq"], answer["count"]
            if batch.acked not in (None, told):
                raise ViolationError(f"batch {batch.number} was acknowledged as {batch.acked} and as {told}")
            batch.acked = told
            self.world.counts["batches acked"] += 1
        elif kind == b"f" and "error" not in answer:
            self._on_fast_answer(self._fast[int(rest[0])], answer)

    def _on_fast_answer(self, batch: SentFast, answer: dict[str, object]) -> None:
        match answer:
            case {"type": "ack", "seq": int(seq)}:
                batch.acked = max(batch.acked, seq)
                self.world.counts["flow acks"] += 1
            case {"type": "gap", "last_seq": int(first), "seq": int(end)}:
                batch.missing.update(range(first, end))
            case {"type": "err", "seq": int(seq)}:
                batch.missing.add(seq)
            case {"seq": int(seq), "count": int(count)}:
                batch.ended = seq, count
                self.world.counts["fast ended"] += 1

    # The end.

    def judge(self) -> str | None:
        for batch in self._atomic.values():
            if batch.acked is not None and self._members.get(batch.number) != _run(*batch.acked):
                raise ViolationError(f"batch {batch.number} was acknowledged as {batch.acked}, and is not there")
        for fast_batch in self._fast.values():
            self._judge_fast(fast_batch)
        for host in self.hosts.values():
            if host.alive and not host.leads:
                room = host.site.batches
                if (room.atomic, room.staged_bytes, room.fast) != (0, 0, 0):
                    raise ViolationError(f"{host.node_id} does not lead, and keeps {room}")
        return None

    def _judge_fast(self, batch: SentFast) -> None:
        stored = dict(self._stored[batch.number])
        told = max(batch.acked, batch.ended[1] if batch.ended else 0)
        lost = [place for place in range(1, told + 1) if place not in stored and place not in batch.missing]
        if lost:
            raise ViolationError(f"fast batch {batch.number} was acknowledged up to {told}, and lacks {lost}")
        if batch.ended is not None and batch.ended[1] in stored and stored[batch.ended[1]] != batch.ended[0]:
            raise ViolationError(f"fast batch {batch.number} was said to end at {batch.ended[0]}: {stored}")


def block(fields: dict[bytes, bytes]) -> bytes:
    """A header block."""
    return b"NATS/1.0\r\n" + b"".join(b"%s: %s\r\n" % field for field in fields.items()) + b"\r\n"


def _run(last_seq: int, count: int) -> list[int]:
    return list(range(last_seq - count + 1, last_seq + 1))
