"""Which messages of a stream are schedules, and when they were due last. Part of applied state.

The last message of a subject is its schedule, if it is one. A row follows from the log alone: a stored schedule makes
it, with the time of the message; a message that the schedule has produced says in `Nats-Schedule-Next` when it is due
next, or that it ends. So whether a time that was due has been made up for is in the log, on whichever node: the leader
produces a message for a row, and the message, once applied, moves the row on. When a pattern is due is worked out by
the leader (cron.py): zones may differ between nodes. What is gone for another reason stays here until it comes up.

Source: ADR-51; observed on nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.gotime import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PURGE: Final = b"purge"  # in the place of the next time: the schedule's subject is purged


@attrs.frozen(slots=True)
class Schedule:
    """One schedule."""

    seq: int  # of its message
    ts_ns: int  # of its message
    pattern: bytes
    zone: bytes | None
    next_ns: int = 0  # when it is due, as the message said that it produced last; 0: it has produced none


class ScheduleTable:
    """The schedules of a stream by subject."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Schedule] = {}
        self.changed: list[bytes] | None = None  # subjects with another row; None: no leader asks

    def __len__(self) -> int:
        return len(self.rows)

    def stored(self, subject: bytes, seq: int, ts_ns: int, headers: dict[bytes, bytes]) -> None:
        """A message of the stream; it takes the place of its subject's schedule."""
        pattern = headers.get(b"Nats-Schedule")
        if pattern:
            zone = headers.get(b"Nats-Schedule-Time-Zone")
            self._put(subject, Schedule(seq, ts_ns, pattern, zone))
        else:
            self.rows.pop(subject, None)

    def produced(self, scheduler: bytes, next_text: bytes) -> None:
        """A message of this schedule is stored, and says when it is due next."""
        row = self.rows.get(scheduler)
        if next_text == PURGE:
            self.rows.pop(scheduler, None)
        elif row is not None:
            next_ns = parse_time(next_text.decode(errors="replace"))
            self._put(scheduler, attrs.evolve(row, next_ns=next_ns or 0))

    def between(self, first_seq: int, last_seq: int, is_live: Callable[[int], bool]) -> list[tuple[object, ...]]:
        """The rows of a range of sequences, ascending, for a digest."""
        rows = [row for row in self.rows.values() if first_seq <= row.seq <= last_seq and is_live(row.seq)]
        return [attrs.astuple(row) for row in sorted(rows, key=lambda row: row.seq)]

    def to_list(self, is_live: Callable[[int], bool]) -> list[tuple[object, ...]]:
        """The table for a snapshot, ascending by sequence; drops what is gone."""
        self.rows = {subject: row for subject, row in self.rows.items() if is_live(row.seq)}
        rows = sorted(self.rows.items(), key=lambda item: item[1].seq)
        return [(subject, *attrs.astuple(row)) for subject, row in rows]

    def restore(self, items: Sequence[Sequence[object]]) -> None:
        """The inverse of `to_list`."""
        self.rows = {}
        for subject, *row in items:
            assert isinstance(subject, bytes), "a snapshot of schedules is made by to_list"
            self._put(subject, Schedule(*row))  # type: ignore[arg-type]  # as above

    def _put(self, subject: bytes, row: Schedule) -> None:
        self.rows[subject] = row
        if self.changed is not None:
            self.changed.append(subject)
