"""The distinct subjects of an answer in columns, numbered in the order in which they come.

Where there are more than one byte can number, the dictionary is given up, and the subjects are written one by one. Also
where their hashes fall together: a client chooses its subjects, and looking for one has a bound.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from jetraft.cluster.streams.gets._column_buffers cimport closed, padded
from jetraft.store.frames._frame cimport store_u32

cdef enum:
    PROBES_MAX = 8


cdef class Dictionary:
    """The subjects of one answer."""

    cdef uint8_t number(self, const uint8_t *at, uint16_t length) noexcept:
        """The number of a subject, a new one if it is new; 0 once the dictionary is given up."""
        cdef size_t slot, probe
        if self.is_given_up:
            return 0
        if self.count and is_same(&self.known[self.last], at, length):
            return self.last
        slot = hash_of(at, length) % SLOTS
        for probe in range(PROBES_MAX):
            if self.slots[slot] == 0:
                if self.count == DICTIONARY_MAX:
                    break
                self.known[self.count].at = at
                self.known[self.count].length = length
                self.last = <uint8_t>self.count
                self.count += 1
                self.text_bytes += length
                self.slots[slot] = <uint16_t>self.count
                return self.last
            if is_same(&self.known[self.slots[slot] - 1], at, length):
                self.last = <uint8_t>(self.slots[slot] - 1)
                return self.last
            slot = (slot + 1) % SLOTS
        self.give_up()
        return 0

    cdef void give_up(self) noexcept:
        self.is_given_up = True
        self.count = 0

    cdef size_t size(self) noexcept:
        """The bytes of the subjects with their offsets."""
        return padded(4 * (self.count + 1)) + padded(self.text_bytes)

    cdef uint8_t *write(self, uint8_t *out) noexcept:
        cdef size_t i, at = 0
        cdef uint8_t *ends = out
        out = closed(out, 4 * (self.count + 1))
        store_u32(ends, 0)
        for i in range(self.count):
            memcpy(out + at, self.known[i].at, self.known[i].length)
            at += self.known[i].length
            store_u32(ends + 4 * (i + 1), <uint32_t>at)
        return closed(out, at)


cdef inline bint is_same(const Subject *known, const uint8_t *at, uint16_t length) noexcept nogil:
    return known.length == length and memcmp(known.at, at, length) == 0


cdef size_t hash_of(const uint8_t *text, size_t length) noexcept nogil:
    """A hash of a subject."""
    cdef uint64_t word, value = length
    cdef size_t at = 0
    while at < length:
        word = 0
        memcpy(&word, text + at, min(<size_t>8, length - at))
        value = (value ^ word) * 0x9E3779B97F4A7C15u
        value ^= value >> 29
        at += 8
    return value >> 16
