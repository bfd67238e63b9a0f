"""The headers of an answer in columns, as C sees them. See _column_headers.pyx."""

from libc.stdint cimport uint8_t, uint32_t

from jetraft.cluster.streams.gets._column_buffers cimport Grown

cdef enum:
    TAKEN = 1                           # the message has headers
    NONE_THERE = 0
    UNUSUAL = -1                        # columns cannot hold them
    NO_ROOM = -2

cdef class HeaderColumns:
    cdef uint32_t messages              # that have headers
    cdef uint32_t names                 # of all messages so far
    cdef uint32_t values
    cdef Grown name_ends, name_text, value_counts, value_ends, value_text

    cdef int take(self, const uint8_t *block, size_t length, size_t room, size_t *cost) except? -3
    cdef size_t size(self) noexcept
    cdef uint8_t *write(self, uint8_t *out) noexcept
