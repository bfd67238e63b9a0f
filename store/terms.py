"""The term of every index of a log, in a few integers.

Terms never go back along a log, so it is enough to know where each begins. A leader serves for thousands of entries:
the list stays short, and Raft's most frequent question needs no read.
"""

from bisect import bisect_right
from collections.abc import Iterable


class TermRuns:
    """Runs of equal terms from the boundary to the last index. Covers `boundary_index..last_index`, both inclusive."""

    def __init__(self, boundary_index: int, boundary_term: int) -> None:
        self._starts = [boundary_index]
        self._terms = [boundary_term]
        self.last_index = boundary_index

    @property
    def boundary(self) -> tuple[int, int]:
        """(index, term) of the lowest index covered."""
        return self._starts[0], self._terms[0]

    @property
    def last_term(self) -> int:
        """The term of the last index."""
        return self._terms[-1]

    def at(self, index: int) -> int | None:
        """The term of `index`, None outside."""
        if not self._starts[0] <= index <= self.last_index:
            return None
        return self._terms[bisect_right(self._starts, index) - 1]

    def append(self, index: int, term: int) -> None:
        """Add the next index."""
        assert index == self.last_index + 1, (index, self.last_index)
        assert term >= self._terms[-1], (term, self._terms[-1])
        if term != self._terms[-1]:
            self._starts.append(index)
            self._terms.append(term)
        self.last_index = index

    def extend(self, runs: Iterable[tuple[int, int]], last_index: int) -> None:
        """Add runs (first index, term), of which the last reaches to `last_index`."""
        for index, term in runs:
            assert term >= self._terms[-1], (term, self._terms[-1])
            if term != self._terms[-1]:
                self._starts.append(index)
                self._terms.append(term)
        assert last_index >= self.last_index
        self.last_index = last_index

    def correct(self, index: int, term: int) -> None:
        """The term of `index`, which was damaged, is known now; what follows it up to the next run was guessed from it.

        Does nothing outside of what is covered.
        """
        if self.at(index) in {None, term} or index == self._starts[0]:
            return
        place = bisect_right(self._starts, index)
        self._starts.insert(place, index)
        self._terms.insert(place, term)
        runs: list[tuple[int, int]] = []
        for run in sorted(dict(zip(self._starts, self._terms, strict=True)).items()):
            if not runs or runs[-1][1] != run[1]:
                runs.append(run)
        self._starts, self._terms = [start for start, _ in runs], [found for _, found in runs]

    def cut_from(self, index: int) -> None:
        """Forget `index` and everything after it; the boundary stays."""
        assert index > self._starts[0]
        while self._starts[-1] >= index:
            self._starts.pop()
            self._terms.pop()
        self.last_index = index - 1

    def drop_before(self, index: int) -> None:
        """Make `index` the boundary; it must be covered."""
        term = self.at(index)
        assert term is not None
        gone = bisect_right(self._starts, index) - 1
        del self._starts[:gone], self._terms[:gone]
        self._starts[0] = index
