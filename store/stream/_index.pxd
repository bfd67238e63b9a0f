"""Where each message of a stream is, and which subject it has, as C sees it. See _index.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jetraft.store.stream._chains cimport Chains
from jetraft.store.stream._lookahead cimport Upcoming
from jetraft.store.stream._quota cimport Quota
from jetraft.store.stream._seqset cimport PackedRanges
from jetraft.store.stream._spans cimport Place, SpanTable

cdef enum:
    REMOVED_LOG_MESSAGES = 1024    # as long as the quarantine of an id: see SubjectTree.release

cdef struct Removed:
    uint64_t seq
    uint32_t subject

cdef class Index(Chains):
    cdef readonly SpanTable spans
    cdef Removed *removed          # ring of the last removals, NULL until a filter set counts
    cdef list watchers             # of Verdicts
    cdef readonly list remains              # trees and chunks from before the index began anew, which are freed a part at a time
    cdef public uint64_t large     # as many messages are not removed one by one, where there is another way; tests lower it
    cdef readonly uint32_t anew    # how often it has; subjects have other ids then
    cdef readonly uint64_t message_bytes
    cdef readonly int64_t last_ts_ns
    cdef uint64_t max_msgs
    cdef uint64_t max_bytes
    cdef uint64_t max_msgs_per_subject
    cdef Quota quota               # bytes by subject; None without a limit
    cdef readonly bytes hidden     # what the subjects begin with that only a filter with `$` admits; None: nothing
    cdef uint32_t overhead_bytes
    cdef uint32_t hdr_overhead_bytes

    cdef bint place_of(self, uint64_t seq, Place *out) noexcept
    cdef uint64_t _bytes_of(self, uint32_t subject_id, int64_t *visits) noexcept
    cdef int watch_removals(self) except -1
    cdef int load_frame(self, const uint8_t *frame, size_t size, uint32_t block, uint32_t frame_offset,
                        PackedRanges dead) except -1
    cdef int put(self, uint64_t seq, uint32_t frame_offset, const Upcoming *upcoming) except -1
    cdef int drop(self, uint64_t seq) except -1
    cdef uint64_t drop_subject(self, uint32_t subject_id, uint64_t below_seq) except? 0
    cdef int begin_anew(self, uint64_t seq) except -1
    cdef int drop_some(self, const uint64_t *seqs, size_t count, list dropped) except -1
    cdef int drop_first(self) except -1
    cdef int enforce_subject(self, uint32_t subject_id) except -1
    cdef int set_quota(self, bytes_max) except -1
    cdef int enforce_totals(self) except -1
    cdef void _forget_before(self, uint64_t seq) noexcept
    cdef void _skip_to(self, uint64_t seq) noexcept
