"""How long something takes: counts in fixed buckets, for monitoring. One observation costs less than a microsecond.

What comes in batches is counted once for each batch, with its size as weight where the figure is of each message.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import attrs

_MS: Final = 1_000_000
BOUNDS_NS: Final = (
    *(100_000, 250_000, 500_000, _MS, 2_500_000, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS),
    *(250 * _MS, 1_000 * _MS, 5_000 * _MS),
)  # the upper ends of the buckets, which include them


@attrs.frozen(kw_only=True, slots=True)
class LatencyStatistics:
    """A snapshot: how many took up to each of `bounds_ns` and more than the one before; the last: more."""

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]
    sum_ns: int


class Histogram:
    """The counts since the start."""

    __slots__ = ("_counts", "_sum_ns")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_NS) + 1)
        self._sum_ns = 0

    def note(self, elapsed_ns: int, count: int = 1) -> None:
        """Add something that took so long, or so many that took as long."""
        self._counts[bisect_left(BOUNDS_NS, elapsed_ns)] += count
        self._sum_ns += elapsed_ns * count

    def statistics(self) -> LatencyStatistics:
        """Figures for monitoring and tests."""
        return LatencyStatistics(bounds_ns=BOUNDS_NS, counts=tuple(self._counts), sum_ns=self._sum_ns)
