"""The publish path's loops over bytes: captured messages become records of one log entry, and its outcome becomes acks.

A plain message (no header that JetStream reads, of no batch, within the size limit, room in the stream) costs no Python
object: `take_plain` turns capture records into stored records until it meets one that is not plain, and returns where
that one starts. The caller judges it in Python and adds it, or refuses it, and goes on. So messages keep their order.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from jetraft.store.stream._subjtree cimport subject_matches

from jetraft.cluster.capture._capture cimport Captured, capture_bytes, take_apart, write_capture_head
from jetraft.store.frames._frame cimport (
    RECORD_HEADER_BYTES, record_hdr_len, record_length, record_subject, record_subject_len, write_record_header,
)

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t haystacklen, const void *needle, size_t needlelen)

cdef enum:
    DIGITS_MAX = 19                   # of a stream sequence


cdef bint is_plain(Captured *message, int64_t message_bytes_max, bint bare) noexcept nogil:
    if message.reply_len >= 4 and memcmp(message.reply + message.reply_len - 4, ".$FI", 4) == 0:  # of a fast batch
        return False
    return asks_for_nothing(message, message_bytes_max, bare)


cdef bint asks_for_nothing(Captured *message, int64_t message_bytes_max, bint bare) noexcept nogil:
    """Within the size of a message (-1 = no limit), and without a header of JetStream; with `bare` without any."""
    if message_bytes_max >= 0 and <int64_t>(message.hdr_len + message.payload_len) > message_bytes_max:
        return False
    if message.hdr_len == 0:
        return True
    return not bare and message.hdr_len <= HDR_BYTES_MAX and memmem(message.hdr, message.hdr_len, b"\nNats-", 6) == NULL


cdef class RecordBatch:
    """The records of one MESSAGES entry in the making, with the reply subjects that wait for its outcome."""

    def __cinit__(self, uint64_t first_seq, int64_t ts_ns, int64_t overhead_bytes, int64_t hdr_overhead_bytes):
        self.first_seq = first_seq
        self.ts_ns = ts_ns
        self.overhead_bytes = overhead_bytes
        self.hdr_overhead_bytes = hdr_overhead_bytes

    def __dealloc__(self):
        free(self.records.data)
        free(self.replies.data)

    @property
    def next_seq(self):
        """The stream sequence that the next record gets."""
        return self.first_seq + self.count

    @property
    def size(self):
        """Bytes of records so far."""
        return self.records.length

    def take_plain(self, const uint8_t[::1] batch, Py_ssize_t start, int64_t message_bytes_max,
                   int64_t messages_room, int64_t bytes_room, Py_ssize_t size_max, bint acked, bint bare):
        """Add records from `start` on while they are plain and fit; return the offset of the first one left.

        `messages_room` and `bytes_room` are what the stream still takes (-1 = no limit), `size_max` bounds the entry.
        With `bare` only a message without headers is plain.
        """
        cdef Captured message
        cdef size_t position = start, end = batch.shape[0]
        cdef int64_t size
        while position < end and <Py_ssize_t>self.records.length < size_max:
            take_apart(&batch[position], end - position, &message)
            if not is_plain(&message, message_bytes_max, bare):
                break
            size = self._stored_size(&message)
            if not self._has_room(size, messages_room, bytes_room):
                break
            if not acked:
                message.reply_len = 0
            self._append(&message, 0, size)
            position += message.length
        return position

    def add_at(self, const uint8_t[::1] batch, Py_ssize_t start, uint16_t flags, bint acked):
        """Add the one captured message at `start`, whatever its headers; return the offset of the next one."""
        cdef Captured message
        take_apart(&batch[start], batch.shape[0] - start, &message)
        if not acked:
            message.reply_len = 0
        self._append(&message, flags, self._stored_size(&message))
        return start + message.length

    cdef bint _has_room(self, int64_t size, int64_t messages_room, int64_t bytes_room) noexcept:
        """Whether the stream takes one more record of this size; -1 = no limit."""
        if messages_room >= 0 and <int64_t>self.count >= messages_room:
            return False
        return bytes_room < 0 or self.stored_bytes + size <= bytes_room

    cdef int64_t _stored_size(self, Captured *message) noexcept:
        """What a message will count against max_bytes (store/stream/retention.py, SizeModel)."""
        cdef int64_t size = self.overhead_bytes + message.subject_len + message.hdr_len + message.payload_len
        return size + self.hdr_overhead_bytes if message.hdr_len else size

    cdef int _append(self, Captured *message, uint16_t flags, int64_t size) except -1:
        cdef uint16_t reply_len = message.reply_len
        cdef size_t length = RECORD_HEADER_BYTES + message.subject_len + message.hdr_len + message.payload_len
        assert self.exports == 0, "the records are being read"
        reserve(&self.records, length)
        reserve(&self.replies, 2 + message.reply_len)
        write_record_header(self.records.data + self.records.length, message.hdr_len, message.payload_len,
                            message.subject_len, flags, self.ts_ns)
        self.records.length += RECORD_HEADER_BYTES
        put(&self.records, message.subject, message.subject_len)
        put(&self.records, message.hdr, message.hdr_len + message.payload_len)
        put(&self.replies, &reply_len, 2)
        put(&self.replies, message.reply, message.reply_len)
        self.count += 1
        self.stored_bytes += size
        return 0

    def subjects(self):
        """The subjects of all records, in order."""
        cdef size_t position = 0
        cdef const uint8_t *record
        cdef list found = []
        while position < self.records.length:
            record = self.records.data + position
            found.append(PyBytes_FromStringAndSize(<const char *>record_subject(record), record_subject_len(record)))
            position += record_length(record)
        return found

    def last_seq_of(self, bytes subject not None):
        """The sequence of the last record with this subject, 0 when there is none."""
        cdef uint32_t last = 0
        self._count_of(subject, &last)
        return self.first_seq + last - 1 if last else 0

    def last_match(self, bytes pattern not None):
        """The sequence of the last record whose subject a pattern admits, 0 when there is none."""
        cdef size_t position = 0, size = len(pattern)
        cdef uint32_t place = 0, last = 0
        cdef const char *text = PyBytes_AS_STRING(pattern)
        cdef const uint8_t *record
        while position < self.records.length:
            record = self.records.data + position
            place += 1
            if subject_matches(text, size, <const char *>record_subject(record), record_subject_len(record)):
                last = place
            position += record_length(record)
        return self.first_seq + last - 1 if last else 0

    def count_of(self, bytes subject not None):
        """How many records have this subject."""
        cdef uint32_t last = 0
        return self._count_of(subject, &last)

    cdef uint32_t _count_of(self, bytes subject, uint32_t *last) noexcept:
        """Count the records with this subject; `last` gets the place of the last one, counted from 1."""
        cdef size_t position = 0, wanted = len(subject)
        cdef uint32_t found = 0, place = 0
        cdef const char *text = PyBytes_AS_STRING(subject)
        cdef const uint8_t *record
        while position < self.records.length:
            record = self.records.data + position
            place += 1
            if record_subject_len(record) == wanted and memcmp(record_subject(record), text, wanted) == 0:
                found += 1
                last[0] = place
            position += record_length(record)
        return found

    def bytes_of(self, bytes subject not None):
        """What the records with this subject will count against max_bytes."""
        cdef size_t position = 0, wanted = len(subject)
        cdef int64_t total = 0
        cdef const char *text = PyBytes_AS_STRING(subject)
        cdef const uint8_t *record
        while position < self.records.length:
            record = self.records.data + position
            if record_subject_len(record) == wanted and memcmp(record_subject(record), text, wanted) == 0:
                total += self.overhead_bytes + record_length(record) - RECORD_HEADER_BYTES
                total += self.hdr_overhead_bytes if record_hdr_len(record) else 0
            position += record_length(record)
        return total

    def acks(self, bytes prefix not None):
        """One ack for every record with a reply subject, as capture records for `Outbox.send_batch`.

        `prefix` is the ack up to the number: `{"stream":"S","seq":`.
        """
        cdef size_t prefix_len = len(prefix), position = 0
        cdef size_t room = self.replies.length + self.count * (capture_bytes(0, 0, prefix_len) + DIGITS_MAX + 1)
        cdef object out = PyBytes_FromStringAndSize(NULL, room)
        cdef char *start = PyBytes_AS_STRING(out)
        cdef char *end = start
        cdef uint16_t reply_len
        cdef uint32_t digits_len
        cdef Decimal seq
        set_decimal(&seq, self.first_seq)
        while position < self.replies.length:
            memcpy(&reply_len, self.replies.data + position, 2)
            if reply_len:
                digits_len = DIGITS_MAX - seq.first + 1
                end = write_capture_head(end, reply_len, 0, 0, prefix_len + digits_len, 0)
                end = append(end, self.replies.data + position + 2, reply_len)
                end = append(end, PyBytes_AS_STRING(prefix), prefix_len)
                end = append(end, seq.digits + seq.first, digits_len)
            increment(&seq)
            position += 2 + reply_len
        return out if end == start + room else out[:end - start]

    def __getbuffer__(self, Py_buffer *view, int flags):
        """The records as bytes, to be copied into a frame without one copy more; no record is added any more."""
        PyBuffer_FillInfo(view, self, self.records.data, self.records.length, True, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1


cdef struct Decimal:                  # a number as text, and a closing brace behind it
    char digits[20]
    int first                         # where the digits begin


cdef void set_decimal(Decimal *number, uint64_t value) noexcept nogil:
    number.digits[DIGITS_MAX] = c"}"
    number.first = DIGITS_MAX
    while value or number.first == DIGITS_MAX:
        number.first -= 1
        number.digits[number.first] = c"0" + <char>(value % 10)
        value //= 10


cdef void increment(Decimal *number) noexcept nogil:
    """The next number: mostly one digit changes."""
    cdef int place = DIGITS_MAX - 1
    while place >= number.first and number.digits[place] == c"9":
        number.digits[place] = c"0"
        place -= 1
    if place < number.first:
        number.first = place
        number.digits[place] = c"0"
    number.digits[place] += 1


cdef inline char *append(char *out, const void *data, size_t length) noexcept nogil:
    memcpy(out, data, length)
    return out + length
