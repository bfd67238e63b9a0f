"""What a filter set knows about subjects, as C sees it. See _verdicts.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef class Verdicts:
    """What a filter set has found out about each subject id; the index forgets a verdict when the id changes hands."""
    cdef uint8_t *verdicts         # by id: 0 not asked, 1 refused, 2 admitted
    cdef uint32_t verdict_end
    cdef int cover(self, uint32_t id_end) except -1
