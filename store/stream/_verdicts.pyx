# cython: language_level=3
"""The verdicts of a filter set: a byte for each subject id, owned by the set and reset by the index."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef class Verdicts:
    """The verdicts of a filter set by subject id."""

    def __dealloc__(self):
        free(self.verdicts)

    cdef int cover(self, uint32_t id_end) except -1:
        """Extend the table to the ids below `id_end`."""
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

    cdef void forget(self) noexcept:
        """All ids are of other subjects from now on."""
        free(self.verdicts)
        self.verdicts = NULL
        self.verdict_end = 0

    @property
    def memory_bytes(self):
        """Bytes allocated: one for each subject id."""
        return self.verdict_end
