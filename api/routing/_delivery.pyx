"""Deliveries of a consumer: records of a stream, straight from its frames into the receivers' output buffers.

What one run means is said by `deliver_one_by_one` of cluster/ports.py, against which this is tested.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jetraft.api.routing._deliver cimport deliver, match_for
from jetraft.api.routing._plane cimport Plane
from jetraft.api.wire._text cimport jr_utoa
from jetraft.api.wire._types cimport match_t, msg_t
from jetraft.store._frame cimport Record
from jetraft.store._records cimport RecordReader

cdef enum:
    ACK_PREFIX_MAX = 1024       # two names of 255 bytes and what stands around them
    ACK_NUMBERS_MAX = 5 * 21    # five decimal numbers and dots


def deliver_run(Plane plane, RecordReader reader, bytes to, bytes ack_prefix, stream_seqs, consumer_seqs, counts, nums_pending):
    """Send the messages of one run; returns how many had a receiver. Messages that are gone are skipped."""
    cdef char reply[ACK_PREFIX_MAX + ACK_NUMBERS_MAX]
    cdef Py_ssize_t prefix = PyBytes_GET_SIZE(ack_prefix), n
    cdef uint64_t stream_seq, consumer_seq, count, num_pending
    cdef uint32_t received = 0
    cdef match_t* match
    cdef msg_t msg
    cdef Record record
    if prefix > ACK_PREFIX_MAX:
        raise ValueError(f"an ack subject that starts with {prefix} bytes is too long")
    memcpy(reply, PyBytes_AS_STRING(ack_prefix), prefix)
    msg.subject = PyBytes_AS_STRING(to)
    msg.subject_len = <uint16_t>PyBytes_GET_SIZE(to)
    msg.reply = reply
    # The answer holds for the whole run: nothing below looks another subject up, and ended subscriptions are skipped.
    match = match_for(&plane.p, msg.subject, msg.subject_len)
    for stream_seq, consumer_seq, count, num_pending in zip(stream_seqs, consumer_seqs, counts, nums_pending):
        if not reader.fetch(stream_seq, &record):
            continue
        n = prefix + jr_utoa(reply + prefix, count)
        reply[n] = c"."
        n += 1 + jr_utoa(reply + n + 1, stream_seq)
        reply[n] = c"."
        n += 1 + jr_utoa(reply + n + 1, consumer_seq)
        reply[n] = c"."
        n += 1 + jr_utoa(reply + n + 1, <uint64_t>record.ts_ns)
        reply[n] = c"."
        n += 1 + jr_utoa(reply + n + 1, num_pending)
        msg.reply_len = <uint16_t>n
        msg.shown = <const char*>record.subject
        msg.shown_len = <uint16_t>record.subject_len
        # Headers and payload follow each other in the record.
        msg.data = <const char*>record.hdr
        msg.hdr_len = <uint32_t>record.hdr_len
        msg.size = <uint32_t>(record.hdr_len + record.payload_len)
        received += deliver(&plane.p, NULL, &msg, match) > 0
    return received
