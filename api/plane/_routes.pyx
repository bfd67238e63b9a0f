"""Parses the records that peers send, messages and interest, and checks their lengths and subjects.

_deliver.pyx writes them. A malformed record ends the link.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from jetraft.api.plane._accounts cimport hear_account, heard_account
from jetraft.api.plane._deliver cimport drop_subscription
from jetraft.api.plane._from_route cimport deliver_from_route
from jetraft.api.plane._route_record cimport (
    ROUTE_ACCOUNT,
    ROUTE_ACCOUNT_INTEREST,
    ROUTE_ACCOUNT_MESSAGE,
    ROUTE_HEAD_BYTES,
    ROUTE_INTEREST,
    ROUTE_KIND_MASK,
    ROUTE_MESSAGE,
    ROUTE_ORIGIN_SHIFT,
    RouteHead,
)
from jetraft.api.plane._route_permissions cimport may_export
from jetraft.api.plane._tenants cimport Tenants
from jetraft.api.plane._trace_asked cimport asks_for_trace
from jetraft.api.plane._text cimport valid_subject
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._tree cimport sublist_add, sublist_find_route
from jetraft.api.plane._types cimport ACCOUNT_NAME_MAX, ACCOUNTS_MAX, FROM_CLIENT, FROM_DELIVERY, FROM_LINK, ORIGINS, SUB_ROUTE, TRACE_OFF, TRACE_ON
from jetraft.api.plane._types cimport Tracing, acct_t, count_received, msg_t, plane_t, route_t, sub_t


def piece_end(bytes records not None, Py_ssize_t start, Py_ssize_t most):
    """Where the piece that begins at an offset ends: records that this node made, of `most` bytes or a single one."""
    cdef RouteHead head
    cdef Py_ssize_t at = start, n = len(records)
    while at < n:
        assert at <= n - ROUTE_HEAD_BYTES
        memcpy(&head, PyBytes_AS_STRING(records) + at, ROUTE_HEAD_BYTES)
        assert head.length >= ROUTE_HEAD_BYTES
        if at > start and at + head.length - start > most:
            break
        at += head.length
    return at


cdef Py_ssize_t route_record(plane_t* plane, route_t* route, const char* p, Py_ssize_t n) noexcept:
    """Act on one record; returns its length, or -1 when it is malformed."""
    cdef RouteHead head
    cdef uint16_t queue_len = 0
    cdef uint8_t i
    cdef const char* queues
    cdef Py_ssize_t at
    cdef uint32_t number
    cdef acct_t* acct = plane.global_acct
    cdef msg_t msg
    cdef Tracing tracing = TRACE_OFF
    cdef uint8_t origin
    if n < ROUTE_HEAD_BYTES:
        return -1
    memcpy(&head, p, ROUTE_HEAD_BYTES)
    if head.length < ROUTE_HEAD_BYTES or head.length > n:
        return -1
    origin = head.kind >> ROUTE_ORIGIN_SHIFT
    head.kind &= ROUTE_KIND_MASK
    if origin >= ORIGINS or (origin and head.kind != ROUTE_MESSAGE and head.kind != ROUTE_ACCOUNT_MESSAGE):
        return -1
    if head.kind == ROUTE_ACCOUNT:
        return name_account(plane, route, &head, p + ROUTE_HEAD_BYTES)
    msg.shown_len = head.shown_len
    msg.hdr_len = head.hdr_len
    msg.subject_len = head.subject_len
    msg.reply_len = head.reply_len
    at = ROUTE_HEAD_BYTES
    if head.kind == ROUTE_ACCOUNT_MESSAGE or head.kind == ROUTE_ACCOUNT_INTEREST:
        if at + <Py_ssize_t>sizeof(number) > head.length:
            return -1
        memcpy(&number, p + at, sizeof(number))
        at += sizeof(number)
        acct = heard_account(route, number)
        if acct == NULL:
            return -1
    queues = p + at
    for i in range(head.queue_count):
        if at + 2 > head.length:
            return -1
        memcpy(&queue_len, p + at, 2)
        at += 2 + queue_len
        if at > head.length:
            return -1
    msg.subject = p + at
    if head.kind == ROUTE_INTEREST or head.kind == ROUTE_ACCOUNT_INTEREST:
        if head.queue_count > 1 or at + msg.subject_len != head.length or not valid_subject(msg.subject, msg.subject_len):
            return -1
        set_interest(plane, acct, route, msg.subject, msg.subject_len, queues + 2, queue_len if head.queue_count else 0, msg.hdr_len)
        return head.length
    if (head.kind != ROUTE_MESSAGE and head.kind != ROUTE_ACCOUNT_MESSAGE) or msg.subject_len == 0:
        return -1
    if at + <int64_t>msg.subject_len + msg.shown_len + msg.reply_len + msg.hdr_len + head.payload_len != head.length:
        return -1
    at += msg.subject_len
    msg.shown = p + at
    if msg.shown_len == 0:
        msg.shown = msg.subject
        msg.shown_len = msg.subject_len
    else:
        at += msg.shown_len
    if origin:
        msg.origin = origin
    elif msg.shown != msg.subject:
        msg.origin = FROM_DELIVERY
    else:
        msg.origin = FROM_CLIENT if route.knows_origins else FROM_LINK
    msg.reply = p + at
    msg.data = p + at + msg.reply_len
    msg.size = msg.hdr_len + head.payload_len
    count_received(plane, route, acct, msg.size)
    if msg.hdr_len and asks_for_trace(plane, &msg):
        tracing = plane.begin_trace(plane, NULL, route, acct, &msg)
    if tracing == TRACE_ON:
        plane.deliver_traced_here(plane, acct, &msg, queues, head.queue_count)
    elif tracing == TRACE_OFF:
        deliver_from_route(plane, acct, &msg, queues, head.queue_count)
    return head.length


cdef Py_ssize_t name_account(plane_t* plane, route_t* route, RouteHead* head, const char* name) noexcept:
    """A peer tells what it calls an account by, or that it does not any more; returns the record's length or -1."""
    cdef acct_t* acct = NULL
    if (
        head.length != ROUTE_HEAD_BYTES + <uint32_t>head.subject_len
        or head.queue_count or head.shown_len or head.payload_len or head.reply_len
        or head.hdr_len >= ACCOUNTS_MAX or head.subject_len > ACCOUNT_NAME_MAX
    ):
        return -1
    if head.subject_len:
        try:
            acct = (<Tenants>plane.owner)._account(name[:head.subject_len])
        except (ValueError, OverflowError):
            return -1
        if acct.id == 0:
            return -1
    route.knows_accounts = 1
    hear_account(plane, route, head.hdr_len, acct)
    return head.length


cdef void set_interest(
    plane_t* plane, acct_t* acct, route_t* route, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn, uint32_t weight
) noexcept:
    """Record how many members a peer has on a subject (or a queue group on it) now."""
    cdef sub_t* sub = sublist_find_route(plane, acct, route, subject, n, queue, qn)
    if weight == 0 or not may_export(plane, subject, n):
        if sub != NULL:
            drop_subscription(plane, sub)
        return
    if sub != NULL:
        sub.weight = weight
        if qn and acct.leafs != NULL:
            plane.on_interest(plane, sub, True)
        return
    sub = sub_new(plane, SUB_ROUTE, NULL, 0)
    sub.of.route = route
    sub.weight = weight
    sub.next_of_owner = route.subs
    if route.subs != NULL:
        route.subs.prev_of_owner = sub
    route.subs = sub
    sublist_add(plane, acct, sub, subject, n, queue, qn)
