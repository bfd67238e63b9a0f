"""What peers send: records of messages and of interest, checked before they are believed.

The layout is in _deliver.pyx, which writes them. A record that does not add up ends the link that carried it.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from jetraft.api.routing._deliver cimport deliver_from_route, drop_subscription
from jetraft.api.routing._tree cimport sub_new, sublist_add, sublist_find_route
from jetraft.api.wire._text cimport valid_subject
from jetraft.api.wire._types cimport SUB_ROUTE, msg_t, plane_t, route_t, sub_t

cdef enum:
    ROUTE_HEAD = 20
    ROUTE_MESSAGE = 1
    ROUTE_INTEREST = 2


cdef Py_ssize_t route_record(plane_t* plane, route_t* route, const char* p, Py_ssize_t n) noexcept:
    """Act on one record; returns its length, or -1 when it is malformed."""
    cdef uint32_t length, payload_len
    cdef uint16_t queue_len = 0
    cdef uint8_t kind, queue_count, i
    cdef const char* queues
    cdef Py_ssize_t at
    cdef msg_t msg
    if n < ROUTE_HEAD:
        return -1
    memcpy(&length, p, 4)
    kind = <uint8_t>p[4]
    queue_count = <uint8_t>p[5]
    memcpy(&msg.shown_len, p + 6, 2)
    memcpy(&msg.hdr_len, p + 8, 4)
    memcpy(&payload_len, p + 12, 4)
    memcpy(&msg.subject_len, p + 16, 2)
    memcpy(&msg.reply_len, p + 18, 2)
    if length < ROUTE_HEAD or length > n:
        return -1
    at = ROUTE_HEAD
    queues = p + at
    for i in range(queue_count):
        if at + 2 > length:
            return -1
        memcpy(&queue_len, p + at, 2)
        at += 2 + queue_len
        if at > length:
            return -1
    msg.subject = p + at
    if kind == ROUTE_INTEREST:
        if queue_count > 1 or at + msg.subject_len != length or not valid_subject(msg.subject, msg.subject_len):
            return -1
        set_interest(plane, route, msg.subject, msg.subject_len, queues + 2, queue_len if queue_count else 0, msg.hdr_len)
        return length
    if kind != ROUTE_MESSAGE or msg.subject_len == 0:
        return -1
    if at + <int64_t>msg.subject_len + msg.shown_len + msg.reply_len + msg.hdr_len + payload_len != length:
        return -1
    at += msg.subject_len
    msg.shown = p + at
    if msg.shown_len == 0:
        msg.shown = msg.subject
        msg.shown_len = msg.subject_len
    else:
        at += msg.shown_len
    msg.reply = p + at
    msg.data = p + at + msg.reply_len
    msg.size = msg.hdr_len + payload_len
    route.in_msgs += 1
    deliver_from_route(plane, &msg, queues, queue_count)
    return length


cdef void set_interest(
    plane_t* plane, route_t* route, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn, uint32_t weight
) noexcept:
    """Record how many members a peer has on a subject (or a queue group on it) now."""
    cdef sub_t* sub = sublist_find_route(plane, route, subject, n, queue, qn)
    if weight == 0:
        if sub != NULL:
            drop_subscription(plane, sub)
        return
    if sub != NULL:
        sub.weight = weight
        return
    sub = sub_new(plane, SUB_ROUTE, NULL, 0)
    sub.of.route = route
    sub.weight = weight
    sub.next_of_owner = route.subs
    if route.subs != NULL:
        route.subs.prev_of_owner = sub
    route.subs = sub
    sublist_add(plane, sub, subject, n, queue, qn)
