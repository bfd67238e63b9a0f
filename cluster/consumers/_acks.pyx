"""A turn's acks, sorted: the plain ones become runs of stream sequences by consumer, the others are left to Python.

Plain is an empty or `+ACK` body without a reply subject and headers; that is nearly all of them, and they cost no parsing in Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from jetraft.cluster.capture._capture cimport Captured, take_apart
from jetraft.store.stream._runs cimport runs_of_any

cdef enum:
    SHORT_TOKENS = 9            # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ts>.<pending>
    LONG_TOKENS_MIN = 11        # with domain and account before the stream
    TOKENS_MAX = 13
    SHORT_CONSUMER = 3          # the place of the consumer's name among the tokens
    LONG_CONSUMER = 5
    DOTS_AFTER_SEQ = 3
    DIGITS_MAX = 19             # as nats-server's parser
    SEQS_MIN = 64

cdef uint64_t EACH = 0x0101010101010101     # times a byte: that byte eight times


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


cdef bint is_number(const uint8_t *text, size_t length) noexcept nogil:
    """Whether it is a decimal number that has a place here."""
    cdef size_t i
    for i in range(length):
        if not c'0' <= text[i] <= c'9':
            return False
    return 0 < length <= DIGITS_MAX


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


cdef uint64_t seq_after(const uint8_t *text, size_t length) noexcept nogil:
    """The stream sequence in `<deliveries>.<stream seq>.<consumer seq>.<ts>.<pending>`; 0 for anything else."""
    cdef size_t position = 0, start
    cdef uint64_t seq
    while position < length and text[position] != c'.':
        position += 1
    start = position = position + 1
    while position < length and text[position] != c'.':
        position += 1
    seq = number(text + start, position - start) if position < length else 0
    return seq if seq and dots_in(text + position, length - position) == DOTS_AFTER_SEQ else 0


cdef uint64_t dots_in(const uint8_t *text, size_t length) noexcept nogil:
    """How many dots there are, eight bytes at a time."""
    cdef uint64_t word, others, dots = 0
    while length >= 8:
        memcpy(&word, text, 8)
        word ^= EACH * c'.'
        others = ((word & EACH * 0x7F) + EACH * 0x7F) | word       # the high bit of every byte that is not a dot
        dots += ((~others & EACH * 0x80) >> 7) * EACH >> 56
        text += 8
        length -= 8
    while length:
        dots += text[0] == c'.'
        text += 1
        length -= 1
    return dots


cdef inline int consumer_place(int tokens) noexcept nogil:
    """Which token is the consumer's name; deliveries, stream and consumer sequence follow it. 0: it is no ack."""
    return SHORT_CONSUMER if tokens == SHORT_TOKENS else LONG_CONSUMER if tokens >= LONG_TOKENS_MIN else 0


def ack_places(bytes subject not None):
    """(consumer, deliveries, stream sequence, consumer sequence) of an ack's subject, None when it is not one."""
    cdef const uint8_t *starts[TOKENS_MAX]
    cdef size_t lengths[TOKENS_MAX]
    cdef int at = consumer_place(split(<const uint8_t *>PyBytes_AS_STRING(subject), len(subject), starts, lengths)), i
    if at == 0:
        return None
    for i in range(at + 1, at + 4):
        if not is_number(starts[i], lengths[i]):
            return None
    return (
        PyBytes_FromStringAndSize(<const char *>starts[at], lengths[at]),
        number(starts[at + 1], lengths[at + 1]),
        number(starts[at + 2], lengths[at + 2]),
        number(starts[at + 3], lengths[at + 3]),
    )


cdef bint is_plain(Captured *message) noexcept nogil:
    if message.reply_len or message.hdr_len:
        return False
    return message.payload_len == 0 or (message.payload_len == 4 and memcmp(message.payload, b"+ACK", 4) == 0)


cdef class SeqList:
    """The sequences that were acknowledged to one consumer, as they come."""
    cdef uint64_t *seqs
    cdef size_t count
    cdef size_t room

    def __dealloc__(self):
        free(self.seqs)

    cdef int add(self, uint64_t seq) except -1:
        cdef uint64_t *grown
        cdef size_t room
        if self.count == self.room:
            room = self.room * 2 if self.room else SEQS_MIN
            grown = <uint64_t *>realloc(self.seqs, room * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError
            self.seqs = grown
            self.room = room
        self.seqs[self.count] = seq
        self.count += 1
        return 0


def sort_acks(const uint8_t[::1] batch, set strict=None):
    """Plain acks as {consumer: Runs of stream sequences}, and the offsets of the capture records that are left.

    No ack of a consumer in `strict` is plain.
    """
    cdef Captured message
    cdef const uint8_t *starts[TOKENS_MAX]
    cdef size_t lengths[TOKENS_MAX]
    cdef size_t position = 0, end = batch.shape[0], last_len = 0, last_start = 0, last_prefix = 0
    cdef const uint8_t *last = NULL
    cdef int count, at
    cdef uint64_t seq
    cdef dict plain = {}
    cdef list others = []
    cdef SeqList seqs = None
    cdef bytes consumer
    while position < end:
        take_apart(&batch[position], end - position, &message)
        seq = 0
        if is_plain(&message) and last_prefix and message.subject_len > last_prefix:
            # Most acks follow one to the same consumer: the same bytes up to the numbers.
            if memcmp(message.subject, &batch[last_start], last_prefix) == 0:
                seq = seq_after(message.subject + last_prefix, message.subject_len - last_prefix)
                if seq:
                    seqs.add(seq)
                    position += message.length
                    continue
        if is_plain(&message):
            count = split(message.subject, message.subject_len, starts, lengths)
            at = consumer_place(count)
            if at:
                seq = number(starts[at + 2], lengths[at + 2])
                if strict and PyBytes_FromStringAndSize(<char *>starts[at], lengths[at]) in strict:
                    seq = 0
        if seq:
            if last == NULL or lengths[at] != last_len or memcmp(starts[at], last, last_len) != 0:
                last, last_len = starts[at], lengths[at]
                consumer = PyBytes_FromStringAndSize(<char *>last, last_len)
                seqs = plain.get(consumer)
                if seqs is None:
                    plain[consumer] = seqs = SeqList()
            seqs.add(seq)
            last_prefix = starts[at + 1] - message.subject if at == SHORT_CONSUMER else 0
            last_start = message.subject - &batch[0]
        else:
            others.append(position)
        position += message.length
    for consumer, seqs in plain.items():
        plain[consumer] = runs_of_any(seqs.seqs, seqs.count)
    return plain, others
