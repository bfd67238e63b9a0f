"""A part of a sorted list, in steps: as much of a sort as a page of rows needs."""

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from jetraft.api.monitor.steps import Steps

SORTED_AT_ONCE: Final = 512  # rows: a sort of them takes some 0.3 ms
MERGED_AT_ONCE: Final = 128  # rows, some 2 us each

T = TypeVar("T")


def sorted_part(
    rows: Sequence[T], key: Callable[[T], Any], *, offset: int, limit: int, descending: bool
) -> Steps[list[T]]:
    """Rows `offset` to `offset + limit` in the order of a key; equal ones stay in their order."""
    chunks = []
    for at in range(0, len(rows), SORTED_AT_ONCE):
        chunks.append(sorted(rows[at : at + SORTED_AT_ONCE], key=key, reverse=descending))
        yield 0
    found: list[T] = []
    for number, row in enumerate(heapq.merge(*chunks, key=key, reverse=descending)):
        if number >= offset + limit:
            break
        if number >= offset:
            found.append(row)
        if number % MERGED_AT_ONCE == 0:
            yield 0
    return found
