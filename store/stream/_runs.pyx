# cython: language_level=3
"""Ascending sequences as runs (first, count), for messages that are delivered, acknowledged or removed together.

Messages are mostly delivered and acknowledged in order, so a thousand of them are one run. Loops over the sequences are
in C (`cimport Runs`); Python passes runs on and reads their ends. Runs are never adjacent and never overlap, so equal
sets have equal runs.

Packed form: the varint pairs of `_seqset.pyx`, gaps counted from 0.
"""

from collections.abc import Sequence

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport UINT64_MAX, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from jetraft.store.stream._seqset cimport PackedRanges, RangePacker

cdef enum:
    CAPACITY_MIN = 4
    HEAD_BYTES_MAX = 5      # of a msgpack array
    NUMBER_BYTES_MAX = 9
    DIGITS = 1 << 16
    FEW = 1 << 16           # sequences that are sorted by comparison

cdef uint64_t SEQ_MAX = UINT64_MAX - 1      # so that every set can be packed and unpacked


cdef class Runs:
    """A growing set of ascending sequences. Also a Sequence[int], which is slower."""

    def __init__(self, seqs=()):
        """The given sequences, which must be strictly ascending."""
        cdef uint64_t seq
        for seq in seqs:
            self.put(seq, 1)

    def __dealloc__(self):
        free(self.runs)

    @staticmethod
    def unpack(bytes packed not None):
        """The runs that `pack` returned. Raises ValueError when the bytes are damaged."""
        cdef Runs runs = Runs()
        cdef PackedRanges ranges = PackedRanges(packed, 0)
        while ranges.low != UINT64_MAX:
            if runs.run_count and ranges.low == runs.high() + 1:
                raise ValueError("runs of sequences are adjacent")
            runs.put(ranges.low, ranges.high - ranges.low)
            ranges._step()
        return runs

    def pack(self):
        """The runs as bytes: two to four bytes for most runs."""
        cdef RangePacker packer = RangePacker(0)
        cdef size_t i
        for i in range(self.run_count):
            packer.add(self.runs[i].first, self.runs[i].first + self.runs[i].count)
        return packer.packed()

    def pack_list(self):
        """The sequences as a msgpack array of numbers, as msgpack's own packer writes a list of them. Raises MemoryError."""
        cdef size_t i
        cdef uint64_t seq
        cdef bytes room = PyBytes_FromStringAndSize(NULL, HEAD_BYTES_MAX + <Py_ssize_t>self.total * NUMBER_BYTES_MAX)
        cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(room)
        cdef uint8_t *at = start
        if self.total < 16:
            at[0] = <uint8_t>(0x90 | self.total)
            at += 1
        elif self.total < 1 << 16:
            at = put_big(at, 0xdc, self.total, 2)
        else:
            at = put_big(at, 0xdd, self.total, 4)
        with nogil:
            for i in range(self.run_count):
                for seq in range(self.runs[i].first, self.runs[i].first + self.runs[i].count):
                    if seq < 128:
                        at[0] = <uint8_t>seq
                        at += 1
                    elif seq < 1 << 8:
                        at = put_big(at, 0xcc, seq, 1)
                    elif seq < 1 << 16:
                        at = put_big(at, 0xcd, seq, 2)
                    elif seq < <uint64_t>1 << 32:
                        at = put_big(at, 0xce, seq, 4)
                    else:
                        at = put_big(at, 0xcf, seq, 8)
        return room[: at - start]

    @property
    def first(self):
        """The lowest sequence, 0 for none."""
        return self.low()

    @property
    def last(self):
        """The highest sequence, 0 for none."""
        return self.high()

    def spans(self):
        """[(first, count)] of the runs."""
        cdef size_t i
        return [(self.runs[i].first, self.runs[i].count) for i in range(self.run_count)]

    def append(self, uint64_t seq):
        """Add one above the last."""
        self.put(seq, 1)

    def extend(self, Runs more not None):
        """Add more sequences, all above the last."""
        cdef size_t i
        for i in range(more.run_count):
            self.put(more.runs[i].first, more.runs[i].count)

    def above(self, uint64_t seq):
        """The sequences above `seq`."""
        cdef Runs out = Runs()
        cdef size_t i = self.run_count
        cdef uint64_t low
        while i and self.runs[i - 1].first + self.runs[i - 1].count - 1 > seq:
            i -= 1
        for i in range(i, self.run_count):
            low = max(self.runs[i].first, seq + 1)
            out.put(low, self.runs[i].first + self.runs[i].count - low)
        return out

    def part(self, size_t start, size_t count):
        """Up to `count` sequences from the `start`-th on."""
        cdef Runs out = Runs()
        cdef size_t i
        cdef uint64_t length
        for i in range(self.run_count):
            if count == 0:
                break
            length = self.runs[i].count
            if start >= length:
                start -= length
                continue
            length = min(length - start, count)
            out.put(self.runs[i].first + start, length)
            count -= length
            start = 0
        return out

    def every(self, size_t step, size_t place):
        """Every `step`-th sequence, from the `place`-th on."""
        cdef Runs out = Runs()
        cdef size_t i
        cdef uint64_t length
        assert step > 0
        for i in range(self.run_count):
            length = self.runs[i].count
            while place < length:
                out.put(self.runs[i].first + place, 1)
                place += step
            place -= length
        return out

    def __len__(self):
        return self.total

    def __iter__(self):
        cdef size_t i
        cdef uint64_t seq
        for i in range(self.run_count):
            for seq in range(self.runs[i].first, self.runs[i].first + self.runs[i].count):
                yield seq

    def __getitem__(self, place):
        cdef size_t i
        cdef uint64_t left
        if isinstance(place, slice):
            return Runs(list(self)[place])
        if place < 0:
            place += self.total
        if not 0 <= place < self.total:
            raise IndexError(place)
        left = place
        for i in range(self.run_count):
            if left < self.runs[i].count:
                return self.runs[i].first + left
            left -= self.runs[i].count

    def __contains__(self, seq):
        cdef size_t low = 0, high = self.run_count, middle
        cdef uint64_t wanted
        if not isinstance(seq, int) or not 0 <= seq <= SEQ_MAX:
            return False
        wanted = seq
        while low < high:
            middle = (low + high) // 2
            if self.runs[middle].first + self.runs[middle].count <= wanted:
                low = middle + 1
            else:
                high = middle
        return low < self.run_count and self.runs[low].first <= wanted

    def __eq__(self, other):
        cdef Runs that
        if not isinstance(other, Runs):
            return NotImplemented
        that = other
        return self.run_count == that.run_count and (
            self.run_count == 0 or memcmp(self.runs, that.runs, self.run_count * sizeof(Run)) == 0
        )

    __hash__ = None

    def __repr__(self):
        return f"Runs({self.spans()})"

    cdef int put(self, uint64_t first, uint64_t count) except -1:
        cdef Run *last
        cdef Run *grown
        cdef size_t capacity
        assert count
        assert first + count > first
        if self.run_count:
            last = &self.runs[self.run_count - 1]
            assert last.first + last.count <= first, "sequences of runs must ascend"
            if last.first + last.count == first:
                last.count += count
                self.total += count
                return 0
        if self.run_count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
            grown = <Run *>realloc(self.runs, capacity * sizeof(Run))
            if grown == NULL:
                raise MemoryError
            self.runs = grown
            self.capacity = capacity
        self.runs[self.run_count].first = first
        self.runs[self.run_count].count = count
        self.run_count += 1
        self.total += count
        return 0

    cdef uint64_t low(self) noexcept:
        return self.runs[0].first if self.run_count else 0

    cdef uint64_t high(self) noexcept:
        if self.run_count == 0:
            return 0
        return self.runs[self.run_count - 1].first + self.runs[self.run_count - 1].count - 1


cdef inline uint8_t *put_big(uint8_t *at, uint8_t mark, uint64_t value, int size) noexcept nogil:
    cdef int i
    at[0] = mark
    for i in range(size):
        at[1 + i] = <uint8_t>(value >> (8 * (size - 1 - i)))
    return at + 1 + size


cdef int in_order(uint64_t *seqs, size_t count) except -1:
    """Sort numbers where they are, by 16 bits at a time from the lowest: as many passes as the highest needs."""
    cdef uint64_t *other
    cdef uint64_t *source = seqs
    cdef uint64_t *swap
    cdef size_t *places
    cdef size_t i, place, sum
    cdef uint64_t any_bits = 0
    cdef int shift = 0
    other = <uint64_t *>malloc(count * sizeof(uint64_t))
    places = <size_t *>calloc(DIGITS, sizeof(size_t))
    if other == NULL or places == NULL:
        free(other)
        free(places)
        raise MemoryError
    for i in range(count):
        any_bits |= seqs[i]
    while shift < 64 and any_bits >> shift:
        memset(places, 0, DIGITS * sizeof(size_t))
        for i in range(count):
            places[source[i] >> shift & (DIGITS - 1)] += 1
        sum = 0
        for i in range(DIGITS):
            place = places[i]
            places[i] = sum
            sum += place
        for i in range(count):
            place = source[i] >> shift & (DIGITS - 1)
            other[places[place]] = source[i]
            places[place] += 1
        swap = source
        source = other
        other = swap
        shift += 16
    if source != seqs:
        memcpy(seqs, source, count * sizeof(uint64_t))
        other = source
    free(other)
    free(places)
    return 0


cdef int by_value(const void *left, const void *right) noexcept nogil:
    cdef uint64_t a = (<const uint64_t *>left)[0], b = (<const uint64_t *>right)[0]
    return (a > b) - (a < b)


cdef Runs runs_of_any(uint64_t *seqs, size_t count):
    cdef Runs out = Runs()
    cdef size_t i
    for i in range(1, count):
        if seqs[i] < seqs[i - 1]:
            if count < FEW:  # counts of digits cost more than these
                qsort(seqs, count, sizeof(uint64_t), by_value)
            else:
                in_order(seqs, count)
            break
    for i in range(count):
        if i == 0 or seqs[i] != seqs[i - 1]:
            out.put(seqs[i], 1)
    return out


Sequence.register(Runs)
