"""Which chunks of a stream's messages are held, by number, as C sees them. See _shelves.pyx."""

from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    CHUNK_BITS = 8                 # 256 sequences have the same chunk number, seq >> CHUNK_BITS
    CHUNK_MESSAGES = 256
    CHUNK_MASK = 255

cdef struct Shelf:                 # of one chunk; an empty shelf has no cells
    uint32_t *cells                # columns of `width` rows: see _chunks.pxd
    uint32_t live                  # messages; of an empty shelf: shelves up to where the next full one may be
    uint32_t width                 # rows; of an empty shelf: shelves down to where the next full one may be

cdef class Shelves:
    # Parallel arrays, start..count-1 in use, numbers ascending:
    cdef uint64_t *numbers
    cdef Shelf *shelves
    cdef size_t start
    cdef size_t count
    cdef size_t capacity
    cdef size_t empty              # of start..count-1
    # The newest shelves whose numbers have no gap, which are found without a search:
    cdef Shelf *dense
    cdef uint64_t dense_base       # number of the first of them
    cdef uint64_t dense_count

    cdef inline Shelf *shelf_of(self, uint64_t seq) noexcept:
        """The shelf of a sequence, which may be empty, or NULL."""
        cdef uint64_t number = seq >> CHUNK_BITS
        if number - self.dense_base < self.dense_count:
            return &self.dense[number - self.dense_base]
        return self._search(number)

    cdef Shelf *add(self, uint64_t number) except NULL
    cdef void clear_out(self, size_t position) noexcept
    cdef void drop_below(self, size_t position) noexcept
    cdef size_t position_from(self, uint64_t number) noexcept
    cdef size_t full_from(self, size_t position) noexcept
    cdef size_t full_upto(self, size_t end) noexcept
    cdef Shelf *_search(self, uint64_t number) noexcept
    cdef int _reserve(self, size_t more) except -1
    cdef void _append(self, uint64_t number) noexcept
    cdef void _close_up(self) noexcept
    cdef void _find_dense(self, size_t from_position) noexcept
