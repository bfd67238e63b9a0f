# cython: language_level=3
"""How many bytes the live messages of each subject count, for streams that limit them (`jetraft.max_bytes_per_subject`).

Eight bytes for each subject id, in an array beside the subjects, so that a stream without the limit pays nothing. An id
that is free has 0.
"""

from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef class Quota:
    """The totals, and what they may be."""

    def __cinit__(self):
        self.bytes_max = UINT64_MAX

    def __dealloc__(self):
        free(self.totals)

    cdef bint add(self, uint32_t subject_id, uint32_t size) except -1:
        """Count a message; whether its subject has too much."""
        cdef uint32_t wanted
        cdef uint64_t *grown
        if subject_id >= self.end:
            wanted = max(2 * self.end, subject_id + 64)
            grown = <uint64_t *>realloc(self.totals, wanted * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError
            memset(grown + self.end, 0, (wanted - self.end) * sizeof(uint64_t))
            self.totals, self.end = grown, wanted
        self.totals[subject_id] += size
        return self.totals[subject_id] > self.bytes_max

    cdef uint64_t of(self, uint32_t subject_id) noexcept:
        """The bytes of a subject."""
        return self.totals[subject_id] if subject_id < self.end else 0

    cdef void take(self, uint32_t subject_id, uint32_t size) noexcept:
        """A message is gone."""
        self.totals[subject_id] -= size
