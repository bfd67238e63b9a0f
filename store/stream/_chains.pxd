"""Chunks of messages and the chains of their subjects. See _chains.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.store.stream._chunks cimport ChunkTable
from jetraft.store.stream._subjtree cimport SubjectTree

cdef class Chains:
    cdef readonly SubjectTree tree
    cdef readonly ChunkTable chunks
    cdef readonly uint64_t first_seq   # lowest live sequence, last_seq + 1 when there is none
    cdef readonly uint64_t last_seq
    cdef readonly uint64_t messages

    cdef uint64_t last_live(self) noexcept
    cdef uint64_t count_all(self, uint64_t low) noexcept
    cdef uint64_t follow(self, uint64_t seq, uint32_t subject_id) noexcept
    cdef uint64_t first_from(self, uint32_t subject_id, uint64_t low) noexcept
    cdef uint64_t last_upto(self, uint32_t subject_id, uint64_t high) noexcept
