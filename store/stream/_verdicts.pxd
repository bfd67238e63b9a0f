"""What a filter set knows about subjects, as C sees it. See _verdicts.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef class Verdicts:
    """The verdicts of a filter set by subject id; the index resets a verdict when the id is reused."""
    cdef uint8_t *verdicts         # by id: 0 not evaluated, 1 refused, 2 admitted
    cdef uint32_t verdict_end
    cdef int cover(self, uint32_t id_end) except -1
    cdef void forget(self) noexcept
