"""Schedules: what is due is produced once, by whatever leader, and what is replaced or gone produces nothing.

The log tells: a schedule is the last message of its subject; what it produces names it and says when it is due next. A
message that is produced before its time, or for a time that another one was produced for, or by a schedule that is gone
is a violation; a schedule that is left overdue at the end is one, too. Wall clocks are set by an hour meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.state import commands
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model import message
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import parse_time
from tests.simulator.features.batches import block
from tests.simulator.features.feature import INBOX, Feature, Stored
from tests.simulator.world import MS, ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.state.commands import StreamCommand
    from jetraft.store.model.config import StreamConfig

SUBJECTS = 6
EARLY_NS = 300 * MS  # clocks run faster or slower by 1 %, and the network adds to what is heard of them
LATE_NS = 2500 * MS  # rounds of the scheduler, and a term that has just begun
SHORTLY_NS = 4 * MS  # about as long as an entry takes to be committed
PURGE = b"purge"


@attrs.define(eq=False)
class Row:
    """A schedule in the log."""

    number: int
    seq: int
    due_ns: int  # not before; of a cron pattern: when it was stored


class Schedules(Feature):
    """See the module."""

    repeats_with = b"Nats-Scheduler"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rows: dict[bytes, Row] = {}
        self._numbers = 0
        self._purged: dict[bytes, tuple[int, int]] = {}  # the number of a schedule that was purged, and when
        self._knows_time = True
        self._acked: set[int] = set()
        self._stored: set[int] = set()

    def configure(self, config: StreamConfig) -> StreamConfig:
        return attrs.evolve(
            super().configure(config),
            subjects=(*config.subjects, "sch.>", "made.>"),
            allow_msg_schedules=True,
            allow_rollup_hdrs=True,
        )

    def start(self) -> None:
        self.often(3, self._schedule)
        self.often(0.5, self._purge)
        self.often(4, self._replace_when_due)

    def before_fault(self) -> None:
        self._schedule()

    def on_leader(self, *, knows_time: bool) -> None:
        """Without the time of the others it takes its own: from then on a time may come early."""
        self._knows_time &= knows_time

    def _pattern(self) -> bytes:
        due_s = (self.world.clock.unix_ns() + self.world.between(0, 4 * NS_PER_S)) // MS / 1000
        at = datetime.fromtimestamp(due_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return self.world.rng.choice((b"@at " + at.encode(), b"@every 1s", b"@every 2s", b"*/2 * * * * *"))

    def _replace_when_due(self) -> None:
        """Another schedule takes the place of one in the moment in which that is due."""
        now_ns = self.world.clock.unix_ns()
        rows = [(subject, row.due_ns) for subject, row in self._rows.items() if row.due_ns > now_ns]
        if rows:
            subject, due_ns = self.world.rng.choice(rows)
            wait_ns = due_ns - now_ns - self.world.between(0, SHORTLY_NS)
            self.world.after(wait_ns, lambda: None if self.is_over else self._schedule(subject))

    def _schedule(self, subject: bytes | None = None) -> None:
        self._numbers += 1
        number = self._numbers
        subject = subject or b"sch.%d" % self.world.rng.randrange(SUBJECTS)
        fields = {b"Nats-Schedule": self._pattern(), b"Nats-Schedule-Target": b"made.%d" % number}
        for host in self.leaders()[:1]:
            host.publish(subject, reply=INBOX + b"s.%d" % number, hdr=block(fields), payload=b"schedule %d" % number)

    def _purge(self) -> None:
        host = self.some_leader()
        if host is None or host.group is None:
            return
        group, subject = host.group, b"sch.%d" % self.world.rng.randrange(SUBJECTS)
        body = commands.encode_stream_command(commands.Purge(subject=subject, below_seq=None, keep=None))
        host.do(lambda: group.propose(Proposal(kind=Kind.STREAM_OP, body=body)))

    # What the log has.

    def on_messages(self, messages: Sequence[Stored]) -> None:
        for stored in messages:
            scheduler = message.get(stored.hdr, b"Nats-Scheduler") if stored.hdr else None
            pattern = message.get(stored.hdr, b"Nats-Schedule") if stored.hdr else None
            if scheduler is not None:
                self._on_produced(scheduler, stored)
            elif pattern is not None:
                number = int(stored.payload.split()[1])
                self._rows[stored.subject] = Row(number, stored.seq, _first_due_ns(pattern, stored.ts_ns))
                self._stored.add(number)
                self.world.counts["schedules"] += 1

    def _on_produced(self, subject: bytes, stored: Stored) -> None:
        number, row = int(stored.payload.split()[1]), self._rows.get(subject)
        purged, purged_ns = self._purged.get(subject, (0, 0))
        if row is None and purged == number and stored.ts_ns <= purged_ns + EARLY_NS:
            self.world.counts["produced beside a purge"] += 1
            del self._purged[subject]
            return
        if row is None or row.number != number:
            raise ViolationError(f"message {stored.seq} is produced by schedule {number}, which is gone: {row}")
        if stored.ts_ns < row.due_ns:
            early_ms = (row.due_ns - stored.ts_ns) / MS
            raise ViolationError(f"message {stored.seq} is produced {early_ms:.0f} ms early by schedule {number}")
        now_ns = self.world.clock.unix_ns()
        if self._knows_time and now_ns < row.due_ns - EARLY_NS:
            early_ms = (row.due_ns - now_ns) / MS
            raise ViolationError(f"message {stored.seq} comes {early_ms:.0f} ms before the time of schedule {number}")
        self.world.counts["produced"] += 1
        following = message.get(stored.hdr, b"Nats-Schedule-Next") or b""
        next_ns = None if following == PURGE else parse_time(following.decode())
        if next_ns is None:
            del self._rows[subject]
        elif next_ns <= row.due_ns:
            raise ViolationError(f"schedule {number} is due at {row.due_ns}, and then at {next_ns}")
        else:
            row.due_ns = next_ns

    def on_stream(self, command: StreamCommand) -> None:
        if isinstance(command, commands.Purge) and command.subject is not None:
            row = self._rows.pop(command.subject, None)
            if row is not None:  # a message that it has produced may be under way
                self._purged[command.subject] = row.number, self.world.clock.unix_ns()

    def on_answer(self, about: bytes, payload: bytes, _hdr: bytes) -> None:
        if b'"error"' not in payload:
            self._acked.add(int(about.partition(b".")[2]))

    def judge(self) -> str | None:
        if lost := self._acked - self._stored:
            raise ViolationError(f"schedules {lost} were acknowledged, and are not there")
        leader = self.leaders()[0]
        assert leader.replica is not None
        now_ns = max(leader.replica.machine.last_ts_ns, leader.steady.unix_ns() if self._knows_time else 0)
        late = [row.number for row in self._rows.values() if row.due_ns < now_ns - LATE_NS]
        if late:
            raise ViolationError(f"schedules {late} were due, and have produced nothing")
        table = {subject: row.seq for subject, row in leader.replica.machine.schedules.rows.items()}
        live = {subject: seq for subject, seq in table.items() if leader.replica.machine.is_live(seq)}
        if live != {subject: row.seq for subject, row in self._rows.items()}:
            raise ViolationError(f"the table of schedules has {live}")
        return None


def _first_due_ns(pattern: bytes, ts_ns: int) -> int:
    """Not before this moment; `@every` counts from the nearest second."""
    word, _, rest = pattern.decode().partition(" ")
    if word == "@at":
        return parse_time(rest) or 0
    if word == "@every":
        return (ts_ns + NS_PER_S // 2) // NS_PER_S * NS_PER_S + int(rest.removesuffix("s")) * NS_PER_S
    return ts_ns
