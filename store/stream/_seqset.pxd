"""Sets of sequences as runs, packed into few bytes. See _seqset.pyx."""

from libc.stdint cimport uint8_t, uint64_t

cdef class RangePacker:
    cdef bytearray out
    cdef uint64_t end              # one past the last run

    cdef int add(self, uint64_t low, uint64_t high) except -1
    cdef bytes packed(self)

cdef class PackedRanges:
    cdef bytes data
    cdef const uint8_t *bytes_
    cdef size_t length
    cdef size_t at
    cdef uint64_t low              # the current run is low..high-1
    cdef uint64_t high

    cdef bint covers(self, uint64_t seq) except -1
    cdef bint _step(self) except -1
