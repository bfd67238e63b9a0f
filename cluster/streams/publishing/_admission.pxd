"""The bytes that the publish path of a stream leader moves: captured messages in, stored records and acks out."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from jetraft.cluster.capture._capture cimport Captured

cdef enum:
    HDR_BYTES_MAX = 65535             # as nats-server: headers above 64 KiB are refused (err_code 10097)

cdef struct Buffer:
    uint8_t *data
    size_t length
    size_t room

cdef inline int reserve(Buffer *buffer, size_t more) except -1:
    """Make room for so many bytes more."""
    cdef size_t room = buffer.room
    cdef uint8_t *data
    if buffer.length + more <= room:
        return 0
    room = room * 2 if room else 4096
    while room < buffer.length + more:
        room *= 2
    data = <uint8_t *>realloc(buffer.data, room)
    if data == NULL:
        raise MemoryError
    buffer.data = data
    buffer.room = room
    return 0


cdef inline void put(Buffer *buffer, const void *data, size_t length) noexcept nogil:
    memcpy(buffer.data + buffer.length, data, length)
    buffer.length += length


cdef class RecordBatch:
    cdef Buffer records               # the body of the MESSAGES entry
    cdef int exports                  # views of the records; while there are any, none is added
    cdef Buffer replies               # per record: uint16 length, reply subject; length 0 = no ack wanted
    cdef readonly uint64_t first_seq  # stream sequence of the first record
    cdef readonly uint32_t count      # records
    cdef readonly int64_t stored_bytes  # what these records will count against max_bytes
    cdef int64_t overhead_bytes       # of a stored message, beside its parts (SizeModel)
    cdef int64_t hdr_overhead_bytes   # more when it has headers
    cdef readonly int64_t ts_ns       # the time that the leader gives to the records added now

    cdef bint _has_room(self, int64_t size, int64_t messages_room, int64_t bytes_room) noexcept
    cdef int64_t _stored_size(self, Captured *message) noexcept
    cdef int _append(self, Captured *message, uint16_t flags, int64_t size) except -1
    cdef uint32_t _count_of(self, bytes subject, uint32_t *last) noexcept


cdef bint asks_for_nothing(Captured *message, int64_t message_bytes_max, bint bare) noexcept nogil
