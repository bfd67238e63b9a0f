"""Where each message of a stream is, and which subject it has, as C sees it. See _index.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jetraft.store._chunks cimport ChunkTable
from jetraft.store._lookahead cimport Upcoming
from jetraft.store._seqset cimport PackedRanges
from jetraft.store._spans cimport Place, SpanTable
from jetraft.store._subjtree cimport SubjectTree

cdef enum:
    REMOVED_LOG_MESSAGES = 1024    # as many as an id rests: see SubjectTree.release

cdef struct Removed:
    uint64_t seq
    uint32_t subject

cdef class Verdicts:
    """What a filter set has found out about each subject id; the index forgets a verdict when the id changes hands."""
    cdef uint8_t *verdicts         # by id: 0 not asked, 1 refused, 2 admitted
    cdef uint32_t verdict_end
    cdef int cover(self, uint32_t id_end) except -1

cdef class Index:
    cdef readonly SubjectTree tree
    cdef readonly ChunkTable chunks
    cdef readonly SpanTable spans
    cdef Removed *removed          # ring of the last removals, NULL until a filter set counts
    cdef list watchers             # of Verdicts
    cdef readonly uint64_t first_seq   # lowest live sequence, last_seq + 1 when there is none
    cdef readonly uint64_t last_seq
    cdef readonly uint64_t messages
    cdef readonly uint64_t message_bytes
    cdef readonly int64_t last_ts_ns
    cdef uint64_t max_msgs
    cdef uint64_t max_bytes
    cdef uint64_t max_msgs_per_subject
    cdef uint32_t overhead_bytes
    cdef uint32_t hdr_overhead_bytes

    cdef bint place_of(self, uint64_t seq, Place *out) noexcept
    cdef uint64_t last_live(self) noexcept
    cdef uint64_t count_all(self, uint64_t low) noexcept
    cdef uint64_t follow(self, uint64_t seq, uint32_t subject_id) noexcept
    cdef uint64_t first_from(self, uint32_t subject_id, uint64_t low) noexcept
    cdef uint64_t last_upto(self, uint32_t subject_id, uint64_t high) noexcept
    cdef int watch_removals(self) except -1
    cdef int load_frame(self, const uint8_t *frame, size_t size, uint32_t block, uint32_t frame_offset,
                        PackedRanges dead) except -1
    cdef int put(self, uint64_t seq, uint32_t frame_offset, const Upcoming *upcoming) except -1
    cdef int drop(self, uint64_t seq) except -1
    cdef int drop_some(self, const uint64_t *seqs, size_t count, list dropped) except -1
    cdef int drop_first(self) except -1
    cdef int enforce_subject(self, uint32_t subject_id) except -1
    cdef int enforce_totals(self) except -1
    cdef void _forget_before(self, uint64_t seq) noexcept
    cdef void _skip_to(self, uint64_t seq) noexcept
