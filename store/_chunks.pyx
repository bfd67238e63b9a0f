# cython: language_level=3
"""The columns of a stream's messages, by sequence: subject, place, distance to the subject's next message, size.

They stand in chunks of 256 sequences, so that a scan over one column runs through memory at full speed, and so that what
is gone is given back: a chunk without live messages is not kept, at the head, in the middle, or in a gap that was never
filled. The shelf of a chunk counts what is live in it, which makes counting over long distances a sum over shelves.

A chunk stays while something later may refer to it: `drop` leaves it, `give_back` takes it when it is empty.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

cdef extern from "_scan.h" nogil:
    size_t jetraft_find_equal(const uint32_t *values, size_t count, uint32_t wanted)
    size_t jetraft_find_live(const uint32_t *values, size_t count)
    size_t jetraft_count_equal(const uint32_t *values, size_t count, uint32_t wanted)

cdef enum:
    CAPACITY_MIN = 8


cdef inline size_t width_of(uint64_t low, uint64_t high) noexcept:
    """How many of low..high are in the chunk of `low`."""
    return <size_t>(min(low | CHUNK_MASK, high) - low + 1)


cdef class ChunkTable:
    """A sparse array of messages. Ranges are inclusive, results of 0 mean that there is none; sequences start at 1."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.count):
            free(self.shelves[i].chunk)
        free(self.shelves)

    @property
    def memory_bytes(self):
        """Bytes allocated."""
        return self.held * sizeof(Chunk) + self.capacity * sizeof(Shelf)

    cdef int put(self, uint64_t seq, uint32_t subject_id, uint32_t offset, uint32_t size) except -1:
        """Add a live message above all others."""
        cdef Chunk *chunk = self.at(seq)
        cdef uint32_t row = seq & CHUNK_MASK
        if chunk == NULL:
            self._make_room(seq >> CHUNK_BITS)
            chunk = self.at(seq)
        assert chunk.subject[row] == 0
        chunk.subject[row] = subject_id
        chunk.offset[row] = offset
        chunk.size[row] = size
        self.shelves[(seq >> CHUNK_BITS) - self.base].live += 1
        return 0

    cdef void drop(self, uint64_t seq) noexcept:
        """Mark a live message as gone; the rest of its row stays readable until the chunk is given back."""
        self.at(seq).subject[seq & CHUNK_MASK] = 0
        self.shelves[(seq >> CHUNK_BITS) - self.base].live -= 1

    cdef void give_back(self, uint64_t seq) noexcept:
        """Free the chunk of `seq` when nothing in it is live; the newest is kept for what may still come into it."""
        cdef size_t position = <size_t>((seq >> CHUNK_BITS) - self.base)
        if position + 1 < self.count and self.shelves[position].live == 0:
            self._free(position)

    cdef void forget(self, uint64_t low, uint64_t high) noexcept:
        """Free the chunks from that of `low` to the one before that of `high`: the head moved from `low` to `high`.

        The shelves move down when half of them are empty, so each moves once on average.
        """
        cdef uint64_t number = max(low >> CHUNK_BITS, self.base)
        cdef uint64_t end = min(high >> CHUNK_BITS, self.base + self.count)
        cdef size_t gone
        while number < end:
            self._free(<size_t>(number - self.base))
            number += 1
        gone = <size_t>(end - self.base) if end > self.base else 0
        if gone and gone * 2 >= self.count:
            memmove(self.shelves, self.shelves + gone, (self.count - gone) * sizeof(Shelf))
            self.count -= gone
            self.base += gone

    cdef uint64_t find_live(self, uint64_t low, uint64_t high) noexcept:
        """The lowest live sequence in low..high."""
        cdef Chunk *chunk
        cdef size_t found, width
        low = max(low, self.base << CHUNK_BITS)
        while low <= high and (low >> CHUNK_BITS) - self.base < self.count:
            chunk = self.at(low)
            if chunk != NULL:
                width = width_of(low, high)
                found = jetraft_find_live(&chunk.subject[low & CHUNK_MASK], width)
                if found < width:
                    return low + found
            low = (low | CHUNK_MASK) + 1
        return 0

    cdef uint64_t find_dead(self, uint64_t low, uint64_t high) noexcept:
        """The lowest sequence in low..high that is not live. Full chunks are passed by their shelves."""
        cdef Chunk *chunk
        cdef size_t found, width
        while low <= high:
            chunk = self.at(low)
            if chunk == NULL:
                return low
            if self.shelves[(low >> CHUNK_BITS) - self.base].live < CHUNK_MESSAGES:
                width = width_of(low, high)
                found = jetraft_find_equal(&chunk.subject[low & CHUNK_MASK], width, 0)
                if found < width:
                    return low + found
            low = (low | CHUNK_MASK) + 1
        return 0

    cdef uint64_t find_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept:
        """The lowest live sequence of a subject in low..high."""
        cdef Chunk *chunk
        cdef size_t found, width
        low = max(low, self.base << CHUNK_BITS)
        while low <= high and (low >> CHUNK_BITS) - self.base < self.count:
            chunk = self.at(low)
            if chunk != NULL:
                width = width_of(low, high)
                found = jetraft_find_equal(&chunk.subject[low & CHUNK_MASK], width, subject_id)
                if found < width:
                    return low + found
            low = (low | CHUNK_MASK) + 1
        return 0

    cdef uint64_t count_subject(self, uint64_t low, uint64_t high, uint32_t subject_id) noexcept:
        """Live messages of one subject in low..high."""
        cdef Chunk *chunk
        cdef uint64_t total = 0
        low = max(low, self.base << CHUNK_BITS)
        while low <= high and (low >> CHUNK_BITS) - self.base < self.count:
            chunk = self.at(low)
            if chunk != NULL:
                total += jetraft_count_equal(&chunk.subject[low & CHUNK_MASK], width_of(low, high), subject_id)
            low = (low | CHUNK_MASK) + 1
        return total

    cdef uint64_t count_live(self, uint64_t low, uint64_t high) noexcept:
        """Live messages in low..high: whole chunks by their shelves."""
        cdef Chunk *chunk
        cdef size_t width
        cdef uint64_t total = 0
        low = max(low, self.base << CHUNK_BITS)
        while low <= high and (low >> CHUNK_BITS) - self.base < self.count:
            width = width_of(low, high)
            if width == CHUNK_MESSAGES:
                total += self.shelves[(low >> CHUNK_BITS) - self.base].live
            else:
                chunk = self.at(low)
                if chunk != NULL:
                    total += width - jetraft_count_equal(&chunk.subject[low & CHUNK_MASK], width, 0)
            low = (low | CHUNK_MASK) + 1
        return total

    cdef void _free(self, size_t position) noexcept:
        if self.shelves[position].chunk != NULL:
            free(self.shelves[position].chunk)
            self.shelves[position].chunk = NULL
            self.held -= 1

    cdef int _make_room(self, uint64_t number) except -1:
        """Put a fresh chunk on the shelf of that number, at or above all others; between them, empty shelves."""
        cdef size_t position, former
        cdef uint64_t capacity
        cdef Shelf *grown
        cdef Chunk *chunk
        if self.count == 0:
            self.base = number
        assert number >= self.base
        position = <size_t>(number - self.base)
        if position >= self.capacity:
            capacity = max(<uint64_t>position + 1, <uint64_t>self.capacity * 2, <uint64_t>CAPACITY_MIN)
            grown = <Shelf *>realloc(self.shelves, capacity * sizeof(Shelf))
            if grown == NULL:
                raise MemoryError
            self.shelves = grown
            self.capacity = <size_t>capacity
        chunk = <Chunk *>calloc(1, sizeof(Chunk))
        if chunk == NULL:
            raise MemoryError
        if position >= self.count:
            memset(&self.shelves[self.count], 0, (position + 1 - self.count) * sizeof(Shelf))
            former = self.count
            self.count = position + 1
            if former:
                self.give_back((self.base + former - 1) << CHUNK_BITS)
        self.shelves[position].chunk = chunk
        self.held += 1
        return 0
