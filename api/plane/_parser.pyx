"""The client protocol, from bytes to deliveries.

`parse` acts on complete protocol lines and messages and returns the number of bytes consumed; the rest is an incomplete
line or message that the caller keeps. Malformed input gets the answers of nats-server 2.15.1: 'Unknown Protocol
Operation' for an unknown verb, a closed connection without a text for wrong arguments, 'Invalid Subject' for an invalid
subject, after which the connection stays open.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from jetraft.api.plane._ahead cimport FAR_SUBSCRIPTIONS, look_ahead
from jetraft.api.plane._arguments cimport split
from jetraft.api.plane._deliver cimport deliver, drop_subscription, match_for, tell_interest
from jetraft.api.plane._leaf_in cimport map_domain
from jetraft.api.plane._mappings cimport map_published
from jetraft.api.plane._permissions cimport LEAVE_NO, LEAVE_YES, Leave
from jetraft.api.plane._permissions cimport is_gateway_space, is_reserved_reply, may_always, may_publish, may_subscribe
from jetraft.api.plane._responders cimport answer_no_responders
from jetraft.api.plane._shadows cimport add_shadows
from jetraft.api.plane._share cimport WORK_OF_CALL, WORK_OF_SUBSCRIPTION, bytes_moved, count_moved, rest, share_end, turn_end
from jetraft.api.plane._sids cimport add_sid, find_sid
from jetraft.api.plane._sublist cimport match_is_current
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._tree cimport sublist_add
from jetraft.api.plane._trace_asked cimport asks_for_trace, memmem
from jetraft.api.plane._text cimport is_literal, parse_size, valid_subject
from jetraft.api.plane._types cimport TRACE_DROPPED, TRACE_OFF, TRACE_ON, Tracing
from jetraft.api.plane._types cimport (
    CLOSE_CLIENT,
    CLOSE_MAX_CONTROL_LINE,
    CLOSE_MAX_PAYLOAD,
    CLOSE_PROTOCOL,
    CONN_OPEN,
    FROM_CLIENT,
    SUB_CLIENT,
    VIOLATES_PUBLISH,
    VIOLATES_REPLY,
    VIOLATES_SUBSCRIBE,
    VIOLATES_TOKENS,
    Violation,
)
from jetraft.api.plane._types cimport conn_t, match_t, msg_t, note_pong, plane_t, sub_t, text_t
from jetraft.api.plane._verbs cimport (
    VERB_CONNECT,
    VERB_ERR,
    VERB_HPUB,
    VERB_MORE,
    VERB_OK,
    VERB_PING,
    VERB_PONG,
    VERB_PUB,
    VERB_SUB,
    VERB_UNKNOWN,
    VERB_UNSUB,
    Verb,
    verb_at,
)
from jetraft.api.plane._writer cimport conn_close, emit_text
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef enum:
    # What a connection may bring in one turn to what is not compiled, some 10 ms: then it rests until the next one.
    ARGS_MAX = 5        # one more than any verb has, so that surplus arguments are noticed
    ARGUMENTS_BYTES_MAX = 65534     # of a line with subjects, for any max_control_line: their lengths have 16 bits


cdef struct memo_t:     # the last subject of this read and its answer: publishers repeat subjects
    bint repeats        # the subject before was the same
    bint permitted      # to publish to it
    const char* subject
    uint32_t len
    match_t* match


cdef void fail(plane_t* plane, conn_t* conn, const char* text, Py_ssize_t n) noexcept nogil:
    emit_text(plane, conn, text, n)
    conn_close(plane, conn, CLOSE_PROTOCOL)


cdef inline void acknowledge(plane_t* plane, conn_t* conn) noexcept nogil:
    if conn.verbose:
        emit_text(plane, conn, b"+OK\r\n", 5)


cdef uint32_t tokens_of(text_t subject) noexcept nogil:
    cdef uint32_t count = 1
    cdef Py_ssize_t i
    for i in range(subject.n):
        count += subject.p[i] == c"."
    return count


cdef void violate(plane_t* plane, conn_t* conn, Violation kind, const char* p, Py_ssize_t n) noexcept nogil:
    cdef text_t subject, nothing
    subject.p = nothing.p = p
    subject.n = n
    nothing.n = 0
    plane.work += WORK_OF_CALL
    plane.on_violation(plane, conn, kind, subject, nothing, nothing)


# -- publish

cdef inline bint is_repeated(memo_t* memo, msg_t* msg) noexcept nogil:
    """Whether the subject is that of the message before."""
    return memo.subject != NULL and memo.len == msg.subject_len and memcmp(memo.subject, msg.subject, memo.len) == 0


cdef bint is_denied_by(plane_t* plane, conn_t* conn, msg_t* msg, const char* name, Py_ssize_t length) noexcept nogil:
    """Whether a header of this name, between line ends and with its colon, names a subject that is denied."""
    cdef const char* end = msg.data + msg.hdr_len
    cdef const char* p = <const char*>memmem(msg.data, msg.hdr_len, name, length)
    cdef const char* stop
    while p != NULL:
        p += length
        while p < end and (p[0] == c" " or p[0] == c"\t"):
            p += 1
        stop = p
        while stop < end and stop[0] != c"\r" and stop[0] != c"\n" and stop[0] != c" " and stop[0] != c"\t":
            stop += 1
        if stop > p and not may_always(plane, conn.perms, p, stop - p):
            violate(plane, conn, VIOLATES_PUBLISH, p, stop - p)
            return True
        p = <const char*>memmem(stop, end - stop, name, length)
    return False


cdef bint names_denied(plane_t* plane, conn_t* conn, msg_t* msg) noexcept nogil:
    """Whether a message would have the server publish where its sender may not: what a schedule or an ack produces."""
    return is_denied_by(plane, conn, msg, b"\nNats-Schedule-Target:", 22) or is_denied_by(
        plane, conn, msg, b"\nJetraft-Publish:", 17
    )


cdef bint is_refused(plane_t* plane, conn_t* conn, msg_t* msg, memo_t* memo, bint again) noexcept nogil:
    """Tell a client that it may not publish this; what it repeats in one read (`again`) is looked up once."""
    cdef Leave leave
    if conn.perms != NULL and not (memo.permitted and again):
        leave = may_publish(plane, conn, msg.subject, msg.subject_len)
        if leave == LEAVE_NO:
            violate(plane, conn, VIOLATES_PUBLISH, msg.subject, msg.subject_len)
            return True
        memo.permitted = leave == LEAVE_YES
        memo.match = NULL       # it was for another subject
        memo.subject = msg.subject
        memo.len = msg.subject_len
    if conn.perms != NULL and msg.hdr_len and names_denied(plane, conn, msg):
        return True
    if is_gateway_space(msg.subject, msg.subject_len):
        violate(plane, conn, VIOLATES_PUBLISH, msg.subject, msg.subject_len)
        return True
    if msg.reply_len and is_reserved_reply(msg.reply, msg.reply_len):
        violate(plane, conn, VIOLATES_REPLY, msg.reply, msg.reply_len)
        return True
    return False


cdef Py_ssize_t publish(
    plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n, Py_ssize_t line, bint with_headers, memo_t* memo
) noexcept nogil:
    """PUB or HPUB with arguments p[0:line]; p[0:n] was received. Bytes consumed; 0: incomplete, -1: closed."""
    cdef text_t args[ARGS_MAX]
    cdef int count = split(p, line, args, ARGS_MAX)
    cdef int extra = 1 if with_headers else 0
    cdef int64_t size, hdr_len = 0
    cdef Py_ssize_t body = line + 1
    cdef msg_t msg
    if count != 2 + extra and count != 3 + extra:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    size = parse_size(args[count - 1].p, args[count - 1].n)
    if with_headers:
        hdr_len = parse_size(args[count - 2].p, args[count - 2].n)
    if size < 0 or hdr_len < 0 or hdr_len > size or (with_headers and not conn.headers):
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    if size > conn.max_payload:
        emit_text(plane, conn, b"-ERR 'Maximum Payload Violation'\r\n", 34)
        conn_close(plane, conn, CLOSE_MAX_PAYLOAD)
        return -1
    if n < body + size + 2:
        return 0
    if p[body + size] != c"\r" or p[body + size + 1] != c"\n":
        fail(plane, conn, b"-ERR 'Unknown Protocol Operation'\r\n", 35)
        return -1
    if plane.log_protocol:
        plane.on_protocol(plane, conn, True, p - 4 - extra, line + 4 + extra, p + body, size)
    msg.subject = msg.shown = args[0].p
    msg.subject_len = msg.shown_len = <uint16_t>args[0].n
    msg.reply = args[1].p if count == 3 + extra else args[0].p     # never NULL, which memcpy does not allow for 0 bytes
    msg.reply_len = <uint16_t>args[1].n if count == 3 + extra else 0
    msg.data = p + body
    msg.size = <uint32_t>size
    msg.hdr_len = <uint32_t>hdr_len
    msg.origin = FROM_CLIENT
    if conn.pedantic and not (valid_subject(msg.subject, msg.subject_len) and is_literal(msg.subject, msg.subject_len)):
        emit_text(plane, conn, b"-ERR 'Invalid Publish Subject'\r\n", 32)
    conn.in_msgs += 1
    conn.in_bytes += size
    plane.in_msgs += 1
    plane.in_bytes += size
    conn.acct.in_msgs += 1
    conn.acct.in_bytes += size
    if conn.acct.mappings == NULL:
        pass_on(plane, conn, &msg, memo)
    else:
        map_and_pass_on(plane, conn, &msg, memo)
    return body + size + 2


cdef void map_and_pass_on(plane_t* plane, conn_t* conn, msg_t* msg, memo_t* memo) noexcept nogil:
    """Deliver what an account with mappings publishes; permissions are for the subject that it is mapped to."""
    cdef text_t published
    cdef bint is_mapped
    published.p = msg.subject
    published.n = msg.subject_len
    is_mapped = map_published(plane, conn.acct, msg)
    if is_mapped:
        plane.unmapped = published
        memo.match = NULL       # the memo keeps no text of its own, and the next subject is written over this one
        memo.permitted = False
    pass_on(plane, conn, msg, memo)
    if is_mapped:
        plane.unmapped.n = 0
        memo.match = NULL
        memo.permitted = memo.repeats = False


cdef void pass_on(plane_t* plane, conn_t* conn, msg_t* msg, memo_t* memo) noexcept nogil:
    """Deliver a client's message, if it may publish it."""
    cdef match_t* match
    cdef Tracing tracing = TRACE_OFF
    cdef bint again
    if msg.hdr_len and asks_for_trace(plane, msg):
        plane.work += WORK_OF_CALL
        tracing = plane.begin_trace(plane, conn, NULL, conn.acct, msg)
    if tracing == TRACE_DROPPED:
        return
    if plane.domain_len and msg.subject[0] == c"$":
        map_domain(plane, msg)      # before it is judged: a user who may not delete streams may not by the other name
    again = is_repeated(memo, msg)
    if is_refused(plane, conn, msg, memo, again):
        if tracing == TRACE_ON:
            plane.violate_traced(plane, msg)
        return
    acknowledge(plane, conn)
    if tracing == TRACE_ON:
        if plane.deliver_traced(plane, conn.acct, conn, msg) == 0 and msg.reply_len:
            answer_no_responders(plane, conn, msg)
        memo.match = NULL
        return
    if again and memo.match != NULL and match_is_current(plane, conn.acct, memo.match):
        match = memo.match
        memo.repeats = True
    else:
        memo.repeats = False
        match = match_for(plane, conn.acct, msg.subject, msg.subject_len)
        # A scratch answer is overwritten by the next look-up and cannot be remembered.
        memo.match = NULL if match == &plane.scratch else match
        memo.subject = msg.subject
        memo.len = msg.subject_len
    if deliver(plane, conn.acct, conn, msg, match) == 0 and msg.reply_len:
        answer_no_responders(plane, conn, msg)
        memo.match = NULL
    if plane.crossed:
        plane.crossed = 0
        memo.match = NULL


# -- subscriptions

cdef int subscribe(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept nogil:
    cdef text_t args[ARGS_MAX]
    cdef int count = split(p, n, args, ARGS_MAX)
    cdef text_t* sid = &args[count - 1]
    cdef text_t queue = args[1]
    cdef uint64_t h
    cdef sub_t* sub
    if count != 2 and count != 3:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    if count == 2:
        queue.n = 0
    if plane.max_sub_tokens and tokens_of(args[0]) > plane.max_sub_tokens:
        plane.work += WORK_OF_CALL
        plane.on_violation(plane, conn, VIOLATES_TOKENS, args[0], queue, sid[0])
        return 0
    if not may_subscribe(conn, args[0], queue):
        plane.work += WORK_OF_CALL
        plane.on_violation(plane, conn, VIOLATES_SUBSCRIBE, args[0], queue, sid[0])
        return 0
    if conn.max_subs >= 0 and conn.sub_count >= conn.max_subs:    # also for a sid that is known
        emit_text(plane, conn, b"-ERR 'maximum subscriptions exceeded'\r\n", 39)
        return 0
    if not valid_subject(args[0].p, args[0].n):
        emit_text(plane, conn, b"-ERR 'Invalid Subject'\r\n", 24)
        return 0
    h = keyed_hash(sid.p, sid.n, plane.seed)
    if find_sid(conn, sid.p, sid.n, h) == NULL:
        sub = sub_new(plane, SUB_CLIENT, sid.p, sid.n)
        sub.of.conn = conn
        add_sid(conn, sub, h)
        plane.work += WORK_OF_SUBSCRIPTION
        if sublist_add(plane, conn.acct, sub, args[0].p, args[0].n, queue.p, queue.n):
            tell_interest(plane, conn.acct, NULL, sub.node, sub.queue, sub.queue.local_count if sub.queue != NULL else 1)
        if conn.acct.stream_imports != NULL:
            add_shadows(plane, sub, args[0].p, args[0].n)
    acknowledge(plane, conn)
    return 0


cdef int unsubscribe(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept nogil:
    cdef text_t args[ARGS_MAX]
    cdef int count = split(p, n, args, ARGS_MAX)
    cdef int64_t limit = -1
    cdef sub_t* sub
    if count != 1 and count != 2:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    if count == 2:
        limit = parse_size(args[1].p, args[1].n)
    sub = find_sid(conn, args[0].p, args[0].n, keyed_hash(args[0].p, args[0].n, plane.seed))
    if sub != NULL:
        if limit > 0 and limit > sub.delivered:
            sub.max_msgs = limit
        else:
            drop_subscription(plane, sub)
            plane.work += WORK_OF_SUBSCRIPTION
    acknowledge(plane, conn)
    return 0


# -- the loop

cdef int control(plane_t* plane, conn_t* conn, Verb verb, const char* p, Py_ssize_t n) noexcept nogil:
    """Act on a verb without a body with the arguments p[0:n]; returns -1 when the connection was closed, else 0."""
    if verb == VERB_SUB:
        return subscribe(plane, conn, p, n)
    if verb == VERB_UNSUB:
        return unsubscribe(plane, conn, p, n)
    if verb == VERB_PING:
        emit_text(plane, conn, b"PONG\r\n", 6)
        if conn.connected and conn.protocol and not conn.info_sent:
            conn.info_sent = 1
            plane.work += WORK_OF_CALL
            plane.on_first_ping(plane, conn)
    elif verb == VERB_PONG:
        note_pong(conn, plane.now_ns)
    elif verb == VERB_CONNECT:
        plane.work += WORK_OF_CALL
        plane.on_connect(plane, conn, p, n)
        if conn.state == CONN_OPEN and not conn.held:
            acknowledge(plane, conn)
    elif verb == VERB_ERR:
        conn_close(plane, conn, CLOSE_CLIENT)
    return 0 if conn.state == CONN_OPEN else -1


cdef Py_ssize_t parse(plane_t* plane, conn_t* conn, const char* data, Py_ssize_t n) noexcept nogil:
    """Act on complete lines and messages of data[0:n]; returns the bytes consumed, n when it closed the connection."""
    cdef Py_ssize_t at = 0, skip = 0, line, used, looked = 0
    cdef int64_t arguments_max = min(plane.max_control_line, <int64_t>ARGUMENTS_BYTES_MAX)
    cdef const char* end
    cdef Verb verb
    cdef memo_t memo
    cdef uint64_t work_max = share_end(plane, conn), all_max = turn_end(plane), moved = bytes_moved(plane)
    memo.repeats = memo.permitted = False
    memo.match = NULL
    memo.subject = NULL
    memo.len = 0
    while at < n:
        if conn.auth_required and not conn.connected and (data[at] | 0x20) != c"c":
            plane.on_connect(plane, conn, NULL, 0)
            if conn.state != CONN_OPEN:
                return n
        verb = verb_at(data + at, n - at, &skip)
        if verb == VERB_MORE:
            break
        if verb == VERB_UNKNOWN:
            fail(plane, conn, b"-ERR 'Unknown Protocol Operation'\r\n", 35)
            return n
        end = <const char*>memchr(data + at + skip, c"\n", n - at - skip)
        line = (end - (data + at + skip)) if end != NULL else n - at - skip
        if (
            line > (plane.max_control_line if verb == VERB_CONNECT else arguments_max) + 1
            and verb != VERB_PING and verb != VERB_PONG and verb != VERB_OK
        ):
            emit_text(plane, conn, b"-ERR 'maximum control line exceeded'\r\n", 38)
            conn_close(plane, conn, CLOSE_MAX_CONTROL_LINE)
            return n
        if end == NULL:
            if line > plane.max_control_line:
                # PING, PONG or +OK, which have no arguments: a line without an end is closed without an -ERR.
                conn_close(plane, conn, CLOSE_MAX_CONTROL_LINE)
                return n
            break
        if verb == VERB_PUB or verb == VERB_HPUB:
            if at >= looked and not memo.repeats and plane.sub_count >= FAR_SUBSCRIPTIONS:
                looked = at + look_ahead(plane, conn.acct, data + at, n - at)
            used = publish(plane, conn, data + at + skip, n - at - skip, line, verb == VERB_HPUB, &memo)
            if used < 0:
                return n
            if used == 0:
                break
            at += skip + used
            if conn.state != CONN_OPEN:
                return n
            count_moved(plane, &moved)
            if (plane.work > work_max or plane.work + plane.moved > all_max) and at < n:
                rest(plane, conn)
                break
            continue
        if plane.log_protocol:
            plane.on_protocol(plane, conn, True, data + at, skip + line, NULL, 0)
        if control(plane, conn, verb, data + at + skip, line) < 0:
            return n
        at += skip + line + 1
        memo.permitted = False      # a CONNECT may have changed who this is
        if conn.held:
            break
        if (plane.work > work_max or plane.work + plane.moved > all_max) and at < n:
            rest(plane, conn)
            break
    return at
