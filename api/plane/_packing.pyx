"""What is sent over connections that are compressed with S2: chunks of the framed format, each with its checksum.

    u8 kind | u24 length | u32 masked crc32c of the data | block, or the data as it is       (store/s2/framing.py)

`s2_better` and `s2_best` are compressed as `s2_fast`: a receiver cannot tell. With `s2_auto` the mode follows the round trip.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from jetraft.api.plane._types cimport PACKS_AUTO, PACKS_BEST, PACKS_NOT, Packing, buf_t, conn_t, packed_t
from jetraft.store.frames._frame cimport crc32c_of
from jetraft.store.s2._blocks cimport encode, room_for

cdef enum:
    BLOCK_BYTES = 64 * 1024         # of one chunk, as Snappy has them
    SOME_BYTES = 512 * 1024         # that are compressed at a time
    HEAD_BYTES = 8                  # of a chunk, its checksum included
    NAME_BYTES = 10
    WORTH_IT_PERCENT = 88           # a block that shrinks less than an eighth is sent as it is

cdef extern from *:
    """
    #include <stdlib.h>
    static char *jr_reserve(char **data, size_t *cap, size_t used, size_t need) {
        if (used + need > *cap) {
            size_t cap_now = *cap * 2 > used + need ? *cap * 2 : used + need;
            char *grown = realloc(*data, cap_now);
            if (grown == NULL) return NULL;
            *data = grown;
            *cap = cap_now;
        }
        return *data + used;
    }
    """
    char* jr_reserve(char** data, size_t* cap, size_t used, size_t need) nogil


cdef Packing packing_of(conn_t* conn) noexcept nogil:
    """How a connection compresses now."""
    cdef packed_t* packed = conn.packed
    cdef uint8_t i
    if packed.mode != PACKS_AUTO:
        return <Packing>packed.mode
    for i in range(packed.rtt_count):
        if conn.rtt_ns <= packed.rtts_ns[i]:
            return <Packing>i
    return PACKS_BEST if packed.rtt_count >= 3 else <Packing>(packed.rtt_count - 1)


cdef size_t put_chunk(packed_t* packed, Packing mode, const char* data, size_t n) noexcept nogil:
    """Write one chunk; returns its bytes, 0 when there is no memory."""
    cdef char* w = jr_reserve(&packed.wire.data, &packed.wire.cap, packed.wire.end, HEAD_BYTES + room_for(n))
    cdef uint32_t crc = crc32c_of(<const uint8_t*>data, n, 0), length = 0
    if w == NULL:
        return 0
    if mode != PACKS_NOT:
        length = <uint32_t>(encode(<const uint8_t*>data, n, <uint8_t*>w + HEAD_BYTES) - (<uint8_t*>w + HEAD_BYTES))
    w[0] = 0
    if mode == PACKS_NOT or length * 100 > n * WORTH_IT_PERCENT:
        memcpy(w + HEAD_BYTES, data, n)
        length = <uint32_t>n
        w[0] = 1
    packed.wire.end += HEAD_BYTES + length
    length += 4
    memcpy(w + 1, &length, 3)           # little endian
    crc = ((crc >> 15) | (crc << 17)) + <uint32_t>0xA282EAD8u
    memcpy(w + 4, &crc, 4)
    return HEAD_BYTES + length - 4


cdef size_t pack_some(conn_t* conn, const char* data, size_t n) noexcept nogil:
    """Compress some of these bytes, SOME_BYTES at most, onto an empty wire; returns how many, fewer without memory."""
    cdef packed_t* packed = conn.packed
    cdef Packing mode = packing_of(conn)
    cdef char* w
    cdef size_t done = 0, piece
    packed.wire.start = packed.wire.end = 0
    if n and not packed.named:
        w = jr_reserve(&packed.wire.data, &packed.wire.cap, 0, NAME_BYTES)
        if w == NULL:
            return 0
        memcpy(w, b"\xff\x06\x00\x00S2sTwO", NAME_BYTES)
        packed.wire.end = NAME_BYTES
        packed.named = 1
    while done < n and done < SOME_BYTES:
        piece = min(n - done, <size_t>BLOCK_BYTES)
        if put_chunk(packed, mode, data + done, piece) == 0:
            break
        done += piece
    return done
