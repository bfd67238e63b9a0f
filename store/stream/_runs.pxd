"""Ascending sequences as runs, as C sees them. See _runs.pyx."""

from libc.stdint cimport uint64_t

cdef struct Run:
    uint64_t first
    uint64_t count                 # at least 1; the next run begins above first + count

cdef class Runs:
    cdef Run *runs
    cdef size_t run_count
    cdef size_t capacity               # runs
    cdef size_t total              # sequences

    # Add the sequences first..first+count-1, all above what there is; count is at least 1.
    cdef int put(self, uint64_t first, uint64_t count) except -1
    cdef uint64_t low(self) noexcept      # the first sequence, 0 for none
    cdef uint64_t high(self) noexcept     # the last sequence, 0 for none

# The runs of sequences in any order, repeats included; sorts them where they are.
cdef Runs runs_of_any(uint64_t *seqs, size_t count)
