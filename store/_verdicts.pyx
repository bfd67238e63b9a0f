# cython: language_level=3
"""What a filter set has found out about subjects: a byte for each subject id, kept by the set, watched by the index."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef class Verdicts:
    """What a filter set has found out about each subject id."""

    def __dealloc__(self):
        free(self.verdicts)

    cdef int cover(self, uint32_t id_end) except -1:
        """Make room for the ids below `id_end`."""
        cdef uint8_t *grown
        cdef uint32_t end
        if id_end <= self.verdict_end:
            return 0
        end = max(id_end, self.verdict_end + self.verdict_end // 2, 64)
        grown = <uint8_t *>realloc(self.verdicts, end)
        if grown == NULL:
            raise MemoryError
        memset(grown + self.verdict_end, 0, end - self.verdict_end)
        self.verdicts = grown
        self.verdict_end = end
        return 0

    @property
    def memory_bytes(self):
        """Bytes allocated: one for each subject id."""
        return self.verdict_end
