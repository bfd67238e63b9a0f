"""The live subjects of one stream, as C sees them. See _subjtree.pyx."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    ID_QUARANTINE_REMOVALS = 1024  # a freed id is reused only after this many later removals, see `release`

    SUBJECT_BITS = 8
    SUBJECT_STRETCH = 256  # subjects in one allocation, 16 KiB: existing ones do not move when more are added
    SUBJECT_MASK = 255
    NAME_NEAR = 34         # names up to this length are stored in the subject itself

cdef struct Subject:       # 64 bytes, one cache line
    uint64_t first_seq     # lowest live sequence; while the id is free: the next free id
    uint64_t last_seq      # highest live sequence; while the id is free: `removals` when it was freed
    uint64_t count         # live messages; 0 means that the id is free (or was just interned)
    uint32_t hash
    uint16_t length        # of the name, bytes; 0 while the id is free
    char name[34]          # NAME_NEAR: the name, or a pointer to it, see `text_of`

cdef struct Slot:          # of the hash table: linear probing, id 0 = empty
    uint32_t hash
    uint32_t id

cdef struct Branch:        # of the crit-bit tree: the first symbol bit in which the two sides differ
    uint32_t child[2]      # LEAF | subject id, or a branch number
    uint16_t position      # byte position in the subject
    uint16_t bit           # one bit of the 9-bit symbol at that position

cdef struct IdList:        # a growing array of subject ids, freed by the caller
    uint32_t *ids
    size_t count
    size_t capacity

cdef inline const char *text_of(const Subject *subject) noexcept nogil:
    """The name's bytes."""
    cdef const char *far
    if subject.length <= NAME_NEAR:
        return subject.name
    memcpy(&far, subject.name, sizeof(far))
    return far

cdef bint subject_matches(const char *filter, size_t filter_len, const char *subject, size_t subject_len) noexcept nogil
cdef bint has_wildcard(const char *filter, size_t filter_len) noexcept nogil

cdef class SubjectTree:
    cdef Subject **stretches       # by id, SUBJECT_STRETCH in each; the first of all is unused
    cdef size_t stretch_count
    cdef size_t stretch_capacity
    cdef uint32_t id_end           # ids are 1..id_end-1
    cdef size_t far_bytes          # allocated for long names
    cdef uint32_t free_head        # queue of free ids, oldest first; 0 = none
    cdef uint32_t free_tail
    cdef uint32_t live             # subjects with an id
    cdef uint64_t removals         # counted by the index: the clock of the quarantine
    cdef Slot *slots
    cdef uint32_t slot_mask
    cdef Branch *branches
    cdef uint32_t branch_end
    cdef uint32_t branch_capacity
    cdef uint32_t branch_free
    cdef uint32_t root             # 0 = empty
    cdef uint64_t seed

    cdef inline Subject *at(self, uint32_t subject_id) noexcept:
        return &self.stretches[subject_id >> SUBJECT_BITS][subject_id & SUBJECT_MASK]

    cdef bint shed(self, size_t stretches) noexcept
    cdef uint32_t code_of(self, const char *name, size_t length) noexcept
    cdef uint32_t find(self, const char *name, size_t length) noexcept
    cdef uint32_t find_coded(self, const char *name, size_t length, uint32_t code) noexcept
    cdef uint32_t intern(self, const char *name, size_t length, uint32_t code) except 0
    cdef int release(self, uint32_t subject_id) except -1
    cdef int collect(self, const char *filter, size_t filter_len, IdList *out) except -1
    cdef int64_t collect_some(self, const char *filter, size_t filter_len, IdList *out, int64_t visits) except? -2
    cdef bint admits_all(self, const char *filter, size_t filter_len) noexcept
    cdef uint32_t _take_id(self) noexcept
    cdef int _grow_ids(self) except -1
    cdef int _grow_slots(self) except -1
    cdef void _unslot(self, uint32_t subject_id) noexcept
    cdef int _graft(self, uint32_t subject_id) except -1
    cdef void _prune(self, uint32_t subject_id) noexcept
    cdef uint32_t _prefix_top(self, const char *prefix, size_t length) noexcept
