"""The columns of a stream's messages, by sequence, as C sees them. See _chunks.pyx."""

from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    CHUNK_BITS = 8                 # 256 messages, 4 KiB: what a message costs that alone is left of its neighbours
    CHUNK_MESSAGES = 256
    CHUNK_MASK = 255

cdef struct Chunk:                 # of CHUNK_MESSAGES consecutive sequences
    uint32_t subject[256]          # id of the subject, 0 = not live
    uint32_t offset[256]           # of the record in its block, bytes
    uint32_t next[256]             # distance to the next message of the subject; 0 = none or not known
    uint32_t size[256]             # what the message counts for max_bytes

cdef struct Shelf:
    Chunk *chunk                   # NULL when nothing in it is live
    uint64_t live

cdef class ChunkTable:
    cdef Shelf *shelves
    cdef uint64_t base             # number (seq >> CHUNK_BITS) of the first shelf
    cdef size_t count
    cdef size_t capacity
    cdef size_t held               # chunks allocated

    cdef inline Chunk *at(self, uint64_t seq) noexcept:
        cdef uint64_t number = seq >> CHUNK_BITS
        if number < self.base or number - self.base >= self.count:
            return NULL
        return self.shelves[number - self.base].chunk

    cdef inline uint32_t subject_of(self, uint64_t seq) noexcept:
        cdef Chunk *chunk = self.at(seq)
        return 0 if chunk == NULL else chunk.subject[seq & CHUNK_MASK]

    cdef int put(self, uint64_t seq, uint32_t subject_id, uint32_t offset, uint32_t size) except -1
    cdef void drop(self, uint64_t seq) noexcept
    cdef void give_back(self, uint64_t seq) noexcept
    cdef void forget(self, uint64_t low, uint64_t high) noexcept
    cdef uint64_t find_live(self, uint64_t low, uint64_t high) noexcept
    cdef uint64_t find_dead(self, uint64_t low, uint64_t high) noexcept
    cdef uint64_t find_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept
    cdef uint64_t count_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept
    cdef uint64_t count_live(self, uint64_t low, uint64_t high) noexcept
    cdef void _free(self, size_t position) noexcept
    cdef int _make_room(self, uint64_t number) except -1
