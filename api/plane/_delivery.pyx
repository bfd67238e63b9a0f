"""Deliveries of a consumer: copies records of a stream from its frames into the receivers' output buffers.

`deliver_one_by_one` of cluster/ports.py defines the meaning of a run; this is tested against it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jetraft.api.plane._accounts cimport Account
from jetraft.api.plane._deliver cimport deliver, match_for
from jetraft.api.plane._plane cimport Plane
from jetraft.api.plane._text cimport jr_utoa
from jetraft.api.plane._types cimport CONN_OPEN, FROM_DELIVERY, SUB_CLIENT, acct_t, conn_t, match_t, msg_t, plain_of, plane_t, sub_t
from jetraft.api.plane._writer cimport conn_send, emit_message
from jetraft.store.frames._frame cimport Record
from jetraft.store.stream._records cimport RecordReader
from jetraft.store.stream._runs cimport Runs

cdef enum:
    ACK_PREFIX_MAX = 1024       # two names of 255 bytes, account, domain and dots
    NUMBER_MAX = 21             # a decimal number and a dot
    ACK_NUMBERS_MAX = 5 * 21    # five decimal numbers and dots
    SEND_RUN_BYTES = 64 * 1024  # a run as large is sent at once: its receiver works while the turn continues


cdef struct column_t:           # consumer sequences or pending counts of a run of first deliveries
    int64_t start
    int64_t step


cdef struct decimal_t:          # a number as text; the next number mostly differs in its last two digits
    uint64_t hundreds
    char text[NUMBER_MAX]
    Py_ssize_t length           # of the text of the hundreds; 0 before the first number


cdef inline Py_ssize_t write_next(decimal_t* number, char* out, uint64_t value) noexcept nogil:
    """Write a number in decimal; returns its length."""
    cdef uint64_t hundreds = value // 100
    cdef int rest = <int>(value - hundreds * 100)
    if hundreds == 0:
        return jr_utoa(out, value)
    if hundreds != number.hundreds or number.length == 0:
        number.hundreds = hundreds
        number.length = jr_utoa(number.text, hundreds)
    memcpy(out, number.text, NUMBER_MAX)
    out[number.length] = <char>(c"0" + rest // 10)
    out[number.length + 1] = <char>(c"0" + rest % 10)
    return number.length + 2


cdef class Envelope:
    """The state that the messages of one run share: the receivers, and the start of the ack subject."""
    cdef char reply[ACK_PREFIX_MAX + ACK_NUMBERS_MAX]
    cdef Py_ssize_t prefix
    cdef int64_t ts_ns                  # of the last message; messages of one entry mostly have the same
    cdef char ts[NUMBER_MAX]            # as text, after a dot
    cdef Py_ssize_t ts_len
    cdef decimal_t stream_seq, consumer_seq, num_pending
    cdef plane_t* plane
    cdef acct_t* acct
    cdef match_t* match
    cdef sub_t* only                    # the only receiver, a client's subscription without a limit, or NULL
    cdef msg_t msg

    def __cinit__(self, Plane plane, Account account not None, bytes to, bytes ack_prefix):
        self.prefix = PyBytes_GET_SIZE(ack_prefix)
        if self.prefix > ACK_PREFIX_MAX:
            raise ValueError(f"an ack prefix has {self.prefix} bytes, at most {ACK_PREFIX_MAX} are allowed")
        memcpy(self.reply, PyBytes_AS_STRING(ack_prefix), self.prefix)
        self.msg.subject = PyBytes_AS_STRING(to)
        self.msg.subject_len = <uint16_t>PyBytes_GET_SIZE(to)
        self.msg.reply = self.reply
        self.msg.origin = FROM_DELIVERY
        self.plane = &plane.p
        self.acct = account.within(self.plane)
        # The answer holds for the whole run: nothing looks another subject up, and ended subscriptions are skipped.
        self.match = match_for(self.plane, self.acct, self.msg.subject, self.msg.subject_len)
        if self.match.count == 1 and self.match.group_count == 0:
            self.only = plain_of(self.match)[0]
            if self.only.kind != SUB_CLIENT or self.only.closed or self.only.max_msgs or self.only.of.conn.guard:
                self.only = NULL

    cdef void send(self, Record* record, uint64_t stream_seq, uint64_t consumer_seq, uint64_t count, uint64_t num_pending) noexcept:
        """Send one message to those who receive it."""
        cdef char* reply = self.reply
        cdef Py_ssize_t n = self.prefix
        if self.only != NULL:
            if self.only.of.conn.state != CONN_OPEN:
                return
            self.only.delivered += 1
        n += jr_utoa(reply + n, count)
        reply[n] = c"."
        n += 1 + write_next(&self.stream_seq, reply + n + 1, stream_seq)
        reply[n] = c"."
        n += 1 + write_next(&self.consumer_seq, reply + n + 1, consumer_seq)
        if record.ts_ns != self.ts_ns or self.ts_len == 0:
            self.ts_ns = record.ts_ns
            self.ts[0] = c"."
            self.ts_len = 1 + jr_utoa(self.ts + 1, <uint64_t>record.ts_ns)
        memcpy(reply + n, self.ts, NUMBER_MAX)      # a fixed length is inlined; surplus bytes are overwritten
        n += self.ts_len
        reply[n] = c"."
        n += 1 + write_next(&self.num_pending, reply + n + 1, num_pending)
        self.msg.reply_len = <uint16_t>n
        self.msg.shown = <const char*>record.subject
        self.msg.shown_len = <uint16_t>record.subject_len
        # Headers and payload follow each other in the record.
        self.msg.data = <const char*>record.hdr
        self.msg.hdr_len = <uint32_t>record.hdr_len
        self.msg.size = <uint32_t>(record.hdr_len + record.payload_len)
        if self.only == NULL:
            self.send_to_several()
        else:
            emit_message(self.plane, self.only, &self.msg)

    cdef void send_to_several(self) noexcept:
        """Deliver by the answer of the run; once a message went on to another account, that may be gone."""
        deliver(self.plane, self.acct, NULL, &self.msg, self.match)
        if self.plane.crossed:
            self.plane.crossed = 0
            self.match = match_for(self.plane, self.acct, self.msg.subject, self.msg.subject_len)

    cdef bint send_much(self) noexcept:
        """Send now if SEND_RUN_BYTES wait for the only receiver; returns whether it was sent."""
        cdef conn_t* conn
        if self.only == NULL:
            return False
        conn = self.only.of.conn
        if conn.out.end - conn.out.start < SEND_RUN_BYTES or conn.state != CONN_OPEN or conn.want_write:
            return False
        conn_send(self.plane, conn)
        return True


def deliver_run(
    Plane plane, Account account, RecordReader reader, bytes to, bytes ack_prefix, stream_seqs, consumer_seqs, counts, nums_pending
):
    """Send the messages of one run within an account; returns how many the store still had. The others are skipped.

    Columns of first deliveries (Runs, two ranges, and the counts as bytes) are read without an object per number.
    """
    cdef Envelope envelope = Envelope(plane, account, to, ack_prefix)
    cdef uint64_t stream_seq, consumer_seq, count, num_pending
    cdef uint32_t found
    cdef Record record
    if type(stream_seqs) is Runs and type(consumer_seqs) is range and type(nums_pending) is range and type(counts) is bytes:
        if not len(stream_seqs) == len(consumer_seqs) == len(nums_pending) == len(counts):
            raise ValueError(
                f"the columns of a run differ in length: {len(stream_seqs)} stream sequences, "
                f"{len(consumer_seqs)} consumer sequences, {len(nums_pending)} pending counts, {len(counts)} counts"
            )
        found = deliver_columns(
            envelope, reader, stream_seqs, column_of(consumer_seqs), counts, column_of(nums_pending)
        )
        if envelope.send_much():
            # Read the next run of the same size while the receiver works on this one.
            reader.read_ahead((<Runs>stream_seqs).high() + (<Runs>stream_seqs).total)
        return found
    found = 0
    for stream_seq, consumer_seq, count, num_pending in zip(stream_seqs, consumer_seqs, counts, nums_pending):
        if reader.fetch(stream_seq, &record):
            envelope.send(&record, stream_seq, consumer_seq, count, num_pending)
            found += 1
    return found


cdef column_t column_of(numbers) except *:
    cdef column_t column
    column.start = numbers.start
    column.step = numbers.step
    return column


cdef uint32_t deliver_columns(Envelope envelope, RecordReader reader, Runs seqs, column_t consumer_seqs, bytes counts,
                              column_t nums_pending) except? 0:
    cdef const unsigned char* times = <const unsigned char*>PyBytes_AS_STRING(counts)
    cdef uint32_t found = 0
    cdef uint64_t seq
    cdef int64_t consumer_seq = consumer_seqs.start, num_pending = nums_pending.start
    cdef size_t i
    cdef Record record
    for i in range(seqs.run_count):
        for seq in range(seqs.runs[i].first, seqs.runs[i].first + seqs.runs[i].count):
            if reader.fetch(seq, &record):
                envelope.send(&record, seq, consumer_seq, times[0], num_pending if num_pending > 0 else 0)
                found += 1
            times += 1
            consumer_seq += consumer_seqs.step
            num_pending += nums_pending.step
    return found
