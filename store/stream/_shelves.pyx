# cython: language_level=3
"""A sparse array of chunks by number: a sorted array of shelves, 24 bytes each, one for each allocated chunk.

Sequences may be 2**62 apart, so memory must not depend on their distance. Most accesses are to the newest shelves,
whose numbers have no gap and are found by subtraction; the others are found by binary search.

A chunk that is freed leaves its shelf empty, so that positions stay valid; empty shelves are removed when there are
more of them than full ones. An empty shelf has a lower bound of the distance to the next full one, up and down, and
each search over it improves the bound (path compression, as in union-find), so a gap is skipped in amortized one step.

Invariants: numbers ascend; the newest shelf is full; at most half of the shelves, and SLACK, are empty.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

cdef enum:
    CAPACITY_MIN = 8
    SLACK = 8               # empty shelves that are always allowed
    BRIDGE_MAX = 8          # gaps up to this length are filled with empty shelves, which subtraction can cross


cdef class Shelves:
    """Shelves of chunks. Positions count from the oldest, and are valid until a shelf is added or cleared out."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.start, self.count):
            free(self.shelves[i].cells)
        free(self.shelves)
        free(self.numbers)

    cdef Shelf *add(self, uint64_t number) except NULL:
        """Add an empty shelf above all others; the caller fills it."""
        cdef uint64_t gap = 0
        if self.count > self.start:
            assert number > self.numbers[self.count - 1]
            gap = number - self.numbers[self.count - 1] - 1
        if gap > BRIDGE_MAX or (self.empty + gap) * 2 > self.count - self.start:
            gap = 0
        self._reserve(<size_t>gap + 1)
        while gap:
            self._append(number - gap)
            self.empty += 1
            gap -= 1
        self._append(number)
        return &self.shelves[self.count - 1]

    cdef void clear_out(self, size_t position) noexcept:
        """Free the cells of a shelf that is not the newest; all positions become invalid."""
        free(self.shelves[position].cells)
        self.shelves[position].cells = NULL
        self.shelves[position].live = self.shelves[position].width = 1
        self.empty += 1
        if self.empty * 2 > self.count - self.start + SLACK:
            self._close_up()

    cdef void drop_below(self, size_t position) noexcept:
        """Drop the shelves below a position with their chunks. The rest moves when half are gone: once per shelf."""
        cdef size_t i, kept
        for i in range(self.start, position):
            self.empty -= self.shelves[i].cells == NULL
            free(self.shelves[i].cells)
        self.start = position
        kept = self.count - self.start
        if self.start >= kept:
            memmove(self.shelves, self.shelves + self.start, kept * sizeof(Shelf))
            memmove(self.numbers, self.numbers + self.start, kept * sizeof(uint64_t))
            self.start = 0
            self.count = kept
        self._find_dense(self.count - <size_t>min(self.dense_count, <uint64_t>kept))

    cdef size_t position_from(self, uint64_t number) noexcept:
        """The position of the first shelf at or above a number, `count` when there is none."""
        cdef size_t low = self.start, high, middle
        if number - self.dense_base < self.dense_count:
            return self.count - <size_t>(self.dense_base + self.dense_count - number)
        if number >= self.dense_base:
            return self.count
        high = self.count - <size_t>self.dense_count
        # Numbers ascend by one at least, which bounds the distance from either end.
        if low < high and number > self.numbers[low] and number - self.numbers[low] < high - low:
            high = low + <size_t>(number - self.numbers[low])
        while low < high:
            middle = (low + high) // 2
            if self.numbers[middle] < number:
                low = middle + 1
            else:
                high = middle
        return low

    cdef size_t full_from(self, size_t position) noexcept:
        """The first full shelf from a position on, `count` when there is none."""
        cdef size_t at = position, step
        while at < self.count and self.shelves[at].cells == NULL:
            at += self.shelves[at].live
        while position < at:
            step = self.shelves[position].live
            self.shelves[position].live = <uint32_t>(at - position)
            position += step
        return at

    cdef size_t full_upto(self, size_t end) noexcept:
        """One past the last full shelf below `end`; `start` when there is none."""
        cdef size_t at = end, step
        while at > self.start and self.shelves[at - 1].cells == NULL:
            at -= min(<size_t>self.shelves[at - 1].width, at - self.start)
        while end > at:
            step = min(<size_t>self.shelves[end - 1].width, end - at)
            self.shelves[end - 1].width = <uint32_t>(end - at)
            end -= step
        return at

    cdef Shelf *_search(self, uint64_t number) noexcept:
        cdef size_t position = self.position_from(number)
        if position < self.count and self.numbers[position] == number:
            return &self.shelves[position]
        return NULL

    cdef int _reserve(self, size_t more) except -1:
        cdef size_t capacity = self.capacity
        cdef Shelf *shelves
        cdef uint64_t *numbers
        if self.count + more <= capacity:
            return 0
        capacity = max(self.count + more, capacity * 2, <size_t>CAPACITY_MIN)
        shelves = <Shelf *>realloc(self.shelves, capacity * sizeof(Shelf))
        if shelves == NULL:
            raise MemoryError
        self.shelves = shelves
        self.dense = shelves + self.count - self.dense_count
        numbers = <uint64_t *>realloc(self.numbers, capacity * sizeof(uint64_t))
        if numbers == NULL:
            raise MemoryError
        self.numbers = numbers
        self.capacity = capacity
        return 0

    cdef void _append(self, uint64_t number) noexcept:
        """Append an empty shelf; the capacity suffices."""
        cdef Shelf *shelf = &self.shelves[self.count]
        shelf.cells = NULL
        shelf.live = shelf.width = 1
        self.numbers[self.count] = number
        if self.dense_count == 0 or number != self.dense_base + self.dense_count:
            self.dense = shelf
            self.dense_base = number
            self.dense_count = 0
        self.dense_count += 1
        self.count += 1

    cdef void _close_up(self) noexcept:
        """Remove the empty shelves."""
        cdef size_t i, kept = 0, newest = 0
        for i in range(self.start, self.count):
            if self.shelves[i].cells != NULL:
                self.shelves[kept] = self.shelves[i]
                self.numbers[kept] = self.numbers[i]
                if kept == 0 or self.numbers[kept] != self.numbers[kept - 1] + 1:
                    newest = kept
                kept += 1
        self.start = self.empty = 0
        self.count = kept
        self._find_dense(newest)

    cdef void _find_dense(self, size_t from_position) noexcept:
        """Set the start of the dense part: the lowest position, at or after this one, from which there is no gap."""
        self.dense = self.shelves + from_position
        self.dense_count = self.count - from_position
        self.dense_base = self.numbers[from_position] if self.dense_count else 0
