"""Prefetches the memory that the next records of a frame access. See _lookahead.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jetraft.store.stream._chunks cimport ChunkTable
from jetraft.store.frames._frame cimport Record
from jetraft.store.stream._subjtree cimport SubjectTree

cdef enum:
    LOOKAHEAD_RECORDS = 32         # their cache lines, about 200, fit into the L1 cache many times

cdef struct Upcoming:
    Record record
    uint32_t code                  # hash of its subject
    uint32_t subject_id            # most likely; 0 = unknown

cdef uint32_t look_ahead(const uint8_t *frame, size_t size, size_t *at, uint32_t count, SubjectTree tree,
                         Upcoming *upcoming) noexcept
cdef void fetch_chains(const Upcoming *upcoming, uint32_t count, SubjectTree tree, ChunkTable chunks,
                       uint64_t count_max) noexcept
cdef void fetch_doomed(const uint64_t *seqs, size_t count, SubjectTree tree, ChunkTable chunks) noexcept
cdef void fetch_oldest(uint64_t seq, uint32_t count, SubjectTree tree, ChunkTable chunks) noexcept
