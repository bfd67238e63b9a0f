# cython: language_level=3, boundscheck=False, wraparound=False
"""Blocks of the S2 compression format: what nats-server's archives are made of.

Decoding reads everything that S2 knows (literals, copies with three widths of offset, repeated offsets). Encoding writes
the subset that Snappy shares, with the usual table of hashes of four bytes: any reader of S2 or Snappy takes it.
Source: github.com/golang/snappy/blob/master/format_description.txt (tags), klauspost/compress/s2/README.md (repeats).

    uvarint bytes of the block | elements: tag byte, its low two bits the kind: 0 literal, 1 to 3 copy; lengths, offset

Hostile input gives ValueError; nothing is read or written outside of the two buffers, and no block is larger than the
caller allows.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    TABLE_BITS = 14
    TABLE_SIZE = 1 << TABLE_BITS
    OFFSET_MAX = 65535           # a copy with two bytes of offset
    COPY_MAX = 64
    INPUT_MARGIN = 15            # the last bytes of a block are always literals

cdef uint32_t HASH_FACTOR = 0x1E35A7BD   # Snappy's


cdef inline uint32_t word_at(const uint8_t *data) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, data, 4)
    return value


cdef inline uint32_t hash_of(uint32_t word) noexcept nogil:
    return (word * HASH_FACTOR) >> (32 - TABLE_BITS)


cdef uint8_t *put_literal(uint8_t *out, const uint8_t *data, size_t length) noexcept nogil:
    cdef size_t rest = length - 1
    if length == 0:
        return out
    if rest < 60:
        out[0] = <uint8_t>(rest << 2)
        out += 1
    elif rest < 1 << 8:
        out[0] = 60 << 2
        out[1] = <uint8_t>rest
        out += 2
    elif rest < 1 << 16:
        out[0] = 61 << 2
        out[1] = <uint8_t>rest
        out[2] = <uint8_t>(rest >> 8)
        out += 3
    else:
        out[0] = 62 << 2
        out[1] = <uint8_t>rest
        out[2] = <uint8_t>(rest >> 8)
        out[3] = <uint8_t>(rest >> 16)
        out += 4
    memcpy(out, data, length)
    return out + length


cdef uint8_t *put_copy(uint8_t *out, size_t offset, size_t length) noexcept nogil:
    cdef size_t piece
    while length > 0:
        piece = length
        if piece > COPY_MAX:
            piece = COPY_MAX if length >= COPY_MAX + 4 else 60   # what remains is long enough for a copy
        out[0] = <uint8_t>(((piece - 1) << 2) | 2)
        out[1] = <uint8_t>offset
        out[2] = <uint8_t>(offset >> 8)
        out += 3
        length -= piece
    return out


def encode_block(const uint8_t[::1] data not None):
    """The block of these bytes (at most 1 MiB), never more than a sixth larger than they are."""
    cdef size_t size = data.shape[0]
    assert size <= 1 << 20
    cdef bytes block = PyBytes_FromStringAndSize(NULL, room_for(size))
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(block)
    return block[:encode(&data[0] if size else NULL, size, start) - start]


cdef uint8_t *encode(const uint8_t *data, size_t size, uint8_t *out) noexcept nogil:
    """Write the block of these bytes (at most 1 MiB), `room_for` them at most; returns where it ends."""
    cdef size_t rest = size
    while rest >= 0x80:
        out[0] = <uint8_t>(rest | 0x80)
        out += 1
        rest >>= 7
    out[0] = <uint8_t>rest
    out += 1
    return compress(data, size, out) if size else out


cdef uint8_t *compress(const uint8_t *data, size_t size, uint8_t *out) noexcept nogil:
    cdef uint32_t[TABLE_SIZE] table
    cdef size_t at = 1, literal = 0, candidate, length, skip
    cdef uint32_t word, slot
    if size >= INPUT_MARGIN + 2:
        memset(table, 0, sizeof(table))
        skip = 32
        while at + INPUT_MARGIN < size:
            word = word_at(data + at)
            slot = hash_of(word)
            candidate = table[slot]
            table[slot] = <uint32_t>at
            if candidate >= at or at - candidate > OFFSET_MAX or word_at(data + candidate) != word:
                at += skip >> 5     # the longer nothing repeats, the fewer places are looked at
                skip += 1
                continue
            skip = 32
            out = put_literal(out, data + literal, at - literal)
            length = 4
            while at + length < size and data[candidate + length] == data[at + length]:
                length += 1
            out = put_copy(out, at - candidate, length)
            at += length
            literal = at
    return put_literal(out, data + literal, size - literal)


def decode_block(const uint8_t[::1] block not None, size_t size_max):
    """The bytes of a block. Raises ValueError when it is none, or would be larger than `size_max`."""
    cdef size_t end = block.shape[0], at = 0, size = 0
    if end == 0 or not block_size(&block[0], end, &size, &at):
        raise ValueError("a block without a size")
    if size > size_max:
        raise ValueError(f"a block of {size} bytes")
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    if not decompress(&block[0], at, end, <uint8_t *>PyBytes_AS_STRING(data), size):
        raise ValueError("a damaged block")
    return data


cdef bint block_size(const uint8_t *block, size_t end, size_t *size, size_t *at) noexcept nogil:
    """How many bytes a block is made from, and where its elements begin; False when it does not say."""
    cdef size_t shift = 0
    at[0] = size[0] = 0
    while at[0] < end and shift <= 28:
        size[0] |= <size_t>(block[at[0]] & 0x7F) << shift
        at[0] += 1
        if block[at[0] - 1] < 0x80:
            return True
        shift += 7
    return False


cdef bint decompress(const uint8_t *block, size_t at, size_t end, uint8_t *out, size_t size) noexcept nogil:
    """Fill `out`; False when an element leaves one of the two buffers, or there is not exactly enough."""
    cdef size_t done = 0, length, offset = 0, width, place
    cdef uint8_t tag
    while at < end:
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                if at + width > end:
                    return False
                length = little(block + at, width)
                at += width
            length += 1
            if length > end - at or length > size - done:
                return False
            memcpy(out + done, block + at, length)
            at += length
            done += length
            continue
        if tag & 3 == 1:
            if at >= end:
                return False
            length = (tag >> 2) & 7
            place = (<size_t>(tag & 0xE0) << 3) | block[at]
            at += 1
            if place:
                offset = place
                length += 4
            else:                                   # the last offset again
                if length <= 4:
                    length += 4
                else:
                    width = length - 4
                    if at + width > end:
                        return False
                    length = little(block + at, width) + (8 if width == 1 else 260 if width == 2 else 65540)
                    at += width
        else:
            width = 2 if tag & 3 == 2 else 4
            if at + width > end:
                return False
            length = (tag >> 2) + 1
            offset = little(block + at, width)
            at += width
        if offset == 0 or offset > done or length > size - done:
            return False
        if offset >= length:
            memcpy(out + done, out + done - offset, length)
        else:                                       # it overlaps itself: a pattern that repeats
            for place in range(length):
                out[done + place] = out[done + place - offset]
        done += length
    return done == size


cdef inline size_t little(const uint8_t *data, size_t width) noexcept nogil:
    cdef size_t value = 0, place
    for place in range(width):
        value |= <size_t>data[place] << (8 * place)
    return value
