"""The fast path of a source: deliveries that say nothing to JetStream become records with a header that names the origin.

`take_copies` stops at the first delivery that is not plain, or that the stream may have no room for: `copies.py` judges
that one in Python. The header is that of `source_header.header_value`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from jetraft.cluster.capture._capture cimport Captured, take_apart
from jetraft.cluster.origins._plain cimport NUMBER_BITS, NUMBERS, SourceRun, is_plain, read_numbers
from jetraft.cluster.streams.publishing._admission cimport HDR_BYTES_MAX, RecordBatch, put, reserve
from jetraft.store.frames._frame cimport RECORD_HEADER_BYTES, write_record_header

from jetraft.store.frames.format import RECORD_IS_SOURCED

cdef enum:
    DIGITS_MAX = 20
    LINE_END_BYTES = 2
    SUBJECT_BYTES_MAX = 0xFFFF      # store/model/mapping/transforming.py

cdef bytes BEGIN = b"NATS/1.0\r\n"
cdef bytes NAME = b"Nats-Stream-Source: "
cdef bytes END = b"\r\n\r\n"       # of the line and of the block
cdef int SOURCED = RECORD_IS_SOURCED


cdef inline size_t write_number(uint8_t *end, uint64_t value) noexcept nogil:
    """Write a decimal that ends before `end`; returns its length."""
    cdef size_t length = 0
    while value or length == 0:
        length += 1
        (end - length)[0] = c"0" + <uint8_t>(value % 10)
        value //= 10
    return length


def take_copies(RecordBatch records not None, bytes batch not None, Py_ssize_t start, SourceRun run not None,
                int64_t message_bytes_max, int64_t messages_room, int64_t bytes_room, Py_ssize_t size_max):
    """Add copies of deliveries from `start` on and advance `run`; return the offset of the first one left.

    The rooms are what the stream still takes, in messages and bytes (-1 = no limit); `size_max` bounds the entry.
    """
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(batch)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(batch), position = start
    cdef uint64_t numbers[NUMBERS]
    cdef uint8_t digits[DIGITS_MAX]
    cdef Captured message
    cdef size_t begun, line, hdr_len, digit_count, length
    cdef size_t fixed = len(NAME) + len(run.before) + len(run.between) + len(run.after) + len(END)
    cdef int64_t size
    cdef bytes changed
    cdef const uint8_t *subject
    cdef size_t subject_len
    assert records.exports == 0, "the records are being read"
    while position < end and <Py_ssize_t>records.records.length < size_max:
        take_apart(data + position, end - position, &message)
        if not is_plain(&message) or not read_numbers(message.reply, message.reply_len, numbers):
            break
        if numbers[0] <= run.last_seq or numbers[0] >> NUMBER_BITS or numbers[1] != run.consumer_seq + 1:
            break
        if numbers[2] >> NUMBER_BITS or numbers[3] >> NUMBER_BITS:
            break
        digit_count = write_number(digits + DIGITS_MAX, numbers[0])
        if message.hdr_len and (message.hdr_len < LINE_END_BYTES or message.hdr[message.hdr_len - 1] != c"\n"
                                or message.hdr[message.hdr_len - 2] != c"\r"):
            break
        begun = message.hdr_len - LINE_END_BYTES if message.hdr_len else len(BEGIN)
        line = fixed + digit_count + message.subject_len
        hdr_len = begun + line
        if hdr_len > HDR_BYTES_MAX:
            break
        if message_bytes_max >= 0 and <int64_t>(hdr_len + message.payload_len) > message_bytes_max:
            break
        size = records.overhead_bytes + records.hdr_overhead_bytes
        subject, subject_len = message.subject, message.subject_len
        if run.change is not None:
            changed = run.change((<const char *>subject)[:subject_len])
            subject, subject_len = <const uint8_t *>PyBytes_AS_STRING(changed), PyBytes_GET_SIZE(changed)
            if subject_len > SUBJECT_BYTES_MAX:
                break
        size += <int64_t>(subject_len + hdr_len + message.payload_len)
        if messages_room >= 0 and <int64_t>records.count >= messages_room:
            break
        if bytes_room >= 0 and records.stored_bytes + size > bytes_room:
            break
        length = RECORD_HEADER_BYTES + subject_len + hdr_len + message.payload_len
        reserve(&records.records, length)
        reserve(&records.replies, 2)
        write_record_header(records.records.data + records.records.length, <uint32_t>hdr_len,
                            <uint32_t>message.payload_len, <uint16_t>subject_len, SOURCED, records.ts_ns)
        records.records.length += RECORD_HEADER_BYTES
        put(&records.records, subject, subject_len)
        put(&records.records, message.hdr if message.hdr_len else <const uint8_t *>PyBytes_AS_STRING(BEGIN), begun)
        put(&records.records, PyBytes_AS_STRING(NAME), len(NAME))
        put(&records.records, PyBytes_AS_STRING(run.before), len(run.before))
        put(&records.records, digits + DIGITS_MAX - digit_count, digit_count)
        put(&records.records, PyBytes_AS_STRING(run.between), len(run.between))
        put(&records.records, message.subject, message.subject_len)
        put(&records.records, PyBytes_AS_STRING(run.after), len(run.after))
        put(&records.records, PyBytes_AS_STRING(END), len(END))
        put(&records.records, message.payload, message.payload_len)
        put(&records.replies, b"\0\0", 2)     # without a reply subject: nothing is answered
        records.count += 1
        records.stored_bytes += size
        run.last_seq, run.consumer_seq, run.num_pending = numbers[0], numbers[1], numbers[3]
        position += message.length
    return position
