# cython: language_level=3
"""Maps a sequence to its block, and an offset to its frame: two sorted tables with binary search.

A message is located by the offset of its record in its block, but the log reads and verifies whole frames. So this
table has the offsets of each block's MESSAGES frames, four bytes each; the last one at or before a record is its frame.

Invariants: spans ascend by first_seq and by first_ts_ns; the frames of a span ascend; a block has one span.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

cdef enum:
    CAPACITY_MIN = 8


cdef class SpanTable:
    """The blocks of one stream's log that have messages, oldest first."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.count):
            free(self.spans[i].frames)
        free(self.spans)

    def time_window(self, int64_t ts_ns):
        """(low, high): the first message at or after `ts_ns` is in low..high-1, or it is the first one from `high` on.

        `high` is None at the end. None when there are no messages.
        """
        cdef size_t low = 0, high = self.count, middle
        if self.count == 0:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self.spans[middle].first_ts_ns < ts_ns:
                low = middle
            else:
                high = middle
        return self.spans[low].first_seq, self.spans[low + 1].first_seq if low + 1 < self.count else None

    @property
    def frames(self):
        """The number of MESSAGES frames."""
        cdef size_t i, total = 0
        for i in range(self.count):
            total += self.spans[i].frame_count
        return total

    @property
    def memory_bytes(self):
        """Bytes allocated."""
        cdef size_t i, total = self.capacity * sizeof(Span)
        for i in range(self.count):
            total += self.spans[i].frame_capacity * sizeof(uint32_t)
        return total

    cdef int enter(self, uint64_t first_seq, int64_t ts_ns, uint32_t block, uint32_t frame_offset) except -1:
        """Add a frame after all others; `first_seq` and `ts_ns` are those of its first record."""
        cdef Span *span = &self.spans[self.count - 1] if self.count else NULL
        cdef uint32_t *frames
        cdef size_t capacity
        if span == NULL or span.block != block:
            span = self._begin_span()
            span.first_seq = first_seq
            span.first_ts_ns = ts_ns
            span.block = block
        assert span.frame_count == 0 or frame_offset > span.frames[span.frame_count - 1]
        if span.frame_count == span.frame_capacity:
            capacity = span.frame_capacity + span.frame_capacity // 2 + CAPACITY_MIN
            frames = <uint32_t *>realloc(span.frames, capacity * sizeof(uint32_t))
            if frames == NULL:
                raise MemoryError
            span.frames = frames
            span.frame_capacity = <uint32_t>capacity
        span.frames[span.frame_count] = frame_offset
        span.frame_count += 1
        return 0

    cdef bint find(self, uint64_t seq, uint32_t offset, Place *out) noexcept:
        """The place of the record of `seq`, which is at `offset` of its block."""
        cdef Span *span = &self.spans[self._at(seq)]
        cdef size_t low = 0, high = span.frame_count, middle
        while high - low > 1:
            middle = (low + high) // 2
            if span.frames[middle] <= offset:
                low = middle
            else:
                high = middle
        out.block = span.block
        out.frame_offset = span.frames[low]
        out.record_offset = offset - span.frames[low]
        return True

    cdef void forget_before(self, uint64_t seq) noexcept:
        """Drop the spans without sequences at or above `seq`; the newest stays, the next frame may be in its block."""
        cdef size_t gone, i
        if self.count < 2 or self.spans[1].first_seq > seq:
            return
        gone = self._at(seq)
        for i in range(gone):
            free(self.spans[i].frames)
        memmove(self.spans, self.spans + gone, (self.count - gone) * sizeof(Span))
        self.count -= gone

    cdef size_t _at(self, uint64_t seq) noexcept:
        """The position of the span of `seq`: the last one that starts at or before it."""
        cdef size_t low = 0, high = self.count, middle
        while high - low > 1:
            middle = (low + high) // 2
            if self.spans[middle].first_seq <= seq:
                low = middle
            else:
                high = middle
        return low

    cdef Span *_begin_span(self) except NULL:
        """Append a span for the next block, and free the unused capacity of the last one."""
        cdef Span *last
        cdef Span *grown
        cdef uint32_t *frames
        cdef size_t capacity
        if self.count:
            last = &self.spans[self.count - 1]
            frames = <uint32_t *>realloc(last.frames, last.frame_count * sizeof(uint32_t))
            if frames != NULL:
                last.frames = frames
                last.frame_capacity = last.frame_count
        if self.count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
            grown = <Span *>realloc(self.spans, capacity * sizeof(Span))
            if grown == NULL:
                raise MemoryError
            self.spans = grown
            self.capacity = capacity
        memset(&self.spans[self.count], 0, sizeof(Span))
        self.count += 1
        return &self.spans[self.count - 1]
