"""S2 blocks for compiled modules. Every length is checked against its buffer."""

from libc.stdint cimport uint8_t

cdef uint8_t *encode(const uint8_t *data, size_t size, uint8_t *out) noexcept nogil
cdef bint block_size(const uint8_t *block, size_t end, size_t *size, size_t *at) noexcept nogil
cdef bint decompress(const uint8_t *block, size_t at, size_t end, uint8_t *out, size_t size) noexcept nogil

cdef inline size_t room_for(size_t size) noexcept nogil:
    """The most bytes that the block of so many bytes has."""
    return 32 + size + size // 6
