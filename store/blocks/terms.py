"""The term of every index of a log, run-length encoded.

Terms never decrease along a log, so the first index of each term suffices. A leader serves for thousands of entries, so
the list is short, and the term of an entry needs no read.

The term of a damaged entry may be unknown. Such an entry is *doubtful*: its term lies between that of the entry before
it and that of the next entry whose term is known, and is known if these are equal. `at` never returns a guess: a vote,
a boundary or an answer based on one could elect a leader that lacks committed entries (decision 57; Protocol-Aware
Recovery, FAST'18, stores the identity of an entry apart from its bytes for this reason).
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from jetraft.store.blocks._growing import LastTerms
from jetraft.store.model.files import index_ranges

TERM_MAX: Final = (1 << 63) - 1


class TermRuns(LastTerms):
    """Runs of equal terms from the boundary to the last index. Covers `boundary_index..last_index`, both inclusive.

    Invariant: the boundary is never doubtful. In a doubtful range the runs hold the lower bounds.
    """

    __slots__ = ("_doubtful", "last_term_max")

    def __init__(self, boundary_index: int, boundary_term: int) -> None:
        super().__init__(boundary_index, boundary_term)
        self._doubtful: index_ranges.Ranges = ()
        self.last_term_max = TERM_MAX  # the term of this member's HardState: no entry has a higher one

    @property
    def boundary(self) -> tuple[int, int]:
        """(index, term) of the lowest index covered."""
        return self._starts[0], self._terms[0]

    @property
    def last_term(self) -> int:
        """The term of the last index, which must be known."""
        assert not self._doubtful or self.at(self.last_index) is not None, "the last term is unknown"
        return self._terms[-1]

    def at(self, index: int) -> int | None:
        """The term of `index`; None outside, and where it is unknown."""
        if not self._starts[0] <= index <= self.last_index:
            return None
        term = self._terms[bisect_right(self._starts, index) - 1]
        if self._doubtful and self.bounds(index) != (term, term):
            return None
        return term

    def bounds(self, index: int) -> tuple[int, int] | None:
        """(lowest, highest) term that `index` can have, equal where it is known; None outside."""
        if not self._starts[0] <= index <= self.last_index:
            return None
        low = self._terms[bisect_right(self._starts, index) - 1]
        for first, last in self._doubtful:
            if first <= index <= last:
                if last < self.last_index:
                    return low, self._terms[bisect_right(self._starts, last + 1) - 1]
                # A term of the HardState below that of a sound entry is outdated and bounds nothing.
                return low, self.last_term_max if self.last_term_max >= low else TERM_MAX
        return low, low

    def doubt(self, first: int, last: int) -> None:
        """Mark the terms of these indexes as unknown, between those of their neighbours."""
        first, last = max(first, self._starts[0] + 1), min(last, self.last_index)
        if first <= last:
            self._doubtful = index_ranges.merged([*self._doubtful, (first, last)])

    def extend(self, runs: Iterable[tuple[int, int]], last_index: int) -> None:
        """Add runs (first index, term); the last one ends at `last_index`."""
        for index, term in runs:
            assert term >= self._terms[-1], (term, self._terms[-1])
            if term != self._terms[-1]:
                self._starts.append(index)
                self._terms.append(term)
        assert last_index >= self.last_index
        self.last_index = last_index

    def correct(self, index: int, term: int) -> None:
        """Set the term of a doubtful `index`. Does nothing if its term is known, or outside of the indexes covered.

        Raises ValueError when the term is out of its bounds.
        """
        bounds = self.bounds(index)
        if bounds is None or not index_ranges.covers(self._doubtful, index, index):
            return
        if not bounds[0] <= term <= bounds[1]:
            raise ValueError(f"entry {index}: expected a term of {bounds[0]} to {bounds[1]}, found {term}")
        self._doubtful = index_ranges.without(self._doubtful, index)
        place = bisect_right(self._starts, index)
        if term != self._terms[place - 1]:
            self._starts.insert(place, index)
            self._terms.insert(place, term)
        runs: list[tuple[int, int]] = []
        for run in sorted(dict(zip(self._starts, self._terms, strict=True)).items()):
            if not runs or runs[-1][1] != run[1]:
                runs.append(run)
        self._starts, self._terms = [start for start, _ in runs], [found for _, found in runs]

    def cut_from(self, index: int) -> None:
        """Remove `index` and everything after it; the boundary stays."""
        assert index > self._starts[0]
        while self._starts[-1] >= index:
            self._starts.pop()
            self._terms.pop()
        self.last_index = index - 1
        self._doubtful = index_ranges.within(self._doubtful, self._starts[0] + 1, self.last_index)

    def drop_before(self, index: int) -> None:
        """Make `index` the boundary; its term must be known."""
        term = self.at(index)
        assert term is not None, f"the term of entry {index} is not known: it cannot be the boundary"
        gone = bisect_right(self._starts, index) - 1
        del self._starts[:gone], self._terms[:gone]
        self._starts[0] = index
        self._doubtful = index_ranges.within(self._doubtful, index + 1, self.last_index)
