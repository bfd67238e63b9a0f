"""Sets of log indexes as ranges, for entries that were dropped or are damaged."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

_BEYOND: Final = 1 << 64  # of any index

Ranges = tuple[tuple[int, int], ...]  # (first index, last index): ascending, neither overlapping nor adjacent


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same indexes in as few ranges as possible."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        assert first <= last
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def covers(ranges: Ranges, first: int, last: int) -> bool:
    """Whether every index of first..last is in the ranges; True if last < first."""
    if first > last:
        return True
    place = bisect_right(ranges, (first, _BEYOND))
    return place > 0 and last <= ranges[place - 1][1]


def first_above(ranges: Ranges, index: int) -> int | None:
    """The start of the first range that starts above an index; None when there is none."""
    place = bisect_left(ranges, (index + 1, 0))
    return ranges[place][0] if place < len(ranges) else None


def without(ranges: Ranges, index: int) -> Ranges:
    """The ranges without one index."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if first <= index <= last:
            found += [piece for piece in ((first, index - 1), (index + 1, last)) if piece[0] <= piece[1]]
        else:
            found.append((first, last))
    return tuple(found)


def outside(ranges: Ranges, first: int, last: int) -> Ranges:
    """The ranges without the indexes first..last."""
    below = tuple((low, min(high, first - 1)) for low, high in ranges if low < first)
    return below + tuple((max(low, last + 1), high) for low, high in ranges if high > last)


def within(ranges: Ranges, first: int, last: int) -> Ranges:
    """The intersection of the ranges with first..last."""
    return tuple((max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first)
