# cython: language_level=3, boundscheck=False, wraparound=False
"""HighwayHash-64: the keyed checksum of nats-server's message blocks, configurations and indexes.

Not a secret's keeper here: the keys are names. 32 bytes at a time go into four lanes of multiplications, whose bytes are
then shuffled ("zippered") into their neighbours; what remains at the end is padded in a way that depends on its length.
Source: Alakuijala, Cox, Wassenberg, "Fast keyed hash/pseudo-random function using SIMD multiply and permute",
arXiv:1612.06257, and the vectors published with github.com/google/highwayhash, with which it is tested.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    PACKET_BYTES = 32
    KEY_BYTES = 32
    LANES = 4
    FINAL_ROUNDS = 4             # of the 64-bit variant

# Fraction digits of pi, as in Blowfish: two constants for each lane.
cdef uint64_t[LANES] FIRST = [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3]
cdef uint64_t[LANES] SECOND = [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377]

cdef struct Hash:
    uint64_t[LANES] v0
    uint64_t[LANES] v1
    uint64_t[LANES] mul0
    uint64_t[LANES] mul1
    uint8_t[PACKET_BYTES] packet # what has come of the next packet
    size_t held                  # bytes of it


cdef inline uint64_t halves_swapped(uint64_t value) noexcept nogil:
    return value >> 32 | value << 32


cdef inline uint64_t byte_moved(uint64_t value, int origin, int place) noexcept nogil:
    return (value >> (8 * origin) & 0xFF) << (8 * place)


cdef inline void zipper(uint64_t low, uint64_t high, uint64_t *to_low, uint64_t *to_high) noexcept nogil:
    """Add the 16 bytes of two lanes to two others, shuffled so that the well mixed middle of a product spreads."""
    to_low[0] += (
        byte_moved(low, 3, 0) | byte_moved(high, 4, 1) | byte_moved(low, 2, 2) | byte_moved(low, 5, 3)
        | byte_moved(high, 6, 4) | byte_moved(low, 1, 5) | byte_moved(high, 7, 6) | byte_moved(low, 0, 7)
    )
    to_high[0] += (
        byte_moved(high, 3, 0) | byte_moved(low, 4, 1) | byte_moved(high, 2, 2) | byte_moved(high, 5, 3)
        | byte_moved(high, 1, 4) | byte_moved(low, 6, 5) | byte_moved(high, 0, 6) | byte_moved(low, 7, 7)
    )


cdef void mix(Hash *hash, const uint64_t *lanes) noexcept nogil:
    cdef int lane
    for lane in range(LANES):
        hash.v1[lane] += hash.mul0[lane] + lanes[lane]
        hash.mul0[lane] ^= <uint64_t><uint32_t>hash.v1[lane] * (hash.v0[lane] >> 32)
        hash.v0[lane] += hash.mul1[lane]
        hash.mul1[lane] ^= <uint64_t><uint32_t>hash.v0[lane] * (hash.v1[lane] >> 32)
    for lane in range(0, LANES, 2):
        zipper(hash.v1[lane], hash.v1[lane + 1], &hash.v0[lane], &hash.v0[lane + 1])
    for lane in range(0, LANES, 2):
        zipper(hash.v0[lane], hash.v0[lane + 1], &hash.v1[lane], &hash.v1[lane + 1])


cdef void mix_packet(Hash *hash, const uint8_t *packet) noexcept nogil:
    cdef uint64_t[LANES] lanes
    memcpy(lanes, packet, PACKET_BYTES)
    mix(hash, lanes)


cdef void begin(Hash *hash, const uint8_t *key) noexcept nogil:
    cdef uint64_t[LANES] words
    cdef int lane
    memcpy(words, key, KEY_BYTES)
    for lane in range(LANES):
        hash.mul0[lane], hash.mul1[lane] = FIRST[lane], SECOND[lane]
        hash.v0[lane] = FIRST[lane] ^ words[lane]
        hash.v1[lane] = SECOND[lane] ^ halves_swapped(words[lane])
    hash.held = 0


cdef void take(Hash *hash, const uint8_t *data, size_t length) noexcept nogil:
    cdef size_t part
    if length == 0:
        return
    if hash.held:
        part = min(<size_t>PACKET_BYTES - hash.held, length)
        memcpy(hash.packet + hash.held, data, part)
        hash.held += part
        data += part
        length -= part
        if hash.held < PACKET_BYTES:
            return
        mix_packet(hash, hash.packet)
        hash.held = 0
    while length >= PACKET_BYTES:
        mix_packet(hash, data)
        data += PACKET_BYTES
        length -= PACKET_BYTES
    if length:
        memcpy(hash.packet, data, length)
    hash.held = length


cdef void mix_rest(Hash *hash) noexcept nogil:
    """Whole words stay where they are; the odd bytes behind them go to a place that tells how many there were."""
    cdef uint8_t[PACKET_BYTES] padded
    cdef size_t held = hash.held, odd = hash.held & 3, words = hash.held & ~<size_t>3
    cdef uint32_t low, high
    cdef int lane, turn = <int>held, place
    for lane in range(LANES):
        hash.v0[lane] += <uint64_t>held << 32 | held
        low, high = <uint32_t>hash.v1[lane], <uint32_t>(hash.v1[lane] >> 32)
        low, high = low << turn | low >> (32 - turn), high << turn | high >> (32 - turn)
        hash.v1[lane] = <uint64_t>high << 32 | low
    memset(padded, 0, PACKET_BYTES)
    memcpy(padded, hash.packet, words)
    if held >= 16:
        memcpy(padded + 28, hash.packet + held - 4, 4)
    elif odd:
        padded[16] = hash.packet[words]
        padded[17] = hash.packet[words + (odd >> 1)]
        padded[18] = hash.packet[held - 1]
    mix_packet(hash, padded)


cdef uint64_t finish(Hash *hash) noexcept nogil:
    cdef uint64_t[LANES] turned
    cdef int lane, turn
    if hash.held:
        mix_rest(hash)
    for turn in range(FINAL_ROUNDS):
        for lane in range(LANES):
            turned[lane] = halves_swapped(hash.v0[lane ^ 2])
        mix(hash, turned)
    return hash.v0[0] + hash.v1[0] + hash.mul0[0] + hash.mul1[0]


def highway_hash(bytes key not None, *parts) -> bytes:
    """The 8 bytes, little-endian, of HighwayHash-64 over the parts one after the other; the key has 32 bytes."""
    cdef Hash hash
    cdef Py_buffer view
    cdef uint64_t value
    if len(key) != KEY_BYTES:
        raise ValueError("a key of HighwayHash has 32 bytes")
    begin(&hash, <const uint8_t *><const char *>key)
    for part in parts:
        PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
        with nogil:
            take(&hash, <const uint8_t *>view.buf, view.len)
        PyBuffer_Release(&view)
    value = finish(&hash)
    return PyBytes_FromStringAndSize(<const char *>&value, sizeof(value))
