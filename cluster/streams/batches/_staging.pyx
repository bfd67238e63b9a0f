"""Runs of a batch: messages that continue it and ask for nothing else, without an object for each.

Most messages of an atomic batch have two headers of JetStream, its id and their number in it; those of a fast batch say
both in their reply subject. Messages that follow each other in what the plane has captured are taken together: those of
an atomic batch are one piece of bytes, from staging to the log, those of a fast batch become records at once. Anything
else ends a run, and is judged in Python by itself (batching.py), so a run and the same messages one by one have the
same outcome.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from jetraft.cluster.capture._capture cimport Captured, take_apart
from jetraft.cluster.streams.publishing._admission cimport HDR_BYTES_MAX, RecordBatch, asks_for_nothing

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t haystacklen, const void *needle, size_t needlelen)

cdef enum:
    NUMBER_ROOM = 20                  # digits
    LINE_END_BYTES = 2
    APPEND_BYTES = 6                  # of ".1.$FI", behind the number of a message that is appended to a fast batch

cdef uint32_t TRACED_ORIGIN = 0x8000_0000  # of the origin, as in cluster/capture/reach.py


cdef size_t write_number(char *out, uint64_t number) noexcept nogil:
    """Write a number; returns its length."""
    cdef char digits[NUMBER_ROOM]
    cdef size_t i, length, place = NUMBER_ROOM
    while number or place == NUMBER_ROOM:
        place -= 1
        digits[place] = c"0" + <char>(number % 10)
        number //= 10
    length = NUMBER_ROOM - place
    for i in range(length):
        out[i] = digits[place + i]
    return length


def run_of(const uint8_t[::1] batch, Py_ssize_t start, bytes head not None, uint64_t seq, int64_t message_bytes_max,
           int64_t messages_room, int64_t bytes_room):
    """Return where a run from `start` on ends, and how many messages it has.

    The headers of its messages are `head` and a number, `seq` for the first; whatever follows is none of JetStream's.
    They have no reply subject. `message_bytes_max` bounds headers and payload (-1 = no limit), `bytes_room` records.
    """
    cdef Captured message
    cdef char number[NUMBER_ROOM + LINE_END_BYTES]
    cdef const char *wanted = head
    cdef size_t position = start, end = batch.shape[0], head_len = len(head), number_len, read
    cdef int64_t count = 0
    while position < end and count < messages_room:
        take_apart(&batch[position], end - position, &message)
        number_len = write_number(number, seq + count)
        memcpy(number + number_len, b"\r\n", LINE_END_BYTES)
        number_len += LINE_END_BYTES
        read = head_len + number_len
        if message.reply_len or message.origin & TRACED_ORIGIN or <int64_t>message.length > bytes_room:
            break
        if message.hdr_len < read or message.hdr_len > HDR_BYTES_MAX:
            break
        if message_bytes_max >= 0 and <int64_t>(message.hdr_len + message.payload_len) > message_bytes_max:
            break
        if memcmp(message.hdr, wanted, head_len) != 0 or memcmp(message.hdr + head_len, number, number_len) != 0:
            break
        if memmem(message.hdr + read - 1, message.hdr_len - read + 1, b"\nNats-", 6) != NULL:
            break
        bytes_room -= message.length
        position += message.length
        count += 1
    return position, count


def add_run(RecordBatch records not None, const uint8_t[::1] run):
    """Add all messages of a run; none of them is answered."""
    cdef Captured message
    cdef size_t position = 0, end = run.shape[0]
    while position < end:
        take_apart(&run[position], end - position, &message)
        message.reply_len = 0
        records._append(&message, 0, records._stored_size(&message))
        position += message.length


def add_fast_run(RecordBatch records not None, const uint8_t[::1] batch, Py_ssize_t start, bytes head not None,
                 uint64_t seq, int64_t message_bytes_max, int64_t messages_room, int64_t bytes_room,
                 Py_ssize_t size_max, bint bare):
    """Add the messages from `start` on that are appended to a fast batch, `seq` of it the first.

    Their reply subjects are `head`, the number and the operation; `head` ends with a dot. The bounds are those of
    `RecordBatch.take_plain`. Returns where the run ends, and how many messages it has.
    """
    cdef Captured message
    cdef char tail[NUMBER_ROOM + APPEND_BYTES]
    cdef const char *wanted = head
    cdef size_t position = start, end = batch.shape[0], head_len = len(head), tail_len
    cdef int64_t size
    cdef uint32_t count = 0
    while position < end and <Py_ssize_t>records.records.length < size_max:
        take_apart(&batch[position], end - position, &message)
        tail_len = write_number(tail, seq + count)
        memcpy(tail + tail_len, b".1.$FI", APPEND_BYTES)
        tail_len += APPEND_BYTES
        if message.reply_len != head_len + tail_len or memcmp(message.reply, wanted, head_len) != 0:
            break
        if memcmp(message.reply + head_len, tail, tail_len) != 0:
            break
        if message.origin & TRACED_ORIGIN or not asks_for_nothing(&message, message_bytes_max, bare):
            break
        size = records._stored_size(&message)
        if not records._has_room(size, messages_room, bytes_room):
            break
        message.reply_len = 0
        records._append(&message, 0, size)
        position += message.length
        count += 1
    return position, count
