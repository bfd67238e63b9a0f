"""The client protocol, from bytes to deliveries.

`parse` walks complete protocol lines and messages and returns how many bytes it consumed; the rest is an incomplete
line or message that the caller keeps. What nats-server answers to malformed input was asked of nats-server 2.15.1: an
unknown verb gets 'Unknown Protocol Operation', wrong arguments close the connection without a word, an invalid
subject gets 'Invalid Subject' and the connection lives on.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp

from jetraft.api.routing._ahead cimport FAR_SUBSCRIPTIONS, look_ahead
from jetraft.api.routing._deliver cimport (
    answer_no_responders,
    deliver,
    drop_subscription,
    match_for,
    tell_interest,
)
from jetraft.api.routing._sublist cimport match_is_current
from jetraft.api.routing._tree cimport sub_new, sublist_add
from jetraft.api.wire._text cimport is_blank, is_literal, jr_blank, jr_hash, parse_size, valid_subject
from jetraft.api.wire._types cimport (
    CLOSE_AUTH,
    CLOSE_CLIENT,
    CLOSE_MAX_CONTROL_LINE,
    CLOSE_MAX_PAYLOAD,
    CLOSE_MAX_SUBSCRIPTIONS,
    CLOSE_PROTOCOL,
    CONN_OPEN,
    SUB_CLIENT,
    conn_t,
    match_t,
    msg_t,
    plane_t,
    sid_of,
    sub_t,
)
from jetraft.api.wire._writer cimport conn_close, emit_text

cdef enum Verb:
    VERB_UNKNOWN = 0
    VERB_MORE = 1       # a prefix of some verb: more bytes are needed
    VERB_PUB = 2
    VERB_HPUB = 3
    VERB_SUB = 4
    VERB_UNSUB = 5
    VERB_PING = 6
    VERB_PONG = 7
    VERB_CONNECT = 8
    VERB_INFO = 9
    VERB_OK = 10
    VERB_ERR = 11

cdef enum:
    ARGS_MAX = 5        # one more than any verb takes, so that too many are seen
    SIDS_START = 8


cdef struct arg_t:
    const char* p
    Py_ssize_t n


cdef struct memo_t:     # the last subject of this read and its answer: publishers repeat themselves
    bint repeats        # the one before was the same
    const char* subject
    uint32_t len
    match_t* match


cdef inline bint same_verb(const char* p, Py_ssize_t n, const char* verb, Py_ssize_t length) noexcept nogil:
    """Case-insensitive comparison of what is there with the verb (given in lower case)."""
    cdef Py_ssize_t i
    for i in range(n if n < length else length):
        if (p[i] | 0x20) != verb[i] and p[i] != verb[i]:
            return False
    return True


cdef Verb verb_at(const char* p, Py_ssize_t n, Py_ssize_t* skip) noexcept nogil:
    """Which verb starts here; `skip` becomes its length including the blank after it, where one must follow."""
    cdef Verb verb = VERB_UNKNOWN
    cdef const char* text
    cdef Py_ssize_t length
    cdef bint blank = True
    cdef char c = p[0] | 0x20
    if c == c"p":
        if n < 2:
            return VERB_MORE
        c = p[1] | 0x20
        if c == c"u":
            verb, text, length = VERB_PUB, b"pub", 3
        elif c == c"i":
            verb, text, length, blank = VERB_PING, b"ping", 4, False
        else:
            verb, text, length, blank = VERB_PONG, b"pong", 4, False
    elif c == c"h":
        verb, text, length = VERB_HPUB, b"hpub", 4
    elif c == c"s":
        verb, text, length = VERB_SUB, b"sub", 3
    elif c == c"u":
        verb, text, length = VERB_UNSUB, b"unsub", 5
    elif c == c"c":
        verb, text, length, blank = VERB_CONNECT, b"connect", 7, False
    elif c == c"i":
        verb, text, length = VERB_INFO, b"info", 4
    elif p[0] == c"+":
        verb, text, length, blank = VERB_OK, b"+ok", 3, False
    elif p[0] == c"-":
        verb, text, length, blank = VERB_ERR, b"-err", 4, False
    else:
        return VERB_UNKNOWN
    if not same_verb(p, n, text, length):
        return VERB_UNKNOWN
    if n < length + blank:
        return VERB_MORE
    if blank and p[length] != c" " and p[length] != c"\t":
        return VERB_UNKNOWN
    skip[0] = length + blank
    return verb


cdef int split(const char* p, Py_ssize_t n, arg_t* args) noexcept nogil:
    """Split at blanks; returns the number of arguments, ARGS_MAX at most."""
    cdef int count = 0
    cdef const char* end = p + n
    while p < end and count < ARGS_MAX:
        if is_blank(p[0]):
            p += 1
            continue
        args[count].p = p
        p = jr_blank(p, end)
        args[count].n = p - args[count].p
        count += 1
    return count


cdef void fail(plane_t* plane, conn_t* conn, const char* text, Py_ssize_t n) noexcept nogil:
    emit_text(plane, conn, text, n)
    conn_close(plane, conn, CLOSE_PROTOCOL)


cdef inline void acknowledge(plane_t* plane, conn_t* conn) noexcept nogil:
    if conn.verbose:
        emit_text(plane, conn, b"+OK\r\n", 5)


# -- publish

cdef Py_ssize_t publish(
    plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n, Py_ssize_t line, bint with_headers, memo_t* memo
) noexcept nogil:
    """PUB or HPUB whose arguments are p[0:line]; p[0:n] is all there is. Bytes consumed from p, 0 for more, -1 closed."""
    cdef arg_t args[ARGS_MAX]
    cdef int count = split(p, line, args)
    cdef int extra = 1 if with_headers else 0
    cdef int64_t size, hdr_len = 0
    cdef Py_ssize_t body = line + 1
    cdef msg_t msg
    cdef match_t* match
    if count != 2 + extra and count != 3 + extra:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    size = parse_size(args[count - 1].p, args[count - 1].n)
    if with_headers:
        hdr_len = parse_size(args[count - 2].p, args[count - 2].n)
    if size < 0 or hdr_len < 0 or hdr_len > size or (with_headers and not conn.headers):
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    if size > plane.max_payload:
        emit_text(plane, conn, b"-ERR 'Maximum Payload Violation'\r\n", 34)
        conn_close(plane, conn, CLOSE_MAX_PAYLOAD)
        return -1
    if n < body + size + 2:
        return 0
    if p[body + size] != c"\r" or p[body + size + 1] != c"\n":
        fail(plane, conn, b"-ERR 'Unknown Protocol Operation'\r\n", 35)
        return -1
    msg.subject = msg.shown = args[0].p
    msg.subject_len = msg.shown_len = <uint16_t>args[0].n
    msg.reply = args[1].p if count == 3 + extra else args[0].p     # never NULL: memcpy of nothing still wants a place
    msg.reply_len = <uint16_t>args[1].n if count == 3 + extra else 0
    msg.data = p + body
    msg.size = <uint32_t>size
    msg.hdr_len = <uint32_t>hdr_len
    if conn.pedantic and not (valid_subject(msg.subject, msg.subject_len) and is_literal(msg.subject, msg.subject_len)):
        emit_text(plane, conn, b"-ERR 'Invalid Publish Subject'\r\n", 32)
    acknowledge(plane, conn)
    conn.in_msgs += 1
    conn.in_bytes += size
    plane.in_msgs += 1
    plane.in_bytes += size
    if memo.match != NULL and memo.len == msg.subject_len and memcmp(memo.subject, msg.subject, memo.len) == 0 and match_is_current(plane, memo.match):
        match = memo.match
        memo.repeats = True
    else:
        memo.repeats = False
        match = match_for(plane, msg.subject, msg.subject_len)
        # A scratch answer is overwritten by the next look-up and cannot be remembered.
        memo.match = NULL if match == &plane.scratch else match
        memo.subject = msg.subject
        memo.len = msg.subject_len
    if deliver(plane, conn, &msg, match) == 0 and msg.reply_len:
        answer_no_responders(plane, conn, &msg)
        memo.match = NULL
    return body + size + 2


# -- subscriptions

cdef sub_t* find_sid(conn_t* conn, const char* sid, Py_ssize_t n, uint64_t h) noexcept nogil:
    cdef sub_t* sub
    if conn.bucket_count == 0:
        return NULL
    sub = conn.buckets[h & (conn.bucket_count - 1)]
    while sub != NULL:
        if sub.sid_hash == h and sub.sid_len == n and memcmp(sid_of(sub), sid, n) == 0:
            return sub
        sub = sub.next_in_bucket
    return NULL


cdef void grow_sids(conn_t* conn) noexcept nogil:
    cdef uint32_t i, size = conn.bucket_count * 2 if conn.bucket_count else SIDS_START
    cdef sub_t** buckets = <sub_t**>calloc(size, sizeof(sub_t*))
    cdef sub_t* sub
    cdef sub_t* following
    for i in range(conn.bucket_count):
        sub = conn.buckets[i]
        while sub != NULL:
            following = sub.next_in_bucket
            sub.next_in_bucket = buckets[sub.sid_hash & (size - 1)]
            buckets[sub.sid_hash & (size - 1)] = sub
            sub = following
    free(conn.buckets)
    conn.buckets = buckets
    conn.bucket_count = size


cdef int subscribe(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept nogil:
    cdef arg_t args[ARGS_MAX]
    cdef int count = split(p, n, args)
    cdef arg_t* sid = &args[count - 1]
    cdef uint64_t h
    cdef sub_t* sub
    if count != 2 and count != 3:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    if not valid_subject(args[0].p, args[0].n):
        emit_text(plane, conn, b"-ERR 'Invalid Subject'\r\n", 24)
        return 0
    h = jr_hash(sid.p, sid.n, plane.seed)
    if find_sid(conn, sid.p, sid.n, h) == NULL:
        if plane.max_subscriptions and conn.sub_count >= plane.max_subscriptions:
            emit_text(plane, conn, b"-ERR 'maximum subscriptions exceeded'\r\n", 39)
            conn_close(plane, conn, CLOSE_MAX_SUBSCRIPTIONS)
            return -1
        if conn.sub_count >= conn.bucket_count:
            grow_sids(conn)
        sub = sub_new(plane, SUB_CLIENT, sid.p, sid.n)
        sub.of.conn = conn
        sub.sid_hash = h
        sub.next_in_bucket = conn.buckets[h & (conn.bucket_count - 1)]
        conn.buckets[h & (conn.bucket_count - 1)] = sub
        conn.sub_count += 1
        if sublist_add(plane, sub, args[0].p, args[0].n, args[1].p if count == 3 else NULL, args[1].n if count == 3 else 0):
            tell_interest(plane, NULL, sub.node, sub.queue, sub.queue.local_count if sub.queue != NULL else 1)
    acknowledge(plane, conn)
    return 0


cdef int unsubscribe(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept nogil:
    cdef arg_t args[ARGS_MAX]
    cdef int count = split(p, n, args)
    cdef int64_t limit = -1
    cdef sub_t* sub
    if count != 1 and count != 2:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    if count == 2:
        limit = parse_size(args[1].p, args[1].n)
    sub = find_sid(conn, args[0].p, args[0].n, jr_hash(args[0].p, args[0].n, plane.seed))
    if sub != NULL:
        if limit > 0 and limit > sub.delivered:
            sub.max_msgs = limit
        else:
            drop_subscription(plane, sub)
    acknowledge(plane, conn)
    return 0


# -- the loop

cdef int control(plane_t* plane, conn_t* conn, Verb verb, const char* p, Py_ssize_t n) noexcept nogil:
    """A verb without a body whose arguments are p[0:n]; -1 when the connection was closed."""
    if verb == VERB_SUB:
        return subscribe(plane, conn, p, n)
    if verb == VERB_UNSUB:
        return unsubscribe(plane, conn, p, n)
    if verb == VERB_PING:
        emit_text(plane, conn, b"PONG\r\n", 6)
        if conn.connected and conn.protocol and not conn.info_sent:
            conn.info_sent = 1
            plane.on_first_ping(plane, conn)
    elif verb == VERB_PONG:
        conn.pings_out = 0
    elif verb == VERB_CONNECT:
        plane.on_connect(plane, conn, p, n)
        if conn.state == CONN_OPEN:
            acknowledge(plane, conn)
    elif verb == VERB_ERR:
        conn_close(plane, conn, CLOSE_CLIENT)
    return 0 if conn.state == CONN_OPEN else -1


cdef Py_ssize_t parse(plane_t* plane, conn_t* conn, const char* data, Py_ssize_t n) noexcept nogil:
    """Act on all complete lines and messages of data[0:n]; returns the bytes consumed (n when the connection closed)."""
    cdef Py_ssize_t at = 0, skip = 0, line, used, looked = 0
    cdef const char* end
    cdef Verb verb
    cdef memo_t memo
    memo.repeats = False
    memo.match = NULL
    memo.subject = NULL
    memo.len = 0
    while at < n:
        verb = verb_at(data + at, n - at, &skip)
        if verb == VERB_MORE:
            break
        if verb == VERB_UNKNOWN:
            fail(plane, conn, b"-ERR 'Unknown Protocol Operation'\r\n", 35)
            return n
        if conn.auth_required and not conn.connected and verb != VERB_CONNECT:
            emit_text(plane, conn, b"-ERR 'Authorization Violation'\r\n", 32)
            conn_close(plane, conn, CLOSE_AUTH)
            return n
        end = <const char*>memchr(data + at + skip, c"\n", n - at - skip)
        line = (end - (data + at + skip)) if end != NULL else n - at - skip
        if line > plane.max_control_line + 1 and verb != VERB_PING and verb != VERB_PONG and verb != VERB_OK:
            emit_text(plane, conn, b"-ERR 'maximum control line exceeded'\r\n", 38)
            conn_close(plane, conn, CLOSE_MAX_CONTROL_LINE)
            return n
        if end == NULL:
            if line > plane.max_control_line:
                # The arguments of PING, PONG and +OK mean nothing: drop what came, keep the verb for the line's end.
                conn_close(plane, conn, CLOSE_MAX_CONTROL_LINE)
                return n
            break
        if verb == VERB_PUB or verb == VERB_HPUB:
            if at >= looked and not memo.repeats and plane.sub_count >= FAR_SUBSCRIPTIONS:
                looked = at + look_ahead(plane, data + at, n - at)
            used = publish(plane, conn, data + at + skip, n - at - skip, line, verb == VERB_HPUB, &memo)
            if used < 0:
                return n
            if used == 0:
                break
            at += skip + used
            if conn.state != CONN_OPEN:
                return n
            continue
        if control(plane, conn, verb, data + at + skip, line) < 0:
            return n
        at += skip + line + 1
    return at
