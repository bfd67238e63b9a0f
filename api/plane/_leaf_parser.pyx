"""The protocol between a leaf node and its hub, from bytes to interest and deliveries. Both ends speak the same.

    LS+ subject [queue weight]      interest; again with another weight where it changes
    LS- subject [queue]             its end
    LMSG subject [reply] size       a message; where queue groups are given to this end, `+ reply` or `|` and their names
    HMSG subject [reply] hdr size   with headers

CONNECT, INFO and -ERR, which are rare, go to Python as text. Wrong arguments close the connection, as in nats-server.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from jetraft.api.plane._arguments cimport split
from jetraft.api.plane._deliver cimport drop_subscription, tell_interest
from jetraft.api.plane._grants cimport WHOLE_TAIL, hits_t, look_up
from jetraft.api.plane._leaf_in cimport deliver_from_leaf
from jetraft.api.plane._shadows cimport add_shadows
from jetraft.api.plane._share cimport WORK_OF_CALL, WORK_OF_SUBSCRIPTION, bytes_moved, count_moved, rest, share_end, turn_end
from jetraft.api.plane._sids cimport add_sid, find_sid
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._tree cimport sublist_add
from jetraft.api.plane._text cimport is_blank, parse_size, valid_subject
from jetraft.api.plane._types cimport (
    CLOSE_MAX_CONTROL_LINE,
    CLOSE_MAX_PAYLOAD,
    CLOSE_PROTOCOL,
    CONN_OPEN,
    FROM_LEAF,
    LEAF_PICKS_MAX,
    SUB_LEAF,
    conn_t,
    msg_t,
    note_pong,
    packed_t,
    perms_t,
    plane_t,
    shadow_of,
    sub_t,
    text_t,
)
from jetraft.api.plane._writer cimport conn_close, emit_text
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef enum Verb:
    VERB_UNKNOWN = 0
    VERB_ADD = 1
    VERB_REMOVE = 2
    VERB_MESSAGE = 3
    VERB_HEADERS = 4
    VERB_PING = 5
    VERB_PONG = 6
    VERB_CONNECT = 7
    VERB_INFO = 8
    VERB_OK = 9
    VERB_ERR = 10

cdef enum:
    LINE_BYTES_MAX = 65534      # lengths have 16 bits; nats-server has no limit here
    ARGS_MAX = 72               # LEAF_PICKS_MAX queue groups with all that stands around them
    SUBSCRIPTIONS_MAX = 1 << 20 # of one connection
    WEIGHT_MAX = 1 << 20
    PLAIN_ARGS = 1              # of LS+
    QUEUE_ARGS = 3


cdef inline bint begins(const char* p, Py_ssize_t n, const char* verb, Py_ssize_t length) noexcept nogil:
    """Compare with a verb in lower case, ignoring case."""
    cdef Py_ssize_t i
    if n < length:
        return False
    for i in range(length):
        if (p[i] | 0x20) != verb[i] and p[i] != verb[i]:
            return False
    return True


cdef Verb verb_of(const char* p, Py_ssize_t n, Py_ssize_t* skip) noexcept nogil:
    """The verb of a line; `skip` becomes its length."""
    if begins(p, n, b"lmsg ", 5):
        skip[0] = 5
        return VERB_MESSAGE
    if begins(p, n, b"hmsg ", 5):
        skip[0] = 5
        return VERB_HEADERS
    if begins(p, n, b"ls", 2) and n >= 4 and is_blank(p[3]) and (p[2] == c"+" or p[2] == c"-"):
        skip[0] = 4
        return VERB_ADD if p[2] == c"+" else VERB_REMOVE
    if begins(p, n, b"ping", 4):
        return VERB_PING
    if begins(p, n, b"pong", 4):
        return VERB_PONG
    if begins(p, n, b"connect", 7):
        skip[0] = 7
        return VERB_CONNECT
    if begins(p, n, b"info ", 5):
        skip[0] = 5
        return VERB_INFO
    if begins(p, n, b"+ok", 3):
        return VERB_OK
    if begins(p, n, b"-err", 4):
        skip[0] = 4
        return VERB_ERR
    return VERB_UNKNOWN


# -- interest

cdef bint may_ask(perms_t* perms, text_t subject, text_t queue) noexcept nogil:
    """Whether the server at the other end may be told of messages of a subject. Only the deny list looks at its queue."""
    cdef hits_t hits
    cdef text_t none
    if perms == NULL:
        return True
    none.p = NULL
    none.n = 0
    if perms.subscribe_allow != NULL and not look_up(perms.subscribe_allow, subject.p, subject.n, WHOLE_TAIL, none).plain:
        return False
    if perms.subscribe_deny == NULL:
        return True
    hits = look_up(perms.subscribe_deny, subject.p, subject.n, 0, queue)
    return not (hits.plain or hits.fits)


cdef inline bint is_loop_check(text_t subject) noexcept nogil:
    return subject.n > 5 and memcmp(subject.p, b"$LDS.", 5) == 0


cdef void change_weight(plane_t* plane, sub_t* sub, uint32_t weight) noexcept nogil:
    """A queue group at the other end has another number of members."""
    cdef sub_t* shadow = sub.shadows
    if sub.queue == NULL or sub.weight == weight:
        return
    while shadow != NULL:
        change_weight(plane, shadow, weight)
        shadow = shadow_of(shadow).next
    if not sub.local_only:
        sub.queue.local_count += weight - sub.weight
    sub.weight = weight
    if not sub.local_only:
        tell_interest(plane, sub.acct, NULL, sub.node, sub.queue, sub.queue.local_count)
    if sub.acct.leafs != NULL:
        plane.on_interest(plane, sub, True)


cdef void add(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept nogil:
    """LS+."""
    cdef text_t args[ARGS_MAX]
    cdef int count = split(p, n, args, ARGS_MAX)
    cdef text_t key = args[0], queue
    cdef int64_t weight = 1
    cdef uint64_t h
    cdef sub_t* sub
    queue.p = key.p
    queue.n = 0
    if count == QUEUE_ARGS:
        queue = args[1]
        key.n = queue.p + queue.n - key.p
        weight = max(1, min(parse_size(args[2].p, args[2].n), <int64_t>WEIGHT_MAX))
    if (count != PLAIN_ARGS and count != QUEUE_ARGS) or (queue.n and key.n != args[0].n + 1 + queue.n):
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return
    if not valid_subject(args[0].p, args[0].n):
        emit_text(plane, conn, b"-ERR 'Invalid Subscription'\r\n", 29)
        return
    if is_loop_check(args[0]):
        plane.work += WORK_OF_CALL
        plane.on_leaf_text(plane, conn, LEAF_LOOP_CHECK, args[0].p, args[0].n)
        if conn.state != CONN_OPEN:
            return
    elif not may_ask(conn.perms, args[0], queue):
        plane.work += WORK_OF_CALL
        plane.on_leaf_text(plane, conn, LEAF_DENIED, args[0].p, args[0].n)
        return
    h = keyed_hash(key.p, key.n, plane.seed)
    sub = find_sid(conn, key.p, key.n, h)
    if sub != NULL:
        change_weight(plane, sub, <uint32_t>weight)
        return
    if conn.sub_count >= SUBSCRIPTIONS_MAX or (conn.max_subs >= 0 and conn.sub_count >= conn.max_subs):
        emit_text(plane, conn, b"-ERR 'maximum subscriptions exceeded'\r\n", 39)
        return
    sub = sub_new(plane, SUB_LEAF, key.p, key.n)
    sub.of.conn = conn
    sub.weight = <uint32_t>weight
    sub.local_only = conn.leaf.spoke
    add_sid(conn, sub, h)
    plane.work += WORK_OF_SUBSCRIPTION
    if sublist_add(plane, conn.acct, sub, args[0].p, args[0].n, queue.p, queue.n):
        tell_interest(plane, conn.acct, NULL, sub.node, sub.queue, sub.queue.local_count if sub.queue != NULL else 1)
    if conn.acct.stream_imports != NULL and not is_loop_check(args[0]):
        add_shadows(plane, sub, args[0].p, args[0].n)


cdef void remove(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept nogil:
    """LS-."""
    cdef text_t args[ARGS_MAX]
    cdef int count = split(p, n, args, ARGS_MAX)
    cdef text_t key = args[0]
    cdef sub_t* sub
    if count != 1 and count != 2:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return
    if count == 2:
        key.n = args[1].p + args[1].n - key.p
    sub = find_sid(conn, key.p, key.n, keyed_hash(key.p, key.n, plane.seed))
    if sub != NULL:
        drop_subscription(plane, sub)
        plane.work += WORK_OF_SUBSCRIPTION


# -- messages

cdef Py_ssize_t message(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n, Py_ssize_t line, bint with_headers) noexcept nogil:
    """LMSG or HMSG with arguments p[0:line]; p[0:n] was received. Bytes consumed; 0: incomplete, -1: closed."""
    cdef text_t args[ARGS_MAX]
    cdef int count = split(p, line, args, ARGS_MAX), sizes = 2 if with_headers else 1
    cdef int between = count - 1 - sizes, first = 1
    cdef int64_t size, hdr_len = 0
    cdef Py_ssize_t body = line + 1
    cdef msg_t msg
    cdef text_t reply
    reply.p = p
    reply.n = 0
    if between == 1:
        reply = args[1]
        first = 2
    elif between > 1 and args[1].n == 1 and (args[1].p[0] == c"+" or args[1].p[0] == c"|"):
        first = 2
        if args[1].p[0] == c"+":
            reply = args[2]
            first = 3
    elif between != 0:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    size = parse_size(args[count - 1].p, args[count - 1].n)
    if with_headers:
        hdr_len = parse_size(args[count - 2].p, args[count - 2].n)
    if size < 0 or hdr_len < 0 or hdr_len > size:
        conn_close(plane, conn, CLOSE_PROTOCOL)
        return -1
    if size > conn.max_payload:
        emit_text(plane, conn, b"-ERR 'Maximum Payload Violation'\r\n", 34)
        conn_close(plane, conn, CLOSE_MAX_PAYLOAD)
        return -1
    if n < body + size + 2:
        return 0
    if p[body + size] != c"\r" or p[body + size + 1] != c"\n":
        unknown(plane, conn)
        return -1
    msg.subject = msg.shown = args[0].p
    msg.subject_len = msg.shown_len = <uint16_t>args[0].n
    msg.reply = reply.p
    msg.reply_len = <uint16_t>reply.n
    msg.data = p + body
    msg.size = <uint32_t>size
    msg.hdr_len = <uint32_t>hdr_len
    msg.origin = FROM_LEAF
    deliver_from_leaf(plane, conn, &msg, &args[first], count - sizes - first)
    return body + size + 2


# -- the loop

cdef void unknown(plane_t* plane, conn_t* conn) noexcept nogil:
    emit_text(plane, conn, b"-ERR 'Unknown Protocol Operation'\r\n", 35)
    conn_close(plane, conn, CLOSE_PROTOCOL)


cdef void control(plane_t* plane, conn_t* conn, Verb verb, const char* p, Py_ssize_t n) noexcept nogil:
    """Act on a line without a body."""
    if verb == VERB_ADD:
        add(plane, conn, p, n)
    elif verb == VERB_REMOVE:
        remove(plane, conn, p, n)
    elif verb == VERB_PING:
        emit_text(plane, conn, b"PONG\r\n", 6)
    elif verb == VERB_PONG:
        note_pong(conn, plane.now_ns)
    elif verb == VERB_CONNECT:
        plane.work += WORK_OF_CALL
        plane.on_leaf_text(plane, conn, LEAF_CONNECT, p, n)
    elif verb == VERB_INFO:
        plane.work += WORK_OF_CALL
        plane.on_leaf_text(plane, conn, LEAF_INFO, p, n)
    elif verb == VERB_ERR:
        plane.work += WORK_OF_CALL
        plane.on_leaf_text(plane, conn, LEAF_ERR, p, n)


cdef inline bint is_early(conn_t* conn, Verb verb) noexcept nogil:
    """Whether a line is one that only a connection in an account may send. Who was asked says CONNECT first."""
    if conn.leaf.admitted:
        return False
    if conn.leaf.solicited:
        return verb < VERB_PING
    return verb < VERB_CONNECT


cdef Py_ssize_t parse_leaf(plane_t* plane, conn_t* conn, const char* data, Py_ssize_t n) noexcept nogil:
    """Act on complete lines and messages of data[0:n]; returns the bytes consumed, n when it closed the connection."""
    cdef Py_ssize_t at = 0, skip, line, used
    cdef const char* p
    cdef const char* end
    cdef packed_t* packed
    cdef Verb verb
    cdef uint64_t work_max = share_end(plane, conn), all_max = turn_end(plane), moved = bytes_moved(plane)
    while at < n and not conn.held:
        p = data + at
        skip = 0
        end = <const char*>memchr(p, c"\n", n - at)
        line = (end - p) if end != NULL else n - at
        if line > LINE_BYTES_MAX:
            emit_text(plane, conn, b"-ERR 'maximum control line exceeded'\r\n", 38)
            conn_close(plane, conn, CLOSE_MAX_CONTROL_LINE)
            return n
        if end == NULL:
            break
        verb = verb_of(p, line, &skip)
        if verb == VERB_UNKNOWN:
            unknown(plane, conn)
            return n
        if is_early(conn, verb):
            plane.on_leaf_text(plane, conn, LEAF_EARLY, p, 0)
            return n
        if verb == VERB_MESSAGE or verb == VERB_HEADERS:
            used = message(plane, conn, p + skip, n - at - skip, line - skip, verb == VERB_HEADERS)
            if used == 0:
                break
            count_moved(plane, &moved)
        else:
            packed = conn.packed
            control(plane, conn, verb, p + skip, line - skip)
            used = line - skip + 1
            if conn.packed != packed and at + skip + used < n:
                conn_close(plane, conn, CLOSE_PROTOCOL)     # what comes behind the line that turns it on is not compressed
        if conn.state != CONN_OPEN:
            return n
        at += skip + used
        if (plane.work > work_max or plane.work + plane.moved > all_max) and at < n and not conn.held:
            rest(plane, conn)
            break
    return at
