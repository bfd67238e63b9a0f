"""Finds two overlapping subjects of a list without comparing every pair.

A configuration may have many thousand subjects, and comparing all pairs would block the node. Subjects whose first
tokens differ and are not wildcards cannot overlap, and two literals overlap only if they are equal. The remaining
comparisons are counted, and a list that exceeds the limit is refused.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from jetraft.store.model.subject import ANY_TAIL, ANY_TOKEN, is_literal

COMPARISONS_MAX: Final = 200_000  # about 0.2 s; 600 wildcards under one first token, or 10,000 literals beside 20


class TooManyComparisonsError(Exception):
    """The list has too many wildcard subjects to compare in one turn."""


def find_pair(
    subjects: Sequence[bytes], touch: Callable[[bytes, bytes], bool], *, comparisons_max: int = COMPARISONS_MAX
) -> tuple[int, int] | None:
    """The indexes of the first pair (smallest first index, then smallest second) for which `touch` is true, or None.

    `touch` must be symmetric, and true only for subjects that overlap or are equal. Raises TooManyComparisonsError.
    """
    rivals = _Rivals(subjects)
    left = comparisons_max
    for index, subject in enumerate(subjects):
        candidates = rivals.after(index)
        left -= len(candidates)
        if left < 0:
            raise TooManyComparisonsError
        for other in candidates:
            if touch(subject, subjects[other]):
                return index, other
    return None


class _Rivals:
    """For each subject of a list, the later ones that it may overlap."""

    def __init__(self, subjects: Sequence[bytes]) -> None:
        self._subjects = subjects
        self._literal = [is_literal(subject) for subject in subjects]
        self._equal: defaultdict[bytes, list[int]] = defaultdict(list)  # by subject
        self._literals: defaultdict[bytes, list[int]] = defaultdict(list)  # by first token
        self._patterns: defaultdict[bytes, list[int]] = defaultdict(list)  # by first token, with a wildcard behind it
        self._open: list[int] = []  # the first token is a wildcard
        for index, subject in enumerate(subjects):
            first = subject.partition(b".")[0]
            self._equal[subject].append(index)
            if self._literal[index]:
                self._literals[first].append(index)
            elif first in (ANY_TOKEN, ANY_TAIL):
                self._open.append(index)
            else:
                self._patterns[first].append(index)

    def after(self, index: int) -> Sequence[int]:
        """Ascending indexes above `index` that have to be compared with it."""
        subject = self._subjects[index]
        first = subject.partition(b".")[0]
        if first in (ANY_TOKEN, ANY_TAIL):
            return range(index + 1, len(self._subjects))
        touching = self._equal[subject] if self._literal[index] else self._literals.get(first, [])
        lists = [touching, self._open, self._patterns.get(first, [])]
        return sorted(
            other for found in lists if found and found[-1] > index for other in found[bisect_right(found, index) :]
        )
