"""The status 503, which a requester gets that asks for it when its request has no receiver."""

from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from jetraft.api.plane._deliver cimport drop_subscription
from jetraft.api.plane._sublist cimport sublist_match_once
from jetraft.api.plane._types cimport FROM_ANSWER, SUB_CLIENT, conn_t, match_t, msg_t, plain_of, plane_t, sub_t
from jetraft.api.plane._writer cimport emit_message


cdef bint answer_no_responders(plane_t* plane, conn_t* conn, msg_t* msg) noexcept nogil:
    """Send the requester a 503 on one of its subscriptions to the reply subject; with the subject, as since 2.12."""
    cdef match_t* match
    cdef sub_t* sub
    cdef msg_t status
    cdef uint32_t i
    cdef char text[8192]
    cdef uint32_t n
    if not conn.no_responders or not conn.headers or msg.reply_len == 0 or msg.subject_len > sizeof(text) - 64:
        return False
    memcpy(text, b"NATS/1.0 503\r\nNats-Subject: ", 28)
    n = 28
    memcpy(text + n, msg.subject, msg.subject_len)
    n += msg.subject_len
    memcpy(text + n, b"\r\n\r\n", 4)
    n += 4
    status.subject = status.shown = msg.reply
    status.subject_len = status.shown_len = msg.reply_len
    status.reply = msg.reply
    status.reply_len = 0
    status.origin = FROM_ANSWER
    status.data = text
    status.hdr_len = status.size = n
    match = sublist_match_once(plane, conn.acct, msg.reply, msg.reply_len)
    for i in range(match.count):
        sub = plain_of(match)[i]
        if sub.kind == SUB_CLIENT and sub.of.conn == conn and not sub.closed:
            sub.delivered += 1
            emit_message(plane, sub, &status)
            if sub.max_msgs and sub.delivered >= sub.max_msgs:
                drop_subscription(plane, sub)
            return True
    return False
