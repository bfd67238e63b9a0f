"""One message to everybody who wants it.

Plain subscriptions all get it; of each queue group one member does, chosen at random by weight, a sink on this node
first (that is how a direct get is served by the local replica). A peer gets one copy however many of its clients are
interested, with the names of the queue groups for which it was chosen; what comes from a peer is only delivered here,
so a full mesh needs no loop detection.

Route records, little endian: u32 length (whole) | u8 type | u8 queue count | u16 shown length | u32 header length |
u32 payload length | u16 subject length | u16 reply length, then per queue u16 length and name, then subject, shown
subject (empty: the same), reply, headers, payload. Interest records: the same 20 bytes with weight in the header
length field and the queue as the one queue.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from jetraft.api.routing._sublist cimport sublist_match, sublist_match_once
from jetraft.api.routing._tree cimport node_subject, sublist_remove
from jetraft.api.wire._text cimport jr_utoa
from jetraft.api.wire._types cimport (
    CONN_OPEN,
    SUB_CLIENT,
    SUB_ROUTE,
    SUB_SINK,
    conn_t,
    group_t,
    match_t,
    msg_t,
    node_t,
    plain_of,
    plane_t,
    queue_t,
    route_t,
    sink_t,
    sub_t,
)
from jetraft.api.wire._writer cimport buf_reserve, emit_message, emit_text, push_ptr

cdef enum:
    ROUTE_HEAD = 20
    ROUTE_MESSAGE = 1
    ROUTE_INTEREST = 2
    CAPTURE_HEAD = 20
    PICKS_MAX = 64      # queue groups of one message that were given to peers; more are kept local


cdef struct pick_t:
    route_t* route
    group_t* group


cdef inline uint64_t next_random(plane_t* plane) noexcept nogil:
    """xorshift64*: fair enough to spread messages, and cheap."""
    cdef uint64_t x = plane.rng
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    plane.rng = x
    return x * 0x2545F4914F6CDD1Du


cdef match_t* match_for(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil:
    """Look a subject up; inboxes and acks, which do not come again, spend no cache entry."""
    if n > 7 and (memcmp(subject, b"_INBOX.", 7) == 0 or (n > 8 and memcmp(subject, b"$JS.ACK.", 8) == 0)):
        return sublist_match_once(plane, subject, n)
    return sublist_match(plane, subject, n)


# -- ends of subscriptions

cdef void unlink_sid(sub_t* sub) noexcept nogil:
    """Take a client's subscription out of its connection's table."""
    cdef conn_t* conn = sub.of.conn
    cdef sub_t** link = &conn.buckets[sub.sid_hash & (conn.bucket_count - 1)]
    while link[0] != NULL:
        if link[0] == sub:
            link[0] = sub.next_in_bucket
            conn.sub_count -= 1
            return
        link = &link[0].next_in_bucket


cdef void unlink_owner(sub_t* sub) noexcept nogil:
    if sub.prev_of_owner != NULL:
        sub.prev_of_owner.next_of_owner = sub.next_of_owner
    elif sub.kind == SUB_ROUTE:
        sub.of.route.subs = sub.next_of_owner
    else:
        sub.of.sink.subs = sub.next_of_owner
    if sub.next_of_owner != NULL:
        sub.next_of_owner.prev_of_owner = sub.prev_of_owner


cdef void drop_subscription(plane_t* plane, sub_t* sub) noexcept nogil:
    """End one subscription: peers are told, the structure waits in the graveyard until the end of the turn."""
    if sub.closed:
        return
    sub.closed = 1
    if sub.kind == SUB_CLIENT:
        unlink_sid(sub)
    else:
        unlink_owner(sub)
    if sub.kind != SUB_ROUTE and not sub.local_only:
        if sub.queue != NULL:
            tell_interest(plane, NULL, sub.node, sub.queue, sub.queue.local_count - 1)
        elif sub.node.local_count == 1:
            tell_interest(plane, NULL, sub.node, NULL, 0)
    sublist_remove(plane, sub)
    sub.next_dead = plane.dead_subs
    plane.dead_subs = sub


# -- peers

cdef void route_head(char* w, uint32_t length, uint8_t kind, uint8_t queues, msg_t* msg) noexcept nogil:
    cdef uint32_t payload_len = msg.size - msg.hdr_len
    memcpy(w, &length, 4)
    w[4] = <char>kind
    w[5] = <char>queues
    memcpy(w + 6, &msg.shown_len, 2)
    memcpy(w + 8, &msg.hdr_len, 4)
    memcpy(w + 12, &payload_len, 4)
    memcpy(w + 16, &msg.subject_len, 2)
    memcpy(w + 18, &msg.reply_len, 2)


cdef inline void mark_route(plane_t* plane, route_t* route) noexcept nogil:
    if not route.dirty:
        route.dirty = 1
        push_ptr(&plane.dirty_routes, route)


cdef void tell_one(plane_t* plane, route_t* route, msg_t* msg, queue_t* queue) noexcept nogil:
    cdef uint32_t length = ROUTE_HEAD + msg.subject_len
    cdef char* w
    if queue != NULL:
        length += 2 + queue.name_len
    w = buf_reserve(&route.buf, length)
    route_head(w, length, ROUTE_INTEREST, 0 if queue == NULL else 1, msg)
    w += ROUTE_HEAD
    if queue != NULL:
        memcpy(w, &queue.name_len, 2)
        memcpy(w + 2, queue.name, queue.name_len)
        w += 2 + queue.name_len
    memcpy(w, msg.subject, msg.subject_len)
    route.buf.end += length
    mark_route(plane, route)


cdef void tell_interest(plane_t* plane, route_t* only, node_t* node, queue_t* queue, uint32_t weight) noexcept nogil:
    """Tell all peers (or one) how many local members a subject, or a queue group on it, has now; 0 ends the interest."""
    cdef char subject[8192]
    cdef msg_t msg
    cdef uint32_t i
    if plane.routes.count == 0:
        return
    msg.subject = subject
    msg.subject_len = <uint16_t>node_subject(plane, node, subject, sizeof(subject))
    msg.shown_len = 0
    msg.reply_len = 0
    msg.hdr_len = weight
    msg.size = weight
    if msg.subject_len == 0:
        return
    if only != NULL:
        tell_one(plane, only, &msg, queue)
        return
    for i in range(plane.routes.count):
        tell_one(plane, <route_t*>plane.routes.items[i], &msg, queue)


cdef void send_to_route(plane_t* plane, route_t* route, msg_t* msg, pick_t* picks, uint32_t pick_count) noexcept nogil:
    cdef uint32_t i, queues = 0
    cdef uint16_t shown_len = msg.shown_len
    cdef uint32_t length
    cdef char* w
    cdef bint same = msg.shown == msg.subject
    if same:
        msg.shown_len = 0
    length = ROUTE_HEAD + msg.subject_len + msg.shown_len + msg.reply_len + msg.size
    for i in range(pick_count):
        if picks[i].route == route:
            queues += 1
            length += 2 + picks[i].group.name_len
    w = buf_reserve(&route.buf, length)
    route_head(w, length, ROUTE_MESSAGE, <uint8_t>queues, msg)
    w += ROUTE_HEAD
    for i in range(pick_count):
        if picks[i].route == route:
            memcpy(w, &picks[i].group.name_len, 2)
            memcpy(w + 2, picks[i].group.name, picks[i].group.name_len)
            w += 2 + picks[i].group.name_len
    memcpy(w, msg.subject, msg.subject_len)
    w += msg.subject_len
    memcpy(w, msg.shown, msg.shown_len)
    w += msg.shown_len
    memcpy(w, msg.reply, msg.reply_len)
    memcpy(w + msg.reply_len, msg.data, msg.size)
    msg.shown_len = shown_len
    route.buf.end += length
    route.out_msgs += 1
    mark_route(plane, route)


# -- local receivers

cdef void capture(plane_t* plane, sink_t* sink, conn_t* origin, msg_t* msg) noexcept nogil:
    """Append one capture record: u32 length | u32 header | u32 payload | u16 subject | u16 reply | u32 origin | bytes."""
    cdef uint32_t payload_len = msg.size - msg.hdr_len
    cdef uint32_t cid = 0 if origin == NULL else <uint32_t>origin.cid
    cdef uint32_t length = CAPTURE_HEAD + msg.subject_len + msg.reply_len + msg.size
    cdef char* w = buf_reserve(&sink.buf, length)
    memcpy(w, &length, 4)
    memcpy(w + 4, &msg.hdr_len, 4)
    memcpy(w + 8, &payload_len, 4)
    memcpy(w + 12, &msg.subject_len, 2)
    memcpy(w + 14, &msg.reply_len, 2)
    memcpy(w + 16, &cid, 4)
    w += CAPTURE_HEAD
    memcpy(w, msg.subject, msg.subject_len)
    w += msg.subject_len
    memcpy(w, msg.reply, msg.reply_len)
    memcpy(w + msg.reply_len, msg.data, msg.size)
    sink.buf.end += length
    sink.msgs += 1
    if not sink.dirty:
        sink.dirty = 1
        push_ptr(&plane.dirty_sinks, sink)


cdef uint32_t give(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg) noexcept nogil:
    """Deliver to one local subscription; 1 when it took the message."""
    if sub.closed:
        return 0
    if sub.kind == SUB_SINK:
        capture(plane, sub.of.sink, origin, msg)
        return 1
    if sub.of.conn.state != CONN_OPEN or (origin == sub.of.conn and not origin.echo):
        return 0
    sub.delivered += 1
    emit_message(plane, sub, msg)
    if sub.max_msgs and sub.delivered >= sub.max_msgs:
        drop_subscription(plane, sub)
    return 1


cdef sub_t* local_sink(match_t* match, group_t* group) noexcept nogil:
    cdef uint32_t i
    for i in range(group.count):
        if match.members[group.first + i].kind == SUB_SINK and not match.members[group.first + i].closed:
            return match.members[group.first + i]
    return NULL


cdef uint32_t give_group(
    plane_t* plane, match_t* match, group_t* group, conn_t* origin, msg_t* msg, bint local, route_t** chosen
) noexcept nogil:
    """Give the message to one member; a peer that was chosen is returned in `chosen`."""
    cdef sub_t* sub = local_sink(match, group)
    cdef uint64_t total = 0, at
    cdef uint32_t i, start = 0
    if sub != NULL:
        return give(plane, sub, origin, msg)
    for i in range(group.count):
        sub = match.members[group.first + i]
        if sub.kind != SUB_ROUTE:
            total += 1
        elif not local:
            total += sub.weight
    if total == 0:
        return 0
    at = next_random(plane) % total
    for i in range(group.count):
        sub = match.members[group.first + i]
        if sub.kind == SUB_ROUTE and local:
            continue
        start = i
        if at < (sub.weight if sub.kind == SUB_ROUTE else 1):
            break
        at -= sub.weight if sub.kind == SUB_ROUTE else 1
    for i in range(group.count):
        sub = match.members[group.first + (start + i) % group.count]
        if sub.kind == SUB_ROUTE:
            if not local and not sub.closed:
                chosen[0] = sub.of.route
                return 1
        elif give(plane, sub, origin, msg):
            return 1
    return 0


# -- one message

cdef uint32_t deliver(plane_t* plane, conn_t* origin, msg_t* msg, match_t* match) noexcept nogil:
    """Deliver a message that entered at this node; returns the number of receivers (a peer counts once)."""
    cdef uint32_t i, taken = 0, pick_count = 0
    cdef bint routed = False
    cdef sub_t* sub
    cdef route_t* chosen
    cdef pick_t picks[PICKS_MAX]
    plane.stamp += 1
    for i in range(match.count):
        sub = plain_of(match)[i]
        if sub.kind == SUB_ROUTE:
            if not sub.closed and sub.of.route.stamp != plane.stamp:
                sub.of.route.stamp = plane.stamp
                routed = True
        else:
            taken += give(plane, sub, origin, msg)
    for i in range(match.group_count):
        chosen = NULL
        taken += give_group(plane, match, &match.groups[i], origin, msg, pick_count == PICKS_MAX, &chosen)
        if chosen != NULL:
            picks[pick_count].route = chosen
            picks[pick_count].group = &match.groups[i]
            pick_count += 1
            taken -= 1
            chosen.stamp = plane.stamp
            routed = True
    if routed:
        for i in range(plane.routes.count):
            if (<route_t*>plane.routes.items[i]).stamp == plane.stamp:
                send_to_route(plane, <route_t*>plane.routes.items[i], msg, picks, pick_count)
                taken += 1
    return taken


cdef bint named(const char* queues, uint32_t queue_count, group_t* group) noexcept nogil:
    cdef uint16_t n
    cdef uint32_t i
    for i in range(queue_count):
        memcpy(&n, queues, 2)
        if n == group.name_len and memcmp(queues + 2, group.name, n) == 0:
            return True
        queues += 2 + n
    return False


cdef void deliver_from_route(plane_t* plane, msg_t* msg, const char* queues, uint32_t queue_count) noexcept nogil:
    """Deliver a peer's message here: to all plain subscriptions and to one local member of each queue it names."""
    cdef match_t* match = match_for(plane, msg.subject, msg.subject_len)
    cdef route_t* chosen = NULL
    cdef uint32_t i
    for i in range(match.count):
        if plain_of(match)[i].kind != SUB_ROUTE:
            give(plane, plain_of(match)[i], NULL, msg)
    for i in range(match.group_count):
        if named(queues, queue_count, &match.groups[i]):
            give_group(plane, match, &match.groups[i], NULL, msg, True, &chosen)


cdef bint answer_no_responders(plane_t* plane, conn_t* conn, msg_t* msg) noexcept nogil:
    """Tell the requester that nobody listens: a 503 to its own subscription on the reply subject (2.12: with the subject)."""
    cdef match_t* match
    cdef sub_t* sub
    cdef msg_t status
    cdef uint32_t i
    cdef char text[8192]
    cdef uint32_t n
    cdef bint told = False
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
    status.data = text
    status.hdr_len = status.size = n
    match = sublist_match_once(plane, msg.reply, msg.reply_len)
    for i in range(match.count):
        sub = plain_of(match)[i]
        if sub.kind == SUB_CLIENT and sub.of.conn == conn and not sub.closed:
            sub.delivered += 1
            emit_message(plane, sub, &status)
            told = True
            if sub.max_msgs and sub.delivered >= sub.max_msgs:
                drop_subscription(plane, sub)
    return told
