# cython: language_level=3
"""Sets of sequences as ascending runs, packed as pairs of varints (gap since the last run, length of the run).

A snapshot has the removed sequences of a stream in this form: a million scattered removals take 2 MB. Varints are
LEB128, low seven bits first.
"""

from libc.stdint cimport UINT64_MAX, uint8_t, uint64_t


cdef class RangePacker:
    """Packs runs, in ascending order, all at or above `start`."""

    def __cinit__(self, uint64_t start):
        self.out = bytearray()
        self.end = start

    cdef int add(self, uint64_t low, uint64_t high) except -1:
        """Add the run low..high-1."""
        assert self.end <= low
        assert low < high
        put_varint(self.out, low - self.end)
        put_varint(self.out, high - low)
        self.end = high
        return 0

    cdef bytes packed(self):
        """The packed runs."""
        return bytes(self.out)


cdef class PackedRanges:
    """Reads the output of a RangePacker with the same `start`. Calls of `covers` must be in ascending order."""

    def __cinit__(self, bytes data not None, uint64_t start):
        self.data = data
        self.bytes_ = <const uint8_t *><char *>data
        self.length = len(data)
        self.low = self.high = start
        self._step()

    def to_list(self):
        """[(first, last)] of the remaining runs; consumes them all."""
        out = []
        while self.low != UINT64_MAX:
            out.append((self.low, self.high - 1))
            self._step()
        return out

    cdef bint covers(self, uint64_t seq) except -1:
        """Whether a sequence is in the set. Raises ValueError when the bytes are damaged."""
        while seq >= self.high and self._step():
            pass
        return self.low <= seq < self.high

    cdef bint _step(self) except -1:
        """Advance to the next run; False at the end, where the current run becomes empty."""
        cdef uint64_t gap, run
        if self.at >= self.length:
            self.low = self.high = UINT64_MAX
            return False
        gap = take_varint(self)
        run = take_varint(self)
        if run == 0 or gap > UINT64_MAX - self.high or run > UINT64_MAX - self.high - gap:
            raise ValueError("a run of sequences is damaged")
        self.low = self.high + gap
        self.high = self.low + run
        return True


cdef void put_varint(bytearray out, uint64_t value):
    while value >= 0x80:
        out.append(<uint8_t>(value & 0x7F) | 0x80)
        value >>= 7
    out.append(<uint8_t>value)


cdef uint64_t take_varint(PackedRanges ranges) except? 0:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while ranges.at < ranges.length and shift < 64:
        byte = ranges.bytes_[ranges.at]
        ranges.at += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("a run of sequences is damaged")


def pack_ranges(runs, uint64_t start):
    """Pack [(first, last)], ascending, all at or above `start`."""
    packer = RangePacker(start)
    for first, last in runs:
        packer.add(first, last + 1)
    return packer.packed()
