"""A turn's acks, sorted: the plain ones become lists of stream sequences by consumer, the others are left to Python.

Plain is an empty or `+ACK` body without a reply subject; that is nearly all of them, and they cost no parsing in Python.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr, memcmp

from jetraft.cluster.streams._admit cimport Captured, take_apart

cdef enum:
    SHORT_TOKENS = 9            # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ts>.<pending>
    LONG_TOKENS_MIN = 11        # with domain and account before the stream
    TOKENS_MAX = 13
    DIGITS_MAX = 19             # as nats-server's parser


cdef int split(const uint8_t *subject, size_t length, const uint8_t **starts, size_t *lengths) noexcept nogil:
    """Cut a subject into tokens; returns how many there are, TOKENS_MAX at most."""
    cdef const uint8_t *position = subject
    cdef const uint8_t *end = subject + length
    cdef const uint8_t *dot
    cdef int count = 0
    while count < TOKENS_MAX:
        dot = <const uint8_t *>memchr(position, c'.', end - position)
        starts[count] = position
        lengths[count] = (dot if dot != NULL else end) - position
        count += 1
        if dot == NULL:
            break
        position = dot + 1
    return count


cdef uint64_t number(const uint8_t *text, size_t length) noexcept nogil:
    """A decimal number; 0 for anything else."""
    cdef uint64_t value = 0
    cdef size_t i
    if length > DIGITS_MAX:
        return 0
    for i in range(length):
        if not c'0' <= text[i] <= c'9':
            return 0
        value = value * 10 + (text[i] - c'0')
    return value


cdef bint is_plain(Captured *message) noexcept nogil:
    if message.reply_len:
        return False
    return message.payload_len == 0 or (message.payload_len == 4 and memcmp(message.payload, b"+ACK", 4) == 0)


def sort_acks(const uint8_t[::1] batch):
    """Plain acks as {consumer: [stream sequence, ...]}, and the offsets of the capture records that are left."""
    cdef Captured message
    cdef const uint8_t *starts[TOKENS_MAX]
    cdef size_t lengths[TOKENS_MAX]
    cdef size_t position = 0, end = batch.shape[0]
    cdef int count, at
    cdef uint64_t seq
    cdef dict plain = {}
    cdef list others = []
    cdef list seqs
    cdef bytes consumer, last = None
    while position < end:
        take_apart(&batch[position], end - position, &message)
        seq = 0
        if is_plain(&message):
            count = split(message.subject, message.subject_len, starts, lengths)
            at = 3 if count == SHORT_TOKENS else 5 if count >= LONG_TOKENS_MIN else 0
            if at:
                seq = number(starts[at + 2], lengths[at + 2])
        if seq:
            consumer = PyBytes_FromStringAndSize(<char *>starts[at], lengths[at])
            if consumer != last:
                seqs = plain.setdefault(consumer, [])
                last = consumer
            seqs.append(seq)
        else:
            others.append(position)
        position += message.length
    return plain, others
