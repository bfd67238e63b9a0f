"""Delayed messages: each comes once, under its own subject, not before it is due, by whatever leader; unseen before.

The log tells: what waits is stored under a subject of its own, and what comes of it names that. Some are cancelled in
the moment in which they are due. Wall clocks are set by an hour meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.state import commands
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model import message
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.extensions import WAITING
from jetraft.store.model.gotime import parse_time
from jetraft.store.stream._runs import Runs
from tests.simulator.features.batches import block
from tests.simulator.features.feature import INBOX, Feature, Stored
from tests.simulator.features.schedules import EARLY_NS, LATE_NS, SHORTLY_NS
from tests.simulator.world import ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.state.commands import ConsumerCommand, StreamCommand
    from jetraft.store.model.config import StreamConfig

SUBJECTS = 4
DELAY_NS_MAX = 2 * NS_PER_S
CONSUMER = "C"


@attrs.define(eq=False)
class Wait:
    """A message that waits, in the log."""

    number: int
    seq: int
    due_ns: int
    is_cancelled: bool = False


class Delays(Feature):
    """See the module."""

    repeats_with = b"Nats-Scheduler"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waits: dict[bytes, Wait] = {}  # by the subject of what waits
        self._hidden: set[int] = set()  # sequences of all that has waited
        self._numbers = 0
        self._acked: set[int] = set()
        self._come: set[int] = set()  # numbers, also of what was due when it was published
        self._cancelled: set[int] = set()
        self._knows_time = True

    def configure(self, config: StreamConfig) -> StreamConfig:
        return attrs.evolve(super().configure(config), metadata={"jetraft.delayed": "true"})

    def start(self) -> None:
        self.often(6, self._publish)
        self.often(1, self._cancel_when_due)

    def before_fault(self) -> None:
        self._publish()

    def on_leader(self, *, knows_time: bool) -> None:
        """Without the time of the others it takes its own: from then on a message may come early."""
        self._knows_time &= knows_time

    def _publish(self) -> None:
        self._numbers += 1
        number = self._numbers
        fields = {b"Jetraft-Delay": b"%d" % self.world.between(0, DELAY_NS_MAX)}
        if self.world.chance(0.3):
            fields[message.MSG_ID] = b"d%d" % number
        for host in self.leaders():
            subject = b"s.%d" % (number % SUBJECTS)
            host.publish(subject, reply=INBOX + b"d.%d" % number, hdr=block(fields), payload=b"later %d" % number)
            self._numbers += 1
            number = self._numbers

    def _cancel_when_due(self) -> None:
        """Delete what waits in the moment in which it is due."""
        now_ns = self.world.clock.unix_ns()
        waits = [wait for wait in self._waits.values() if wait.due_ns > now_ns]
        if waits:
            wait = self.world.rng.choice(waits)
            self.world.after(wait.due_ns - now_ns - self.world.between(0, SHORTLY_NS), lambda: self._cancel(wait))

    def _cancel(self, wait: Wait) -> None:
        host = self.some_leader()
        if host is None or host.group is None or self.is_over:
            return
        group = host.group
        body = commands.encode_stream_command(commands.Remove(Runs((wait.seq,)), erase=False))
        host.do(lambda: group.propose(Proposal(kind=Kind.STREAM_OP, body=body)))

    # The log.

    def on_messages(self, messages: Sequence[Stored]) -> None:
        for stored in messages:
            scheduler = message.get(stored.hdr, b"Nats-Scheduler") if stored.hdr else None
            if stored.subject.startswith(WAITING):
                self._on_wait(stored)
            elif scheduler is not None:
                self._on_due(scheduler, stored)
            elif stored.payload.startswith(b"later "):
                self._come.add(int(stored.payload.split()[1]))

    def _on_wait(self, stored: Stored) -> None:
        due_ns = parse_time((message.get(stored.hdr, b"Jetraft-Deliver-At") or b"").decode())
        if due_ns is None or stored.subject in self._waits:
            raise ViolationError(f"message {stored.seq} waits under {stored.subject.decode()} until {due_ns}")
        self._waits[stored.subject] = Wait(int(stored.payload.split()[1]), stored.seq, due_ns)
        self._hidden.add(stored.seq)
        self.world.counts["waits"] += 1

    def _on_due(self, scheduler: bytes, stored: Stored) -> None:
        wait, number = self._waits.get(scheduler), int(stored.payload.split()[1])
        if wait is None or wait.number != number or number in self._come:
            raise ViolationError(f"message {stored.seq} comes of {scheduler.decode()}, which does not wait: {wait}")
        if stored.subject != scheduler.removeprefix(WAITING).partition(b".")[2]:
            raise ViolationError(f"message {stored.seq} comes under {stored.subject.decode()}")
        if stored.ts_ns < wait.due_ns or (self._knows_time and self.world.clock.unix_ns() < wait.due_ns - EARLY_NS):
            raise ViolationError(f"message {stored.seq} comes before it is due")
        self._come.add(number)
        del self._waits[scheduler]
        self.world.counts["due"] += 1

    def on_stream(self, command: StreamCommand) -> None:
        if isinstance(command, commands.Remove):
            gone = [subject for subject, wait in self._waits.items() if wait.seq in command.seqs]
            for subject in gone:
                # What comes of it may be under way already: then both are in the log, in this order.
                self._cancelled.add(self._waits[subject].number)
                self._waits[subject].is_cancelled = True
                self.world.counts["cancelled"] += 1

    def on_consumer(self, index: int, command: ConsumerCommand) -> None:
        if command.name == CONSUMER and isinstance(command, commands.Delivered):
            seen = [seq for seq in command.seqs if seq in self._hidden]
            if seen:
                raise ViolationError(f"entry {index} delivers {seen}, which wait")

    def on_answer(self, about: bytes, payload: bytes, _hdr: bytes) -> None:
        if b'"error"' not in payload:
            self._acked.add(int(about.partition(b".")[2]))

    # The end.

    def judge(self) -> str | None:
        leader = self.leaders()[0]
        assert leader.replica is not None
        machine = leader.replica.machine
        now_ns = max(machine.last_ts_ns, leader.steady.unix_ns() if self._knows_time else 0)
        waits = {subject: wait for subject, wait in self._waits.items() if not wait.is_cancelled}
        late = [wait.number for wait in waits.values() if wait.due_ns < now_ns - LATE_NS]
        lost = self._acked - self._come - self._cancelled - {wait.number for wait in waits.values()}
        if late or lost:
            raise ViolationError(f"messages {late} were due and have not come, {lost} were acknowledged and are gone")
        left = sorted(seq for seq in self._hidden if machine.is_live(seq))
        if left != sorted(wait.seq for wait in waits.values()):
            return f"violation: messages {left} are still stored as those that wait"
        return None
