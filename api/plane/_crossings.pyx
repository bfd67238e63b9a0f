"""Imports of services: a request goes on to the exporter's account, and its answer comes back.

The node where a request enters hands it over; peers only deliver what it was there. The exporter's side sees a reply subject
of its own account (_answers.pyx), so that the requester's is not told, and a header that says which account asks.

A message is handed over CROSSINGS_MAX times in a row at most, and by no service twice.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._answers cimport MEASURED_MARK, answer_drop, answer_find, answer_new, answer_subject, answer_touch, reply_of
from jetraft.api.plane._deliver cimport deliver, match_for
from jetraft.api.plane._mappings cimport map_subject
from jetraft.api.plane._request_info cimport copy_without_info
from jetraft.api.plane._trace_asked cimport asks_for_trace
from jetraft.api.plane._transforms cimport transform_free, transform_subject
from jetraft.api.plane._types cimport (
    CROSSINGS_MAX,
    FROM_ANSWER,
    MEASURE_ANSWER,
    MEASURE_REQUEST,
    MEASURE_UNHEARD,
    SUB_SERVICE,
    TRACE_DROPPED,
    TRACE_OFF,
    TRACE_ON,
    Tracing,
    acct_t,
    answer_t,
    buf_t,
    conn_t,
    crossing_t,
    export_t,
    is_judged,
    msg_t,
    plane_t,
    room_t,
    service_import_t,
    sub_t,
    text_t,
)
from jetraft.api.plane._writer cimport buf_free, buf_reserve

cdef enum:
    ROOM_KEEP_BYTES = 1 << 20


cdef void service_import_free(service_import_t* service) noexcept nogil:
    transform_free(service.to)
    free(service)


cdef void rooms_free(plane_t* plane) noexcept nogil:
    cdef int i
    for i in range(CROSSINGS_MAX):
        if plane.rooms[i] != NULL:
            buf_free(&plane.rooms[i].data)
            free(plane.rooms[i])


cdef bint is_ack(const char* reply, Py_ssize_t n) noexcept nogil:
    return n > 8 and memcmp(reply, b"$JS.ACK.", 8) == 0


cdef answer_t* expect_answer(
    plane_t* plane, msg_t* msg, msg_t* there, acct_t* acct, acct_t* to, export_t* service, room_t* room
) noexcept nogil:
    """Give the message that goes to `acct` a reply subject there; an ack subject stays, since it is a consumer's own."""
    cdef answer_t* answer
    if msg.reply_len == 0 or is_ack(msg.reply, msg.reply_len):
        return NULL
    answer = answer_new(plane, acct, to, msg.reply, msg.reply_len, service)
    there.reply = room.reply
    there.reply_len = 0 if answer == NULL else <uint16_t>answer_subject(answer, room.reply)
    return answer


cdef void forget_answer(plane_t* plane, acct_t* acct, msg_t* there, answer_t* answer) noexcept nogil:
    """The message had no receiver. The answer may have come and gone meanwhile."""
    if answer != NULL and answer_find(plane, acct, there.reply, there.reply_len) == answer:
        if answer.measured:
            plane.measure(plane, MEASURE_UNHEARD, answer.id, NULL, NULL, NULL)
        answer_drop(plane, answer)


cdef void measure(plane_t* plane, service_import_t* service, conn_t* origin, msg_t* msg, msg_t* there, answer_t* answer) noexcept nogil:
    """Ask whether a request is measured; the exporter's node knows it by its reply subject."""
    cdef char* end
    if answer == NULL and msg.reply_len:
        return
    if plane.measure(plane, MEASURE_REQUEST, 0 if answer == NULL else answer.id, origin, service, msg) and answer != NULL:
        answer.measured = 1
        end = <char*>there.reply + there.reply_len
        end[0] = c"."
        end[1] = c"T"
        there.reply_len += MEASURED_MARK


cdef bint map_there(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n, msg_t* there, room_t* room) noexcept nogil:
    """Let a message go to a subject of an account, or to what the account maps that to; False: it is lost."""
    cdef Py_ssize_t mapped = -1
    cdef bint renamed = there.shown != there.subject
    if acct.mappings != NULL:
        mapped = map_subject(plane, acct, subject, n, room.mapped)
    if mapped == 0:
        return False
    if mapped > 0:
        there.subject = room.mapped
        there.subject_len = <uint16_t>mapped
    else:
        there.subject = subject
        there.subject_len = <uint16_t>n
    if not renamed:
        there.shown = there.subject
        there.shown_len = there.subject_len
    return True


cdef void describe(plane_t* plane, conn_t* origin, crossing_t* here, msg_t* there, room_t* room) noexcept nogil:
    """Put the header that describes the requester into a message, in the place of any that it has."""
    cdef text_t info
    cdef Py_ssize_t kept
    cdef char* start
    cdef char* w
    if origin != NULL and here.outer == NULL and origin.described == here.service:
        info.p = origin.requester
        info.n = origin.requester_len
    elif not plane.describe(plane, origin, here, &info):
        return
    room.data.start = room.data.end = 0
    start = w = buf_reserve(&room.data, there.size + info.n + 64)
    kept = copy_without_info(there.data, there.hdr_len, w, not plane.tracing)      # of a traced one they are in order
    if kept >= 2:
        w += kept - 2       # the empty line
    else:
        memcpy(w, b"NATS/1.0\r\n", 10)
        w += 10
    memcpy(w, b"Nats-Request-Info: ", 19)
    memcpy(w + 19, info.p, info.n)
    w += 19 + info.n
    memcpy(w, b"\r\n\r\n", 4)
    w += 4
    memcpy(w, there.data + there.hdr_len, there.size - there.hdr_len)
    there.size = <uint32_t>(w - start) + there.size - there.hdr_len
    there.hdr_len = <uint32_t>(w - start)
    there.data = start


cdef void end_trace(plane_t* plane, msg_t* there, room_t* room) noexcept nogil:
    """Let the headers of an answer ask for no trace any more."""
    cdef char* w
    cdef Py_ssize_t kept
    if there.hdr_len == 0 or not asks_for_trace(plane, there):
        return
    room.data.start = room.data.end = 0
    w = buf_reserve(&room.data, there.size)
    kept = copy_without_info(there.data, there.hdr_len, w, True)
    memcpy(w + kept, there.data + there.hdr_len, there.size - there.hdr_len)
    there.size = <uint32_t>kept + there.size - there.hdr_len
    there.hdr_len = <uint32_t>kept
    there.data = w


cdef uint32_t deliver_untraced(plane_t* plane, acct_t* acct, conn_t* origin, msg_t* msg) noexcept nogil:
    cdef uint8_t tracing = plane.tracing
    cdef uint32_t taken
    plane.tracing = 0
    taken = deliver(plane, acct, origin, msg, match_for(plane, acct, msg.subject, msg.subject_len))
    plane.tracing = tracing
    return taken


cdef uint32_t request(plane_t* plane, service_import_t* service, conn_t* origin, msg_t* msg, room_t* room) noexcept nogil:
    """Hand a request over to the account that exports the service; returns the number of receivers."""
    cdef crossing_t here
    cdef crossing_t* outer = plane.crossing
    cdef msg_t there = msg[0]
    cdef answer_t* answer
    cdef const char* subject = msg.subject
    cdef Py_ssize_t n = msg.subject_len
    cdef uint32_t taken = 0
    cdef Tracing tracing = TRACE_OFF
    while outer != NULL:
        if outer.service.service == service.service:
            return 0
        outer = outer.outer
    if service.to != NULL:
        n = transform_subject(plane, service.to, msg.subject, msg.subject_len, room.subject)
        subject = room.subject
    if n == 0 or not map_there(plane, service.exporter, subject, n, &there, room):
        return 0
    if plane.tracing:
        tracing = plane.cross_traced(plane, service, msg, &there)
        if tracing == TRACE_DROPPED:
            return 0
    here.outer = plane.crossing
    here.service = service
    describe(plane, origin, &here, &there, room)
    answer = expect_answer(plane, msg, &there, service.exporter, service.importer, service.service, room)
    if service.service.measured:
        measure(plane, service, origin, msg, &there, answer)
    plane.crossing = &here
    if tracing == TRACE_ON:
        taken = plane.deliver_traced(plane, service.exporter, origin, &there)
    else:
        taken = deliver_untraced(plane, service.exporter, origin, &there)
    plane.crossing = here.outer
    if taken == 0:
        forget_answer(plane, service.exporter, &there, answer)
    return taken


cdef uint32_t give_back(plane_t* plane, acct_t* acct, conn_t* origin, msg_t* msg, room_t* room) noexcept nogil:
    """Hand an answer over to the requester's account; returns the number of receivers."""
    cdef answer_t* answer = answer_find(plane, acct, msg.subject, msg.subject_len)
    cdef answer_t* further
    cdef msg_t there = msg[0]
    cdef acct_t* to
    cdef export_t* service
    cdef uint16_t n
    cdef uint32_t taken = 0
    if answer == NULL:
        return 0
    to, service, n = answer.to, answer.service, answer.n
    if answer.measured:
        answer.measured = 0
        plane.measure(plane, MEASURE_ANSWER, answer.id, origin, NULL, NULL)
    memcpy(room.subject, reply_of(answer), n)
    there.origin = FROM_ANSWER if is_judged(msg.origin) else msg.origin    # its sender has no permissions there
    if map_there(plane, to, room.subject, n, &there, room):
        end_trace(plane, &there, room)
        further = expect_answer(plane, msg, &there, to, acct, service, room)
        taken = deliver_untraced(plane, to, origin, &there)
        if taken == 0:
            forget_answer(plane, to, &there, further)
    answer = answer_find(plane, acct, msg.subject, msg.subject_len)
    if answer != NULL:
        if taken and (service.many or answer.many) and msg.size:
            answer_touch(plane, answer)
        else:
            answer_drop(plane, answer)
    return taken


cdef uint32_t cross(plane_t* plane, conn_t* origin, msg_t* msg, uint32_t first) noexcept nogil:
    """Hand a message over where `plane.crossings` says from `first` on; returns the number of receivers there."""
    cdef uint32_t i, taken = 0, count = plane.crossings.count
    cdef room_t* room
    cdef sub_t* sub
    plane.crossed = 1
    if plane.crossing_depth < CROSSINGS_MAX:
        if plane.rooms[plane.crossing_depth] == NULL:
            plane.rooms[plane.crossing_depth] = <room_t*>calloc(1, sizeof(room_t))
        room = plane.rooms[plane.crossing_depth]
        if room != NULL:
            plane.crossing_depth += 1
            for i in range(first, count):
                sub = <sub_t*>plane.crossings.items[i]
                if sub.closed:
                    continue
                if sub.kind == SUB_SERVICE:
                    taken += request(plane, sub.of.service, origin, msg, room)
                else:
                    taken += give_back(plane, sub.of.acct, origin, msg, room)
            plane.crossing_depth -= 1
            if room.data.cap > ROOM_KEEP_BYTES:
                buf_free(&room.data)
    plane.crossings.count = first
    return taken
