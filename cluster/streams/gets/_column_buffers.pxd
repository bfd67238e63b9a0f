"""Buffers of an answer in columns: how they are padded, and bytes that grow. All inline, for _columns.pyx and its parts."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from cpython.unicode cimport PyUnicode_DecodeUTF8

from jetraft.store.frames._frame cimport store_u32

cdef enum:
    GROWN_BYTES = 4096                  # the least that a buffer grows by

cdef struct Grown:                      # bytes that grow
    uint8_t *data
    size_t used
    size_t size


cdef inline size_t padded(size_t length) noexcept nogil:
    """The bytes that a buffer takes in an answer."""
    return (length + 7) & ~<size_t>7


cdef inline uint8_t *closed(uint8_t *out, size_t length) noexcept nogil:
    """Zero the padding after a buffer at `out`; returns where the next one starts."""
    memset(out + length, 0, padded(length) - length)
    return out + padded(length)


cdef inline uint8_t *put(uint8_t *out, const Grown *grown) noexcept nogil:
    """Write the bytes."""
    if grown.used:
        memcpy(out, grown.data, grown.used)
    return closed(out, grown.used)


cdef inline uint8_t *put_ends(uint8_t *out, const Grown *ends) noexcept nogil:
    """Write offsets: 0 and the ends."""
    store_u32(out, 0)
    if ends.used:
        memcpy(out + 4, ends.data, ends.used)
    return closed(out, ends.used + 4)


cdef inline int append(Grown *grown, const uint8_t *data, size_t length) except -1:
    cdef size_t size
    cdef uint8_t *moved
    if length == 0:
        return 0
    if grown.used + length > grown.size:
        size = max(2 * grown.size, grown.used + length + GROWN_BYTES)
        moved = <uint8_t *>realloc(grown.data, size)
        if moved == NULL:
            raise MemoryError
        grown.data = moved
        grown.size = size
    memcpy(grown.data + grown.used, data, length)
    grown.used += length
    return 0


cdef inline int append_u32(Grown *grown, uint32_t value) except -1:
    return append(grown, <const uint8_t *>&value, 4)


cdef inline bint is_text(const uint8_t *text, size_t length) except -1:
    """Whether the bytes are UTF-8. Almost always they are ASCII, which is looked at eight bytes at a time."""
    cdef uint64_t word, high = 0
    cdef size_t at = 0
    while at + 8 <= length:
        memcpy(&word, text + at, 8)
        high |= word
        at += 8
    word = 0
    memcpy(&word, text + at, length - at)
    if (high | word) & 0x8080808080808080u == 0:
        return True
    try:
        PyUnicode_DecodeUTF8(<const char *>text, length, NULL)
    except UnicodeDecodeError:
        return False
    return True
