"""How long batches of writes and fsyncs take: whether the disk may be waited for, and a histogram for monitoring."""

from __future__ import annotations

from typing import Final

from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.events import DISK_SLOW
from jetraft.store.model.histogram import Histogram, LatencyStatistics

FAST_NS: Final = 500_000  # an fdatasync of a good disk takes 40 to 200 us, a thread's wake-up and back 50 to 100
SLOW_NS: Final = 20_000_000  # a stall counts as at most this much, so that the average recovers soon
STALLED_NS: Final = NS_PER_S  # a batch that takes so long is an event of the log; etcd warns of the same time
LATENCY_WEIGHT: Final = 0.1  # of the newest batch in the moving average


class DiskLatency:
    """Estimates whether waiting for the disk costs less than waking a thread and being woken by it (decision 26).

    A moving average over the duration of all batches, whether performed in the trio thread or by writer threads. After
    a slow batch it takes several fast ones until `is_fast` is true again.
    """

    def __init__(self) -> None:
        self._average_ns = float(FAST_NS)
        self._histogram = Histogram()

    def note(self, elapsed_ns: int) -> None:
        """Add the duration of a batch."""
        counted_ns = elapsed_ns if elapsed_ns < SLOW_NS else SLOW_NS  # noqa: FURB136  (min() takes 200 ns)
        self._average_ns += (counted_ns - self._average_ns) * LATENCY_WEIGHT
        if elapsed_ns >= STALLED_NS:
            DISK_SLOW.log(seconds=round(elapsed_ns / NS_PER_S, 3), expected_s=STALLED_NS // NS_PER_S)
        self._histogram.note(elapsed_ns)

    @property
    def is_fast(self) -> bool:
        """Whether the trio thread may perform batches itself."""
        return self._average_ns < FAST_NS

    def statistics(self) -> LatencyStatistics:
        """Figures for monitoring and tests."""
        return self._histogram.statistics()
