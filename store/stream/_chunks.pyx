# cython: language_level=3
"""The columns of a stream's messages, by sequence: subject, offset, distance to the subject's next message, size.

Columns are stored in chunks of 256 sequences (decision 17). A scan over one column is sequential in memory, and chunks
without live messages, at the head, in the middle or in a gap, take no memory. The shelf of a chunk has the number of
its live messages, so counting over long ranges is a sum over shelves.

A chunk with few live messages that is not one of the newest two is packed: four columns of the live rows only, then the
number of each row as a byte, 17 bytes a message. It is packed again when half of these are removed, and never unpacked,
because messages are only added above all others. A single live message in a chunk takes about 60 bytes, with the shelf.

`drop` leaves a chunk in place, because its rows may still be read; `give_back` frees or packs it.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr

cdef extern from "_scan.h" nogil:
    size_t jetraft_find_equal(const uint32_t *values, size_t count, uint32_t wanted)
    size_t jetraft_find_live(const uint32_t *values, size_t count)
    size_t jetraft_count_equal(const uint32_t *values, size_t count, uint32_t wanted)

cdef enum:
    ROW_BYTES = 16          # of four columns


cdef size_t place_packed(const Shelf *shelf, size_t row) noexcept:
    """The place of a row in the columns of a packed chunk; its width when the chunk does not have the row."""
    cdef const uint8_t *rows = packed_rows(shelf)
    cdef const uint8_t *found = <const uint8_t *>memchr(rows, <int>row, shelf.width)
    return shelf.width if found == NULL else found - rows


cdef class ChunkTable(Shelves):
    """A sparse array of messages. Ranges are inclusive; sequences start at 1, and a result of 0 means none."""

    @property
    def memory_bytes(self):
        """Bytes allocated."""
        return self.cell_bytes + self.capacity * (sizeof(Shelf) + sizeof(uint64_t))

    cdef int put(self, uint64_t seq, uint32_t subject_id, uint32_t offset, uint32_t size) except -1:
        """Add a live message above all others."""
        cdef Row row
        if not self.row(seq, &row):
            self._fill(seq >> CHUNK_BITS)
            self.row(seq, &row)
        assert row.subject[0] == 0
        row.subject[0] = subject_id
        row.offset[0] = offset
        row.size[0] = size
        row.shelf.live += 1
        return 0

    cdef void forget_before(self, uint64_t seq) noexcept:
        """Free the chunks below that of `seq`, the new first sequence."""
        cdef size_t end = self.position_from(seq >> CHUNK_BITS), i
        if end == self.start:
            return
        for i in range(self.start, end):
            self.cell_bytes -= cell_bytes_of(&self.shelves[i])
        self.drop_below(end)

    cdef bint stretch_from(self, uint64_t low, uint64_t high, Stretch *out) noexcept:
        """The next rows in low..high, of one chunk; False when there are none."""
        cdef size_t position, place = 0
        cdef uint64_t base
        position = self.position_from(low >> CHUNK_BITS)
        while position < self.count:
            if self.shelves[position].cells == NULL:
                position = self.full_from(position)
            base = self.numbers[position] << CHUNK_BITS
            low = max(low, base)
            if low > high:
                return False
            out.shelf = &self.shelves[position]
            out.end = min(base | CHUNK_MASK, high) + 1
            if out.shelf.width == CHUNK_MESSAGES:
                out.packed = NULL
                out.low = low
                out.subject = out.shelf.cells + (low - base)
                out.count = <size_t>(out.end - low)
                return True
            out.packed = packed_rows(out.shelf)
            out.low = base
            place = 0
            while place < out.shelf.width and base + out.packed[place] < low:
                place += 1
            out.packed += place
            out.subject = out.shelf.cells + place
            out.count = out.shelf.width - place
            while out.count and base + out.packed[out.count - 1] >= out.end:
                out.count -= 1
            if out.count:
                return True
            position += 1
        return False

    cdef uint64_t held_from(self, uint64_t seq) noexcept:
        """The lowest sequence at or above `seq` whose chunk is allocated."""
        cdef size_t position = self.full_from(self.position_from(seq >> CHUNK_BITS))
        return max(seq, self.numbers[position] << CHUNK_BITS) if position < self.count else 0

    cdef uint64_t held_upto(self, uint64_t seq) noexcept:
        """The highest sequence at or below `seq` whose chunk is allocated."""
        cdef size_t end = self.position_from((seq >> CHUNK_BITS) + 1)
        end = self.full_upto(end)
        return min(seq, self.numbers[end - 1] << CHUNK_BITS | CHUNK_MASK) if end > self.start else 0

    cdef uint64_t find_live(self, uint64_t low, uint64_t high) noexcept:
        """The lowest live sequence in low..high."""
        cdef Stretch stretch
        cdef size_t found
        while self.stretch_from(low, high, &stretch):
            found = jetraft_find_live(stretch.subject, stretch.count)
            if found < stretch.count:
                return seq_in(&stretch, found)
            low = stretch.end
        return 0

    cdef uint64_t find_dead(self, uint64_t low, uint64_t high) noexcept:
        """The lowest sequence in low..high that is not live. Full chunks are passed by their shelves."""
        cdef Shelf *shelf
        cdef size_t found, width
        while low <= high:
            shelf = self.shelf_of(low)
            if shelf == NULL or shelf.cells == NULL:
                return low
            if shelf.width != CHUNK_MESSAGES:
                while low <= high and self.subject_of(low):
                    low += 1
                return low if low <= high else 0
            if shelf.live < CHUNK_MESSAGES:
                width = <size_t>(min(low | CHUNK_MASK, high) - low + 1)
                found = jetraft_find_equal(shelf.cells + (low & CHUNK_MASK), width, 0)
                if found < width:
                    return low + found
            low = (low | CHUNK_MASK) + 1
        return 0

    cdef uint64_t find_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept:
        """The lowest live sequence of a subject in low..high."""
        cdef Stretch stretch
        cdef size_t found
        while self.stretch_from(low, high, &stretch):
            found = jetraft_find_equal(stretch.subject, stretch.count, subject_id)
            if found < stretch.count:
                return seq_in(&stretch, found)
            low = stretch.end
        return 0

    cdef uint64_t count_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept:
        """Live messages of one subject in low..high."""
        cdef Stretch stretch
        cdef uint64_t total = 0
        while self.stretch_from(low, high, &stretch):
            total += jetraft_count_equal(stretch.subject, stretch.count, subject_id)
            low = stretch.end
        return total

    cdef uint64_t count_live(self, uint64_t low, uint64_t high) noexcept:
        """Live messages in low..high: whole chunks by their shelves."""
        cdef Stretch stretch
        cdef uint64_t total = 0
        cdef size_t position, end
        while True:
            if not self.stretch_from(low, high, &stretch):
                return total
            if stretch.count == stretch.shelf.width:
                break
            total += stretch.count - jetraft_count_equal(stretch.subject, stretch.count, 0)
            low = stretch.end
        end = self.position_from((high + 1) >> CHUNK_BITS)
        for position in range(stretch.shelf - self.shelves, end):
            if self.shelves[position].cells != NULL:
                total += self.shelves[position].live
        low = (high + 1) & ~<uint64_t>CHUNK_MASK   # the rest is part of one chunk
        while self.stretch_from(low, high, &stretch):
            total += stretch.count - jetraft_count_equal(stretch.subject, stretch.count, 0)
            low = stretch.end
        return total

    cdef int _fill(self, uint64_t number) except -1:
        """Add a chunk above all others. The two that were the newest are freed or packed if possible."""
        cdef uint32_t *cells = <uint32_t *>calloc(CHUNK_MESSAGES, ROW_BYTES)
        cdef Shelf *shelf
        cdef size_t end
        if cells == NULL:
            raise MemoryError
        try:
            shelf = self.add(number)
        except MemoryError:
            free(cells)
            raise
        shelf.cells = cells
        shelf.live = 0
        shelf.width = CHUNK_MESSAGES
        self.cell_bytes += cell_bytes_of(shelf)
        end = self.full_upto(self.count - 1)
        if end > self.start:
            self.give_back(&self.shelves[end - 1])
        end = self.full_upto(self.count - 2) if self.count - self.start > 2 else self.start
        if end > self.start:
            self.give_back(&self.shelves[end - 1])
        return 0

    cdef void _shrink(self, Shelf *shelf) noexcept:
        if shelf.live == 0:
            self.cell_bytes -= cell_bytes_of(shelf)
            self.clear_out(shelf - self.shelves)
        elif shelf == &self.shelves[self.count - 2]:
            return  # subjects that are written often leave it soon: packed now, it would be packed repeatedly
        elif shelf.width == CHUNK_MESSAGES or shelf.live * 2 <= shelf.width:
            self._pack(shelf)

    cdef void _pack(self, Shelf *shelf) noexcept:
        """Keep the live rows only.

        A link from one of them over removed rows of the chunk is shortened. A link from another chunk to a removed row
        breaks; a scan repairs it (_chains.pyx).
        """
        cdef uint32_t live = shelf.live, i, kept = 0, column
        cdef uint32_t *cells = <uint32_t *>malloc(live * (ROW_BYTES + 1))
        cdef uint8_t *rows = <uint8_t *>(cells + 4 * <size_t>live)
        cdef const uint8_t *former = NULL
        if cells == NULL:
            return
        if shelf.width != CHUNK_MESSAGES:
            former = packed_rows(shelf)
        for i in range(shelf.width):
            if shelf.cells[i] == 0:
                continue
            rows[kept] = <uint8_t>i if former == NULL else former[i]
            for column in range(4):
                cells[column * live + kept] = shelf.cells[column * shelf.width + i]
            cells[2 * live + kept] = distance_past_gone(shelf, rows[kept], cells[2 * live + kept])
            kept += 1
        assert kept == live
        self.cell_bytes -= cell_bytes_of(shelf)
        free(shelf.cells)
        shelf.cells = cells
        shelf.width = live
        self.cell_bytes += cell_bytes_of(shelf)


cdef size_t cell_bytes_of(const Shelf *shelf) noexcept:
    if shelf.cells == NULL:
        return 0
    return shelf.width * <size_t>(ROW_BYTES if shelf.width == CHUNK_MESSAGES else ROW_BYTES + 1)


cdef uint32_t distance_past_gone(const Shelf *shelf, size_t row, uint32_t distance) noexcept:
    """The distance from a row to the next one of its subject, past removed rows of the same chunk, as far as known."""
    cdef size_t place
    cdef uint32_t step
    while distance and distance <= CHUNK_MASK - row:
        place = row + distance
        if shelf.width != CHUNK_MESSAGES:
            place = place_packed(shelf, place)
        if place == shelf.width or shelf.cells[place]:
            break
        step = shelf.cells[2 * shelf.width + place]
        if step == 0 or step >= FAR - distance:
            break
        distance += step
    return distance
