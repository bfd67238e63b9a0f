"""Deliveries that wait for an ack, as C sees them. See _unacked.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef struct Unacked:
    uint64_t seq                   # stream sequence
    uint64_t consumer_seq          # of the first delivery
    int64_t at_ns                  # a time; the owner of the table defines its meaning
    uint32_t count                 # deliveries so far; 0: acknowledged, the row is dead

cdef class UnackedTable:
    cdef Unacked *data             # ascending by seq
    cdef size_t head               # the first live row, or `end`
    cdef size_t end
    cdef size_t capacity
    cdef size_t live
    cdef size_t redelivered        # live rows with a count above 1
    cdef size_t hint               # where the next search is likely to end

    cdef Unacked *find(self, uint64_t seq) noexcept
    cdef size_t place_above(self, uint64_t seq) noexcept
    cdef int append_row(self, uint64_t seq, uint64_t consumer_seq, int64_t at_ns, uint32_t count) except -1
    cdef int reserve(self, size_t more) except -1
    cdef void kill(self, Unacked *row) noexcept
    cdef void tidy(self) noexcept
