"""Ranges of log indexes: what was dropped from a log, what is damaged in it."""

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]  # (first index, last index): ascending, apart from each other


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
    """True when every index of first..last is in one of the ranges; an empty range always is."""
    return first > last or any(low <= first and last <= high for low, high in ranges)
