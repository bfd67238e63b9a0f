"""Bytes by subject, as C sees them. See _quota.pyx."""

from libc.stdint cimport uint32_t, uint64_t

cdef class Quota:
    cdef uint64_t *totals          # by subject id
    cdef uint32_t end              # ids that have a place
    cdef uint64_t bytes_max

    cdef bint add(self, uint32_t subject_id, uint32_t size) except -1
    cdef uint64_t of(self, uint32_t subject_id) noexcept
    cdef void take(self, uint32_t subject_id, uint32_t size) noexcept
