"""The publish path's loops over bytes: captured messages become records of one log entry, and its outcome becomes acks.

A plain message (no header that JetStream reads, within the size limit, room in the stream) costs no Python object:
`take_plain` turns capture records into stored records until it meets one that is not plain, and returns where that one
starts. The caller judges it in Python and adds it, or refuses it, and goes on. So messages keep their order.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from jetraft.store._frame cimport (
    FRAME_HEADER_BYTES, RECORD_HEADER_BYTES, FrameHeader, Record, load_u16, load_u32, read_header, read_record,
    write_record_header,
)

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t haystacklen, const void *needle, size_t needlelen)

FLAG_MSG_ID = 1                       # the headers hold Nats-Msg-Id: apply feeds the table of duplicates
FLAG_ROLLUP = 2                       # the headers hold Nats-Rollup: apply removes what the message replaces
FLAG_TTL = 4                          # the headers hold Nats-TTL: apply notes when the message expires

cdef enum:
    CAPTURE_HEAD = 20
    DIGITS_MAX = 19                   # of a stream sequence
    HDR_BYTES_MAX = 65535             # as nats-server: headers above 64 KiB are refused (err_code 10097)


cdef int reserve(Buffer *buffer, size_t more) except -1:
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


cdef int take_apart(const uint8_t *data, size_t room, Captured *message) except -1:
    """Read one capture record; the plane made it, so anything wrong with it is a bug of ours."""
    cdef CaptureHead head
    assert room >= CAPTURE_HEAD, "capture batch ends inside a record header"
    memcpy(&head, data, CAPTURE_HEAD)
    message.length = head.length
    message.subject_len = head.subject_len
    message.reply_len = head.reply_len
    message.hdr_len = head.hdr_len
    message.payload_len = head.payload_len
    assert head.length <= room, "capture batch ends inside a record"
    assert <size_t>CAPTURE_HEAD + head.subject_len + head.reply_len + <size_t>head.hdr_len + head.payload_len == head.length
    message.subject = data + CAPTURE_HEAD
    message.reply = message.subject + head.subject_len
    message.hdr = message.reply + head.reply_len
    message.payload = message.hdr + head.hdr_len
    return 0


cdef bint is_plain(Captured *message, int64_t message_bytes_max) noexcept nogil:
    if message_bytes_max >= 0 and <int64_t>(message.hdr_len + message.payload_len) > message_bytes_max:
        return False
    if message.hdr_len == 0:
        return True
    if message.hdr_len > HDR_BYTES_MAX:
        return False
    return memmem(message.hdr, message.hdr_len, b"\nNats-", 6) == NULL


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
                   int64_t messages_room, int64_t bytes_room, Py_ssize_t size_max, bint acked):
        """Add records from `start` on while they are plain and fit; return the offset of the first one left.

        `messages_room` and `bytes_room` are what the stream still takes (-1 = no limit), `size_max` bounds the entry.
        """
        cdef Captured message
        cdef size_t position = start, end = batch.shape[0]
        cdef int64_t size
        while position < end and <Py_ssize_t>self.records.length < size_max:
            take_apart(&batch[position], end - position, &message)
            if not is_plain(&message, message_bytes_max):
                break
            size = self._stored_size(&message)
            if messages_room >= 0 and <int64_t>self.count >= messages_room:
                break
            if bytes_room >= 0 and self.stored_bytes + size > bytes_room:
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

    cdef int64_t _stored_size(self, Captured *message) noexcept:
        """What a message will count against max_bytes (store/retention.py, SizeModel)."""
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
            found.append(PyBytes_FromStringAndSize(<char *>record + RECORD_HEADER_BYTES, load_u16(record + 8)))
            position += load_u32(record)
        return found

    def last_seq_of(self, bytes subject not None):
        """The sequence of the last record with this subject, 0 when there is none."""
        cdef uint32_t last = 0
        self._count_of(subject, &last)
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
            if load_u16(record + 8) == wanted and memcmp(record + RECORD_HEADER_BYTES, text, wanted) == 0:
                found += 1
                last[0] = place
            position += load_u32(record)
        return found

    def acks(self, bytes prefix not None):
        """One ack for every record that somebody waits for, as capture records for `Outbox.send_batch`.

        `prefix` is the ack up to the number: `{"stream":"S","seq":`.
        """
        cdef size_t prefix_len = len(prefix), position = 0
        cdef size_t room = self.replies.length + self.count * (CAPTURE_HEAD + prefix_len + DIGITS_MAX + 1)
        cdef object out = PyBytes_FromStringAndSize(NULL, room)
        cdef char *start = PyBytes_AS_STRING(out)
        cdef char *end = start
        cdef uint16_t reply_len
        cdef CaptureHead head
        cdef Decimal seq
        memset(&head, 0, CAPTURE_HEAD)
        set_decimal(&seq, self.first_seq)
        while position < self.replies.length:
            memcpy(&reply_len, self.replies.data + position, 2)
            if reply_len:
                head.subject_len = reply_len
                head.payload_len = prefix_len + DIGITS_MAX - seq.first + 1
                head.length = CAPTURE_HEAD + reply_len + head.payload_len
                end = append(end, &head, CAPTURE_HEAD)
                end = append(end, self.replies.data + position + 2, reply_len)
                end = append(end, PyBytes_AS_STRING(prefix), prefix_len)
                end = append(end, seq.digits + seq.first, DIGITS_MAX - seq.first + 1)
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


def captured_at(const uint8_t[::1] batch, Py_ssize_t start):
    """The captured message at an offset as (next offset, subject, reply, hdr, payload length)."""
    cdef Captured message
    take_apart(&batch[start], batch.shape[0] - start, &message)
    return (
        start + <Py_ssize_t>message.length,
        PyBytes_FromStringAndSize(<char *>message.subject, message.subject_len),
        PyBytes_FromStringAndSize(<char *>message.reply, message.reply_len),
        PyBytes_FromStringAndSize(<char *>message.hdr, message.hdr_len),
        <Py_ssize_t>message.payload_len,
    )


def captured_payload(const uint8_t[::1] batch, Py_ssize_t start):
    """The payload of the captured message at an offset."""
    cdef Captured message
    take_apart(&batch[start], batch.shape[0] - start, &message)
    return PyBytes_FromStringAndSize(<char *>message.payload, message.payload_len)


def captured_origin(const uint8_t[::1] batch, Py_ssize_t start):
    """The connection from which the captured message at an offset came; 0 when it came from elsewhere."""
    cdef Captured message
    take_apart(&batch[start], batch.shape[0] - start, &message)
    return (<CaptureHead *>&batch[start]).origin


def flagged_records(bytes frame not None):
    """The records of a MESSAGES frame whose flags are not zero, as (index, flags, ts_ns, subject, hdr)."""
    cdef Record record
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(frame)
    cdef size_t offset = FRAME_HEADER_BYTES, end = len(frame)
    cdef FrameHeader header
    cdef uint32_t index
    cdef list found = []
    assert read_header(data, end, &header)
    for index in range(header.count):
        offset = read_record(data, end, offset, &record)
        assert offset != 0, "a committed MESSAGES frame holds a malformed record"
        if record.flags:
            found.append((
                index, record.flags, record.ts_ns,
                PyBytes_FromStringAndSize(<char *>record.subject, record.subject_len),
                PyBytes_FromStringAndSize(<char *>record.hdr, record.hdr_len),
            ))
    return found


def subjects_of(bytes frame not None):
    """The subjects of all records of a MESSAGES frame, in order; of a hole in it, an empty one."""
    cdef FrameHeader header
    cdef Record record
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(frame)
    cdef size_t offset = FRAME_HEADER_BYTES, end = len(frame)
    cdef list found = []
    assert read_header(data, end, &header)
    for _ in range(header.count):
        offset = read_record(data, end, offset, &record)
        assert offset != 0, "a committed MESSAGES frame holds a malformed record"
        found.append(PyBytes_FromStringAndSize(<char *>record.subject, record.subject_len))
    return found


def encode_capture(bytes subject not None, bytes reply not None=b"", bytes hdr not None=b"", bytes payload not None=b"",
                   uint32_t origin=0):
    """One capture record; the slow path's way to add to a batch of answers."""
    cdef CaptureHead head
    head.length = CAPTURE_HEAD + len(subject) + len(reply) + len(hdr) + len(payload)
    head.hdr_len = len(hdr)
    head.payload_len = len(payload)
    head.subject_len = len(subject)
    head.reply_len = len(reply)
    head.origin = origin
    return PyBytes_FromStringAndSize(<char *>&head, CAPTURE_HEAD) + subject + reply + hdr + payload
