"""How much a micro-batch takes, and when the next one is due.

Spark returns one limit only to a Python source, so all options are applied here: at most so many sequences or bytes, at
least so many unless the oldest of them has waited for too long. While a stream is idle, Spark asks about its end every
10 ms (`spark.sql.streaming.pollingDelay`). `watch.py` waits for a message then; where it cannot, `Pace` makes the
requests to the leader rarer.
"""

import time

import attrs

from pyspark_jetstream.leader import StreamView

IDLE_FIRST_S = 0.02
# A new row waits this long at most, and an idle query of one stream costs four requests a second.
IDLE_MAX_S = 0.25
# Several streams share the requests, but a row does not wait longer than this.
STREAMS_PER_PAUSE = 2
IDLE_SEVERAL_MAX_S = 5.0


@attrs.define(slots=True)
class Pace:
    """The pauses between questions about the end of idle streams."""

    pause_s: float = 0.0
    asked_at_s: float = 0.0

    def wait(self) -> None:
        """Wait for the rest of the pause."""
        rest_s = self.asked_at_s + self.pause_s - time.monotonic()
        if self.pause_s and rest_s > 0:
            time.sleep(rest_s)

    def note(self, *, idle: bool, streams: int) -> None:
        """Keep the outcome of a question: the pause grows while there is nothing new."""
        self.asked_at_s = time.monotonic()
        longest_s = min(IDLE_SEVERAL_MAX_S, IDLE_MAX_S * max(1.0, streams / STREAMS_PER_PAUSE))
        self.pause_s = min(longest_s, max(IDLE_FIRST_S, 2 * self.pause_s)) if idle else 0.0


@attrs.define(kw_only=True, slots=True)
class Minimum:
    """`minRowsPerTrigger` with `maxTriggerDelay`: a small batch waits, at most so long after its first row was seen."""

    rows_min: int | None
    delay_max_s: float
    waiting_since_s: float | None = None

    def is_due(self, rows: int) -> bool:
        """Whether a batch of so many rows starts now."""
        now_s = time.monotonic()
        if rows and self.rows_min is not None and rows < self.rows_min:
            if self.waiting_since_s is None:
                self.waiting_since_s = now_s
            if now_s - self.waiting_since_s < self.delay_max_s:
                return False
        self.waiting_since_s = None
        return True


def rows_of_bytes(size: int | None, view: StreamView) -> int | None:
    """Return how many messages have about so many bytes, by the mean of the stream; at least one."""
    if size is None:
        return None
    return max(1, size * max(1, view.messages) // max(1, view.message_bytes))


def least(*limits: int | None) -> int | None:
    """Return the smallest limit; None if there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def shares(rows_max: int | None, waiting: dict[str, int]) -> dict[str, int]:
    """Return how many rows of each stream a batch takes: in proportion to what waits, one at least of each.

    With fewer rows than streams the ones with most to read come first.
    """
    total = sum(waiting.values())
    if rows_max is None or total <= rows_max:
        return dict(waiting)
    given = {name: rows * rows_max // total for name, rows in waiting.items()}
    left = rows_max - sum(given.values())
    for name in sorted(waiting, key=lambda name: (given[name] > 0, -waiting[name], name)):
        if left and given[name] < waiting[name]:
            given[name] += 1
            left -= 1
    return given
