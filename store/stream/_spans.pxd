"""Which block a sequence is in, and which frame an offset is in, as C sees them. See _spans.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef struct Span:                  # the messages of one block
    uint64_t first_seq
    int64_t first_ts_ns
    uint32_t block                 # the log's number of the block
    uint32_t frame_count
    uint32_t frame_capacity
    uint32_t *frames               # offsets of its MESSAGES frames, ascending

cdef struct Place:
    uint32_t block
    uint32_t frame_offset          # in the block
    uint32_t record_offset         # in the frame

cdef class SpanTable:
    cdef Span *spans
    cdef size_t count
    cdef size_t capacity

    cdef int enter(self, uint64_t first_seq, int64_t ts_ns, uint32_t block, uint32_t frame_offset) except -1
    cdef bint find(self, uint64_t seq, uint32_t offset, Place *out) noexcept
    cdef void forget_before(self, uint64_t seq) noexcept
    cdef size_t _at(self, uint64_t seq) noexcept
    cdef Span *_begin_span(self) except NULL
