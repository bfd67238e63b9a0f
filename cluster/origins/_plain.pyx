"""The fast path of a mirror: deliveries in a row that say nothing to JetStream become records, without an object for each.

`take_plain` stops at the first delivery that is not plain: `Deliveries` and `MirrorIntake` judge that one in Python. The
fast path of a source is cluster/streams/admission/_copies.pyx, because copies go through admission.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from jetraft.cluster.capture._capture cimport Captured, take_apart
from jetraft.store.frames._frame cimport RECORD_HEADER_BYTES, write_record_header

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t haystacklen, const void *needle, size_t needlelen)

cdef enum:
    TOKENS_BEFORE = 5       # $JS.ACK.<stream>.<consumer>.<deliveries>
    DIGITS_MAX = 19
    HDR_BYTES_MAX = 65535


cdef bint read_numbers(const uint8_t *reply, size_t length, uint64_t *numbers) noexcept nogil:
    """The numbers of an ack subject of nine tokens; False for any other."""
    cdef size_t at = 0, dots = 0, digits = 0
    cdef int found = 0
    if length < 8 or memcmp(reply, b"$JS.ACK.", 8) != 0:
        return False
    while at < length and dots < TOKENS_BEFORE:
        if reply[at] == c".":
            dots += 1
        at += 1
    numbers[0] = 0
    while at < length:
        if reply[at] == c".":
            found += 1
            if digits == 0 or found == NUMBERS:
                return False
            numbers[found] = digits = 0
        elif c"0" <= reply[at] <= c"9" and digits < DIGITS_MAX:
            numbers[found] = numbers[found] * 10 + (reply[at] - c"0")
            digits += 1
        else:
            return False
        at += 1
    return found == NUMBERS - 1 and digits > 0


cdef bint is_plain(Captured *message) noexcept nogil:
    """No status, and no header that JetStream reads."""
    if message.hdr_len == 0:
        return True
    if message.hdr_len > HDR_BYTES_MAX or (message.payload_len == 0 and message.hdr_len > 8 and message.hdr[8] == c" "):
        return False
    return memmem(message.hdr, message.hdr_len, b"\nNats-", 6) == NULL


cdef class SourceRun:
    """How far one source has been read in a run of deliveries, and what its header says around sequence and subject."""

    def __init__(self, bytes before not None, bytes between not None, bytes after not None, *, uint64_t consumer_seq,
                 uint64_t last_seq, change=None):
        self.before = before
        self.between = between
        self.after = after
        self.change = change
        self.consumer_seq = consumer_seq
        self.last_seq = last_seq


def take_plain(bytes batch not None, Py_ssize_t start, uint64_t consumer_seq, uint64_t last_seq, size_t size_max):
    """The records of plain deliveries from an offset on, which follow these sequences without a gap.

    Returns (records, how many, offset behind them, messages that the consumer has still to deliver).
    """
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(batch)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(batch), position = start
    cdef uint64_t numbers[NUMBERS]
    cdef Captured message
    cdef uint64_t count = 0, pending = 0
    cdef size_t size = 0, length
    cdef bytes records
    cdef uint8_t *out
    cdef Py_ssize_t stop
    while position < end and size < size_max:
        take_apart(data + position, end - position, &message)
        if not is_plain(&message) or not read_numbers(message.reply, message.reply_len, numbers):
            break
        if numbers[0] != last_seq + count + 1 or numbers[1] != consumer_seq + count + 1 or numbers[2] >> NUMBER_BITS:
            break
        size += RECORD_HEADER_BYTES + message.subject_len + message.hdr_len + message.payload_len
        pending = numbers[3]
        count += 1
        position += message.length
    stop, position = position, start
    records = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t *>PyBytes_AS_STRING(records)
    while position < stop:
        take_apart(data + position, end - position, &message)
        read_numbers(message.reply, message.reply_len, numbers)
        write_record_header(out, message.hdr_len, message.payload_len, message.subject_len, 0, <int64_t>numbers[2])
        out += RECORD_HEADER_BYTES
        memcpy(out, message.subject, message.subject_len)
        out += message.subject_len
        length = message.hdr_len + message.payload_len
        memcpy(out, message.hdr, length)
        out += length
        position += message.length
    return records, count, stop, pending
