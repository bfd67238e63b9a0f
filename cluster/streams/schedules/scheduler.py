"""The leader's timer over schedules: when one is due it publishes what the schedule produces, into the stream itself.

A message that is produced takes the way of any publish: it is admitted, has an entry, and, applied, moves its schedule
on (cluster/state/schedules.py). So each time that is due is made up for once, on whichever node: a leader whose message
is not committed leaves the schedule as it was, and the next leader finds it due. In a term a row is tried once: what
the stream refuses, for its size say, only the next leader tries again.

Times are those of the clock that messages are stamped with (stamps.py): setting a wall clock makes nothing due.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.state.headers import nats_headers
from jetraft.cluster.streams.schedules.cron import first_due_ns, next_due
from jetraft.cluster.streams.schedules.scheduling import SOURCE, TARGET, produced_hdr
from jetraft.store.model.clock import NS_PER_MS, NS_PER_S
from jetraft.store.model.extensions import WAITING
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.ports import TimerHandle
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.cluster.state.schedules import Schedule
    from jetraft.cluster.streams.stamps import StampClock

log = logging.getLogger(__name__)

ROUND_NS_MIN: Final = NS_PER_S // 4  # as nats-server: what is due is looked for at most so often
WAITING_ROUND_NS_MIN: Final = 20 * NS_PER_MS  # of messages that wait: they are late by no more
PUT_OFF_NS: Final = NS_PER_S  # while the stream takes nothing
PRODUCED_MAX: Final = 250  # in one round, some 40 us each
NEXT_ROUND_NS: Final = 10 * NS_PER_MS  # after one in which more was due
OUTDATED_MIN: Final = 64  # of schedules that were replaced or are gone, before the heap is cleared of them


class Scheduler:
    """The schedules of one stream during one term of leadership. `start` looks at all of them."""

    def __init__(
        self,
        site: Site,
        machine: StreamMachine,
        *,
        stamps: StampClock,
        produce: Callable[[bytes], int | None],
        is_last: Callable[[bytes, int], bool],
    ) -> None:
        """`produce` publishes a batch of messages and says how many were taken; None: nothing is taken now.

        `is_last` says whether a sequence is the last of a subject, with what is in flight.
        """
        self._site = site
        self._machine = machine
        self._stamps = stamps
        self._produce = produce
        self._is_last = is_last
        self._heap: list[tuple[int, int, bytes]] = []  # (when it is due, sequence, subject) of rows not tried yet
        self._timer: TimerHandle | None = None
        self._at_ns = 0  # when it is due, monotonic

    def start(self) -> None:
        """Look after the schedules that there are, and those to come."""
        self._machine.schedules.changed = []
        for subject in self._machine.schedules.rows:
            self._watch(subject)
        self._arm()

    def applied(self) -> None:
        """Entries have been applied: there may be other schedules."""
        changed = self._machine.schedules.changed
        if changed:
            self._machine.schedules.changed = []
            for subject in dict.fromkeys(changed):
                self._watch(subject)
            self._clear()
            self._arm()

    def end(self) -> None:
        """Leadership is over."""
        self._machine.schedules.changed = None
        self._cancel()

    def _watch(self, subject: bytes) -> None:
        row = self._machine.schedules.rows.get(subject)
        due_ns = None if row is None else _due_ns(row)
        if row is not None and due_ns is not None:
            heappush(self._heap, (due_ns, row.seq, subject))

    def _clear(self) -> None:
        """Drop what is outdated, once that is most: a schedule of next year may be replaced every second till then."""
        rows = self._machine.schedules.rows
        if len(self._heap) > 2 * len(rows) + OUTDATED_MIN:
            self._heap = [item for item in set(self._heap) if self._is_in_force(*item)]
            heapify(self._heap)

    def _is_in_force(self, due_ns: int, seq: int, subject: bytes) -> bool:
        row = self._machine.schedules.rows.get(subject)
        return row is not None and row.seq == seq and _due_ns(row) == due_ns

    def _arm(self, least_ns: int = 0) -> None:
        """Set the timer to the next time that is due; one that is earlier stays, and asks again."""
        if self._heap:
            least_ns = least_ns or (WAITING_ROUND_NS_MIN if self._heap[0][2].startswith(WAITING) else ROUND_NS_MIN)
            at_ns = self._site.clock.mono_ns() + max(self._heap[0][0] - self._stamps.now_ns(), least_ns)
            if self._timer is None or at_ns < self._at_ns:
                self._cancel()
                self._at_ns = at_ns
                self._timer = self._site.timers.call_at(at_ns, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ns = self._stamps.now_ns()
        due: list[tuple[int, int, bytes]] = []
        made: list[bytes] = []
        while self._heap and self._heap[0][0] <= now_ns and len(made) < PRODUCED_MAX:
            item = heappop(self._heap)
            try:
                message = self._produced(*item, now_ns)
            except StoreCorrupt:
                return  # the store has said so: the replica stops, and the next leader looks again
            if message is not None:
                due.append(item)
                made.append(message)
        taken = self._produce(b"".join(made)) if made else 0
        if taken is None:
            for item in due:
                heappush(self._heap, item)
            self._arm(PUT_OFF_NS)
            return
        if taken < len(made):
            name = self._machine.config.name if self._machine.config else ""
            log.warning("stream %s: refused %d of %d messages of schedules", name, len(made) - taken, len(made))
        self._arm(NEXT_ROUND_NS if len(made) == PRODUCED_MAX else 0)

    def _produced(self, due_ns: int, seq: int, subject: bytes, now_ns: int) -> bytes | None:
        """The message that a schedule produces at a time; None when it is another one by now, or gone."""
        schedule = self._machine.load(seq) if self._is_in_force(due_ns, seq, subject) else None
        if schedule is None or not self._is_last(subject, seq):
            return None
        row = self._machine.schedules.rows[subject]
        headers, content = nats_headers(schedule.hdr), schedule
        source_seq = self._machine.last_for(headers[SOURCE]) if headers.get(SOURCE) else 0
        if source_seq:
            content = self._machine.load(source_seq) or schedule
        following = next_due(*_texts(row), due_ns, now_ns)
        hdr = produced_hdr(subject, headers, content, following)
        return encode_capture(headers[TARGET], hdr=hdr, payload=content.payload)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _texts(row: Schedule) -> tuple[str, str | None]:
    return row.pattern.decode(errors="replace"), None if row.zone is None else row.zone.decode(errors="replace")


def _due_ns(row: Schedule) -> int | None:
    """When a schedule is due; None when this machine does not know its zone."""
    return row.next_ns or first_due_ns(*_texts(row), row.ts_ns)
