"""The columns of a stream's messages, by sequence, as C sees them. See _chunks.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jetraft.store.stream._shelves cimport CHUNK_BITS, CHUNK_MASK, CHUNK_MESSAGES, Shelf, Shelves

cdef enum:
    FAR = 0xFFFFFFFF               # a distance that does not fit: unknown
    PACK_AT = 32                   # a chunk is packed when this many of its messages are live, an eighth

cdef struct Row:                   # of one message; valid until a message is put or a chunk given back
    uint32_t *subject              # id of the subject, 0 = not live
    uint32_t *offset               # of the record in its block, bytes
    uint32_t *next                 # distance to the next message of the subject; 0 = none or unknown
    uint32_t *size                 # bytes that the message counts for max_bytes
    Shelf *shelf                   # of its chunk

cdef struct Stretch:               # rows of one chunk, ascending, for a scan
    const uint32_t *subject
    size_t count
    const uint8_t *packed          # the low bits of their sequences; NULL when these are consecutive
    uint64_t low                   # of the first row; of a packed one: of the chunk
    uint64_t end                   # where the scan continues
    const Shelf *shelf

cdef inline uint64_t seq_in(const Stretch *stretch, size_t place) noexcept:
    """The sequence of a row of a stretch."""
    return stretch.low + (place if stretch.packed == NULL else stretch.packed[place])

cdef inline const uint8_t *packed_rows(const Shelf *shelf) noexcept:
    """The rows of a packed chunk, ascending: the low bits of their sequences, after the columns."""
    return <const uint8_t *>(shelf.cells + 4 * <size_t>shelf.width)

cdef size_t place_packed(const Shelf *shelf, size_t row) noexcept

cdef class ChunkTable(Shelves):
    cdef size_t cell_bytes         # allocated

    cdef inline bint row(self, uint64_t seq, Row *out) noexcept:
        """The row of a sequence, live or not; False when none is held."""
        cdef Shelf *shelf = self.shelf_of(seq)
        cdef size_t place = seq & CHUNK_MASK
        out.subject = out.offset = out.next = out.size = NULL
        out.shelf = shelf
        if shelf == NULL or shelf.cells == NULL:
            return False
        if shelf.width != CHUNK_MESSAGES:
            place = place_packed(shelf, place)
            if place == shelf.width:
                return False
        out.subject = shelf.cells + place
        out.offset = out.subject + shelf.width
        out.next = out.offset + shelf.width
        out.size = out.next + shelf.width
        return True

    cdef inline uint32_t subject_of(self, uint64_t seq) noexcept:
        cdef Row row
        return row.subject[0] if self.row(seq, &row) else 0

    cdef int put(self, uint64_t seq, uint32_t subject_id, uint32_t offset, uint32_t size) except -1
    cdef inline void drop(self, Row *row) noexcept:
        """Mark a live message as removed; the rest of its row stays readable until the chunk is given back."""
        row.subject[0] = 0
        row.shelf.live -= 1

    cdef inline void give_back(self, Shelf *shelf) noexcept:
        """Free a chunk without live messages, or pack one with few; the newest chunk stays for new messages."""
        if shelf.live <= PACK_AT and shelf != &self.shelves[self.count - 1]:
            self._shrink(shelf)

    cdef void forget_before(self, uint64_t seq) noexcept
    cdef bint stretch_from(self, uint64_t low, uint64_t high, Stretch *out) noexcept
    cdef uint64_t held_from(self, uint64_t seq) noexcept
    cdef uint64_t held_upto(self, uint64_t seq) noexcept
    cdef uint64_t find_live(self, uint64_t low, uint64_t high) noexcept
    cdef uint64_t find_dead(self, uint64_t low, uint64_t high) noexcept
    cdef uint64_t find_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept
    cdef uint64_t count_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept
    cdef uint64_t count_live(self, uint64_t low, uint64_t high) noexcept
    cdef int _fill(self, uint64_t number) except -1
    cdef void _shrink(self, Shelf *shelf) noexcept
    cdef void _pack(self, Shelf *shelf) noexcept
