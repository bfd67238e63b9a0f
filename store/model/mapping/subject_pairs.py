"""Finds two overlapping subjects of a list without comparing every pair.

A configuration may have many thousand subjects, and comparing all pairs would block the node. Whether any two overlap
is one walk of their tree. Only then are they compared, to name the first pair; a list of which that would take too many
comparisons, or whose tree takes too many steps, is refused.
"""

from collections.abc import Callable, Sequence
from typing import Final

from jetraft.store.model._patterns import PatternTree, TooManyCombinationsError
from jetraft.store.model.subject import is_literal

COMPARISONS_MAX: Final = 10_000  # about 10 ms, of a list that has subjects which overlap
STEPS_PER_COMPARISON: Final = 50  # branches that a wildcard visits in the time of a comparison


class TooManyComparisonsError(Exception):
    """The list has too many wildcard subjects to compare in one turn."""


def find_pair(
    subjects: Sequence[bytes], touch: Callable[[bytes, bytes], bool], *, comparisons_max: int = COMPARISONS_MAX
) -> tuple[int, int] | None:
    """The indexes of the first pair (smallest first index, then smallest second) for which `touch` is true, or None.

    `touch` must be symmetric, and true only for subjects that overlap or are equal. Raises TooManyComparisonsError.
    """
    if len(subjects) < 2:  # noqa: PLR2004  (a pair)
        return None
    try:
        tree: PatternTree[int] = PatternTree()
        for index, subject in enumerate(subjects):
            tree.add(subject, index)
        if tree.is_disjoint():
            return None
    except TooManyCombinationsError:
        raise TooManyComparisonsError from None
    left = comparisons_max
    for index, subject in enumerate(subjects):
        if not is_literal(subject):
            left -= len(subjects) // STEPS_PER_COMPARISON
        rivals = sorted(other for other in tree.overlapping(subject) if other > index)
        left -= len(rivals)
        if left < 0:
            raise TooManyComparisonsError
        for other in rivals:
            if touch(subject, subjects[other]):
                return index, other
    return None
