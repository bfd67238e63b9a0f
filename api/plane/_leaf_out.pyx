"""Sends messages to leaf nodes and to hubs: LMSG and HMSG, one copy for each connection.

A connection that has several subscriptions to a subject gets one copy, which names the queue groups that were given to
the server at the other end. What came from a server, or from one of its cluster, does not go back there. A member of a
queue group behind such a connection gets a message only when there is none in this cluster, as with nats-server.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from jetraft.api.plane._grants cimport EMPTY_TOKENS, look_up
from jetraft.api.plane._text cimport jr_utoa
from jetraft.api.plane._transforms cimport transform_subject
from jetraft.api.plane._types cimport (
    CONN_OPEN,
    LEAF_PICKS_MAX,
    SUB_LEAF,
    SUB_LEAF_SHADOW,
    SUB_ROUTE,
    conn_t,
    group_t,
    is_judged,
    leaf_pick_t,
    leaf_t,
    match_t,
    msg_t,
    plane_t,
    shadow_of,
    sub_t,
    text_t,
    transform_t,
)
from jetraft.api.plane._writer cimport buf_reserve, conn_wrote, push_ptr

cdef enum:
    LINE_OVERHEAD = 96      # verb, indicator, spaces, two sizes of ten digits, two line ends


cdef inline bint is_cluster(leaf_t* leaf, const char* name, uint16_t n) noexcept nogil:
    return n > 0 and leaf.cluster_len == n and memcmp(leaf.cluster, name, n) == 0


cdef bint same_side(leaf_t* leaf, conn_t* origin) noexcept nogil:
    """Whether what came over a connection came from the server that `leaf` leads to, or from its cluster."""
    if origin == NULL or origin.leaf == NULL:
        return False
    return origin.leaf == leaf or is_cluster(leaf, origin.leaf.cluster, origin.leaf.cluster_len)


cdef void read_origin(plane_t* plane, const char* queues, uint32_t queue_count) noexcept nogil:
    """Find the cluster of a leaf node among the queue groups of a route record: a name that begins with a blank.

    No queue group has such a name, so a node that does not know of leaf nodes passes over it.
    """
    cdef uint16_t n
    cdef uint32_t i
    for i in range(queue_count):
        memcpy(&n, queues, 2)
        if n > 1 and queues[2] == c" ":
            plane.origin = queues + 3
            plane.origin_len = n - 1
            return
        queues += 2 + n


cdef bint name_origin(plane_t* plane, conn_t* origin) noexcept nogil:
    """Make the name for `read_origin` of a peer; False: the message did not come from a leaf node."""
    cdef const char* name = plane.origin
    cdef uint16_t n = plane.origin_len
    if origin != NULL and origin.leaf != NULL:
        name = origin.leaf.cluster
        n = origin.leaf.cluster_len
    if n == 0 or n >= sizeof(plane.origin_name):
        return False
    plane.origin_name[0] = c" "
    memcpy(plane.origin_name + 1, name, n)
    plane.origin_mark.name = plane.origin_name
    plane.origin_mark.name_len = n + 1
    return True


cdef bint may_leave(conn_t* conn, msg_t* msg) noexcept nogil:
    """Whether a message may go over a connection: a wildcard subscription reaches subjects that are denied."""
    cdef text_t queue
    if conn.perms == NULL or conn.perms.subscribe_deny == NULL:
        return True
    queue.p = NULL
    queue.n = 0
    return not look_up(conn.perms.subscribe_deny, msg.subject, msg.subject_len, EMPTY_TOKENS, queue).plain


cdef inline bint starts(const char* p, Py_ssize_t n, const char* word, Py_ssize_t length) noexcept nogil:
    return n >= length and memcmp(p, word, length) == 0


cdef bint is_for_server(const char* p, Py_ssize_t n) noexcept nogil:
    """Whether a subject is of requests to a server, of any domain, or of acknowledgements."""
    cdef const char* dot
    if n < 5 or p[0] != c"$":
        return False
    if memcmp(p, b"$JS.", 4) != 0:
        return starts(p, n, b"$SYS.", 5)
    p += 4
    n -= 4
    if starts(p, n, b"API.", 4) or starts(p, n, b"ACK.", 4) or starts(p, n, b"FC.", 3) or starts(p, n, b"SNAPSHOT.", 9):
        return True
    dot = <const char*>memchr(p, c".", n)
    return dot != NULL and starts(dot + 1, n - (dot + 1 - p), b"API.", 4)


cdef bint may_be_asked(msg_t* msg) noexcept nogil:
    """Whether the server at the other end may take a message for what its sender may publish: it is not told who that is.

    So nothing that was not judged reaches its API.
    """
    return is_judged(msg.origin) or not is_for_server(msg.subject, msg.subject_len)


cdef bint is_open_for(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg) noexcept nogil:
    cdef conn_t* conn = sub.of.conn
    if sub.closed or conn.state != CONN_OPEN or same_side(conn.leaf, origin):
        return False
    return not is_cluster(conn.leaf, plane.origin, plane.origin_len) and may_leave(conn, msg) and may_be_asked(msg)


cdef uint32_t add_due(plane_t* plane, leaf_t* leaf, transform_t* shown) noexcept nogil:
    """A connection gets one copy for each name that a message has in its account."""
    cdef uint32_t i
    if leaf.due:
        if leaf.shown == shown:
            return 0
        for i in range(0, plane.leafs_due.count, 2):
            if plane.leafs_due.items[i] == leaf and plane.leafs_due.items[i + 1] == shown:
                return 0
    leaf.due = 1
    leaf.shown = shown
    push_ptr(&plane.leafs_due, leaf)
    push_ptr(&plane.leafs_due, shown)
    return 1


cdef bint rename(plane_t* plane, transform_t* shown, msg_t* msg) noexcept nogil:
    """Give a message the subject that it has in the account of the connection; False: it has none."""
    cdef bint renamed = msg.shown != msg.subject
    msg.subject_len = <uint16_t>transform_subject(plane, shown, msg.subject, msg.subject_len, plane.shown)
    msg.subject = plane.shown
    if not renamed:
        msg.shown = msg.subject
        msg.shown_len = msg.subject_len
    return msg.subject_len > 0


cdef uint32_t note_leaf(plane_t* plane, sub_t* sub, transform_t* shown, conn_t* origin, msg_t* msg) noexcept nogil:
    """The message being delivered is for this connection; 1 where it is one more receiver.

    `shown`: makes the subject that it has there; NULL: it stays.
    """
    cdef msg_t here = msg[0]
    if shown != NULL and not rename(plane, shown, &here):
        return 0
    return add_due(plane, sub.of.conn.leaf, shown) if is_open_for(plane, sub, origin, &here) else 0


cdef sub_t* candidate(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg, bint from_route) noexcept nogil:
    """What the other end of a connection told, if it may be chosen for its queue group; else NULL."""
    cdef sub_t* told = sub.of.main if sub.kind == SUB_LEAF_SHADOW else sub
    cdef msg_t here = msg[0]
    if told.kind != SUB_LEAF or sub.closed or (from_route and told.local_only):
        return NULL
    if told != sub and shadow_of(sub).by.shown != NULL and not rename(plane, shadow_of(sub).by.shown, &here):
        return NULL
    return told if is_open_for(plane, told, origin, &here) else NULL


cdef uint32_t pick_leaf(
    plane_t* plane, match_t* match, group_t* group, conn_t* origin, msg_t* msg, uint64_t random, bint from_route
) noexcept nogil:
    """Choose a connection for a queue group without a member here, by weight; returns 1 if there is one.

    What comes from a node of this cluster goes to leaf nodes only, not to a hub.
    """
    cdef uint64_t total = 0, at
    cdef uint32_t i
    cdef sub_t* sub = NULL
    cdef leaf_pick_t* pick
    if plane.leaf_pick_count == LEAF_PICKS_MAX:
        return 0
    for i in range(group.count):
        sub = match.members[group.first + i]
        if sub.kind > SUB_ROUTE and candidate(plane, sub, origin, msg, from_route) != NULL:
            total += sub.weight
    if total == 0:
        return 0
    at = random % total
    for i in range(group.count):
        sub = match.members[group.first + i]
        if sub.kind <= SUB_ROUTE or candidate(plane, sub, origin, msg, from_route) == NULL:
            continue
        if at < sub.weight:
            break
        at -= sub.weight
    pick = &plane.leaf_picks[plane.leaf_pick_count]
    pick.shown = shadow_of(sub).by.shown if sub.kind == SUB_LEAF_SHADOW else NULL
    pick.leaf = candidate(plane, sub, origin, msg, from_route).of.conn.leaf
    pick.name = group.name
    pick.name_len = group.name_len
    plane.leaf_pick_count += 1
    add_due(plane, pick.leaf, pick.shown)
    return 1


cdef inline char* put(char* w, const char* p, size_t n) noexcept nogil:
    memcpy(w, p, n)
    return w + n


cdef inline bint is_given(leaf_pick_t* pick, leaf_t* leaf, transform_t* shown) noexcept nogil:
    return pick.leaf == leaf and pick.shown == shown


cdef void emit_leaf(plane_t* plane, leaf_t* leaf, transform_t* shown, msg_t* msg) noexcept nogil:
    """Queue LMSG or HMSG with the queue groups that were given to this connection.

    A subject for receivers that differs from the one it is sent to (a stored message on its way to an inbox) stands
    behind the reply subject, as with nats-server.
    """
    cdef conn_t* conn = leaf.conn
    cdef const char* data = msg.data
    cdef size_t size = msg.size, hdr_len = msg.hdr_len, names = 0
    cdef uint32_t i, queues = 0
    cdef bint renamed = msg.shown != msg.subject and msg.reply_len > 0
    cdef char* w
    cdef char* start
    if hdr_len and not conn.headers:
        data += hdr_len
        size -= hdr_len
        hdr_len = 0
    for i in range(plane.leaf_pick_count):
        if is_given(&plane.leaf_picks[i], leaf, shown):
            queues += 1
            names += plane.leaf_picks[i].name_len + 1
    start = w = buf_reserve(
        &conn.out, msg.subject_len + msg.reply_len + <size_t>msg.shown_len + names + size + LINE_OVERHEAD
    )
    w = put(w, b"HMSG " if hdr_len else b"LMSG ", 5)
    w = put(w, msg.subject, msg.subject_len)
    if queues:
        w = put(w, b" +" if msg.reply_len else b" |", 2)
    if msg.reply_len:
        w = put(w, b" ", 1)
        w = put(w, msg.reply, msg.reply_len)
        if renamed:
            w = put(w, b"@", 1)
            w = put(w, msg.shown, msg.shown_len)
    for i in range(plane.leaf_pick_count):
        if is_given(&plane.leaf_picks[i], leaf, shown):
            w = put(w, b" ", 1)
            w = put(w, plane.leaf_picks[i].name, plane.leaf_picks[i].name_len)
    if hdr_len:
        w = put(w, b" ", 1)
        w += jr_utoa(w, hdr_len)
    w = put(w, b" ", 1)
    w += jr_utoa(w, size)
    w = put(w, b"\r\n", 2)
    w = put(w, data, size)
    w = put(w, b"\r\n", 2)
    conn.out.end += w - start
    conn.out_msgs += 1
    conn.out_bytes += size
    plane.out_msgs += 1
    plane.out_bytes += size
    conn.acct.out_msgs += 1
    conn.acct.out_bytes += size
    conn_wrote(plane, conn)


cdef void send_to_leafs(plane_t* plane, msg_t* msg) noexcept nogil:
    """Send the message to the connections that were chosen for it."""
    cdef uint32_t i
    cdef leaf_t* leaf
    cdef transform_t* shown
    cdef msg_t here
    for i in range(0, plane.leafs_due.count, 2):
        leaf = <leaf_t*>plane.leafs_due.items[i]
        shown = <transform_t*>plane.leafs_due.items[i + 1]
        leaf.due = 0
        here = msg[0]
        if shown == NULL or rename(plane, shown, &here):
            emit_leaf(plane, leaf, shown, &here)
    plane.leafs_due.count = 0
    plane.leaf_pick_count = 0
