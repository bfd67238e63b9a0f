"""Header blocks in columns: the names of each message, the values of each name.

What is taken out of a block is what a reader of rows makes of it: a line without a colon is none, names and values have
no white space around them, the values of one name are together, and names come in the order in which they come first.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp

from jetraft.cluster.streams.gets._column_buffers cimport append, append_u32, is_text, padded, put, put_ends

cdef enum:
    LINES_MAX = 64                      # of one message: each name is compared with those before it
    BLOCK_FIRST = 10                    # NATS/1.0 and the end of its line
    BLOCK_MIN = 12                      # and an empty line

cdef struct Part:                       # a name or a value, where its line is
    const uint8_t *at
    size_t length

cdef struct Block:                      # the headers of one message
    Part names[LINES_MAX]
    Part values[LINES_MAX]
    size_t name_of[LINES_MAX]           # which name a value belongs to
    size_t name_count
    size_t value_count
    bint has_lines


cdef class HeaderColumns:
    """The headers of the rows of one answer."""

    def __dealloc__(self):
        free(self.name_ends.data)
        free(self.name_text.data)
        free(self.value_counts.data)
        free(self.value_ends.data)
        free(self.value_text.data)

    cdef int take(self, const uint8_t *block, size_t length, size_t room, size_t *cost) except? -3:
        """Add the headers of a block, and what they take to `cost`, which may grow by `room`; or say why not."""
        cdef Block found
        cdef size_t name, i, needed = 0
        if not is_text(block, length) or not read_block(block, length, &found):
            return UNUSUAL
        if not found.has_lines:
            return NONE_THERE
        for name in range(found.name_count):
            needed += found.names[name].length + 8
        for i in range(found.value_count):
            needed += found.values[i].length + 4
        if needed > room:
            return NO_ROOM
        cost[0] += needed
        self.messages += 1
        for name in range(found.name_count):
            append(&self.name_text, found.names[name].at, found.names[name].length)
            append_u32(&self.name_ends, <uint32_t>self.name_text.used)
            for i in range(found.value_count):
                if found.name_of[i] == name:
                    append(&self.value_text, found.values[i].at, found.values[i].length)
                    append_u32(&self.value_ends, <uint32_t>self.value_text.used)
                    self.values += 1
            append_u32(&self.value_counts, self.values)
            self.names += 1
        return TAKEN

    cdef size_t size(self) noexcept:
        """The bytes of the columns, without those that have an entry for each row."""
        cdef size_t names = 2 * padded(4 * (<size_t>self.names + 1)) + padded(self.name_text.used)
        return names + padded(4 * (<size_t>self.values + 1)) + padded(self.value_text.used)

    cdef uint8_t *write(self, uint8_t *out) noexcept:
        out = put_ends(out, &self.name_ends)
        out = put(out, &self.name_text)
        out = put_ends(out, &self.value_counts)
        out = put_ends(out, &self.value_ends)
        return put(out, &self.value_text)


cdef bint read_block(const uint8_t *block, size_t length, Block *out) noexcept nogil:
    """Take a block apart; False when it is not one that nats-server's clients make, or has too many lines."""
    cdef const uint8_t *at = block + BLOCK_FIRST
    cdef const uint8_t *end = block + length - 2
    cdef const uint8_t *line_end
    cdef const uint8_t *colon
    cdef size_t name
    out.name_count = out.value_count = 0
    out.has_lines = False
    if length < BLOCK_MIN or memcmp(block, b"NATS/1.0\r\n", BLOCK_FIRST) or memcmp(end - 2, b"\r\n\r\n", 4):
        return False
    while at < end:
        line_end = end_of_line(at, end)
        if line_end == NULL or out.value_count == LINES_MAX:
            return False
        out.has_lines = out.has_lines or line_end > at
        colon = <const uint8_t *>memchr(at, c':', line_end - at)
        if colon != NULL:
            out.values[out.value_count] = stripped(colon + 1, line_end)
            name = out.name_count
            out.names[name] = stripped(at, colon)
            out.name_count += 1
            for i in range(name):
                if is_same(&out.names[i], &out.names[name]):
                    out.name_count = name
                    name = i
                    break
            out.name_of[out.value_count] = name
            out.value_count += 1
        at = line_end + 2
    return True


cdef inline const uint8_t *end_of_line(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """The CR LF from `at` on, before `end`; NULL when there is none."""
    cdef const uint8_t *found
    while at < end - 1:
        found = <const uint8_t *>memchr(at, c'\r', end - 1 - at)
        if found == NULL or found[1] == c'\n':
            return found
        at = found + 1
    return NULL


cdef inline bint is_same(const Part *one, const Part *other) noexcept nogil:
    return one.length == other.length and memcmp(one.at, other.at, one.length) == 0


cdef inline bint is_space(uint8_t char) noexcept nogil:
    return char == c' ' or 9 <= char <= 13


cdef inline Part stripped(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """What is between, without white space at both ends."""
    cdef Part part
    while at < end and is_space(at[0]):
        at += 1
    while at < end and is_space((end - 1)[0]):
        end -= 1
    part.at = at
    part.length = end - at
    return part
