"""Delivers a message to all its receivers.

Plain subscriptions all get it; of each queue group one member does, chosen at random by weight, a sink on this node
first (that is how a direct get is served by the local replica). A peer gets one copy however many of its clients are
interested, with the names of the queue groups for which it was chosen; what comes from a peer is only delivered here,
so a full mesh needs no loop detection. Everything happens within one account, that of the publisher; a receiver in another
has a shadow there (_shadows.pyx), and what goes to an imported service does so afterwards (_crossings.pyx).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._accounts cimport tell_account
from jetraft.api.plane._answers cimport note_reply
from jetraft.api.plane._leaf_out cimport may_be_asked, name_origin, note_leaf, pick_leaf, send_to_leafs
from jetraft.api.plane._permissions cimport may_receive
from jetraft.api.plane._request_info cimport copy_without_info
from jetraft.api.plane._route_record cimport ROUTE_ACCOUNT_INTEREST, ROUTE_ACCOUNT_MESSAGE, ROUTE_HEAD_BYTES
from jetraft.api.plane._route_record cimport ROUTE_INTEREST, ROUTE_MESSAGE, ROUTE_ORIGIN_SHIFT, RouteHead
from jetraft.api.plane._route_permissions cimport is_kept_back, may_import
from jetraft.api.plane._shadows cimport shown_by
from jetraft.api.plane._sids cimport bucket_of
from jetraft.api.plane._sublist cimport sublist_match, sublist_match_once
from jetraft.api.plane._tree cimport node_subject, sublist_remove
from jetraft.api.plane._types cimport (
    CONN_OPEN,
    SUB_CLIENT,
    SUB_LEAF,
    SUB_LEAF_SHADOW,
    SINK_SERVICE,
    SUB_ROUTE,
    SUB_SERVICE,
    SUB_SHADOW,
    SUB_SINK,
    acct_t,
    conn_t,
    count_sent,
    group_t,
    match_t,
    msg_t,
    next_random,
    node_t,
    plain_of,
    plane_t,
    queue_t,
    reaches,
    route_t,
    shadow_of,
    sink_t,
    sub_t,
)
from jetraft.api.plane._trace_asked cimport memmem
from jetraft.api.plane._writer cimport buf_reserve, emit_message, emit_text, push_ptr
from jetraft.cluster.capture._capture cimport capture_bytes, write_capture_head

cdef enum:
    NUMBER_BYTES = 4    # of an account, behind the head of a route record
    WORK_OF_HEADERS = 3     # of a message with headers, beside 1: a stream may have to judge it by itself
    RECEIVERS_PER_WORK = 16     # of a message; few cost nothing beside the message itself
    MEMBERS_PER_WORK = 64       # of a queue group: one of them is drawn
    WORK_OF_PULL = 19       # of a request for messages, which are chosen and sent one pull at a time
    WORK_OF_REQUEST = 5     # of another one to the API
    WORK_OF_ACK = 3         # of one that says more than that a message was handled: 6 us
    WORK_OF_OUR_HEADERS = 15    # of one with headers of JetStream: a stream judges it by itself, in 8 to 60 us
    WORK_OF_PATTERN = 1023      # of one that names a pattern: a search for it takes 0.7 ms among 20,000 subjects


cdef match_t* match_for(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil:
    """Look a subject up; inboxes and acks, which do not come again, spend no cache entry."""
    if n > 7 and (memcmp(subject, b"_INBOX.", 7) == 0 or (n > 8 and memcmp(subject, b"$JS.ACK.", 8) == 0)):
        return sublist_match_once(plane, acct, subject, n)
    return sublist_match(plane, acct, subject, n)


# -- the end of subscriptions

cdef void unlink_sid(sub_t* sub) noexcept nogil:
    """Remove a client's subscription from its connection's table."""
    cdef conn_t* conn = sub.of.conn
    cdef sub_t** link = &conn.buckets[bucket_of(conn, sub.sid_hash)]
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
    """End one subscription and its shadows: tell peers, and free the structures at the end of the turn."""
    cdef sub_t* shadow
    if sub.closed:
        return
    sub.closed = 1
    if sub.kind == SUB_CLIENT or sub.kind == SUB_LEAF:
        unlink_sid(sub)
    elif sub.kind == SUB_SINK or sub.kind == SUB_ROUTE:
        if plane.told_next == sub:
            plane.told_next = sub.next_of_owner
        unlink_owner(sub)
    shadow = sub.shadows
    while shadow != NULL:
        drop_subscription(plane, shadow)
        shadow = shadow_of(shadow).next
    if sub.kind != SUB_ROUTE and not sub.local_only:
        if sub.queue != NULL:
            tell_interest(plane, sub.acct, NULL, sub.node, sub.queue, sub.queue.local_count - sub.weight)
        elif sub.node.local_count == 1:
            tell_interest(plane, sub.acct, NULL, sub.node, NULL, 0)
    sublist_remove(plane, sub)
    sub.prev_of_owner = plane.dead_subs
    plane.dead_subs = sub


# -- peers

cdef inline uint32_t head_bytes(acct_t* acct) noexcept nogil:
    return ROUTE_HEAD_BYTES if acct.id == 0 else ROUTE_HEAD_BYTES + NUMBER_BYTES


cdef char* route_head(char* w, acct_t* acct, uint32_t length, uint8_t kind, uint8_t queues, msg_t* msg) noexcept nogil:
    """Write the head, and the account's number if it has one; returns where the rest begins."""
    cdef RouteHead head
    head.length = length
    head.kind = kind
    head.queue_count = queues
    head.shown_len = msg.shown_len
    head.hdr_len = msg.hdr_len
    head.payload_len = msg.size - msg.hdr_len
    head.subject_len = msg.subject_len
    head.reply_len = msg.reply_len
    memcpy(w, &head, ROUTE_HEAD_BYTES)
    if acct.id != 0:
        memcpy(w + ROUTE_HEAD_BYTES, &acct.slot, NUMBER_BYTES)
    return w + head_bytes(acct)


cdef inline void mark_route(plane_t* plane, route_t* route) noexcept nogil:
    if not route.dirty:
        route.dirty = 1
        push_ptr(&plane.dirty_routes, route)


cdef void tell_one(plane_t* plane, acct_t* acct, route_t* route, msg_t* msg, queue_t* queue) noexcept nogil:
    cdef uint32_t length = head_bytes(acct) + msg.subject_len
    cdef uint8_t kind = ROUTE_INTEREST
    cdef char* w
    if acct.id != 0:
        if not route.knows_accounts:
            return
        tell_account(plane, route, acct)
        kind = ROUTE_ACCOUNT_INTEREST
    if queue != NULL:
        length += 2 + queue.name_len
    w = route_head(buf_reserve(&route.buf, length), acct, length, kind, 0 if queue == NULL else 1, msg)
    if queue != NULL:
        memcpy(w, &queue.name_len, 2)
        memcpy(w + 2, queue.name, queue.name_len)
        w += 2 + queue.name_len
    memcpy(w, msg.subject, msg.subject_len)
    route.buf.end += length
    mark_route(plane, route)


cdef void tell_interest(
    plane_t* plane, acct_t* acct, route_t* only, node_t* node, queue_t* queue, uint32_t weight
) noexcept nogil:
    """Tell all peers (or one) how many local members a subject, or a queue group on it, has now; 0 ends the interest."""
    cdef char subject[8192]
    cdef msg_t msg
    cdef uint32_t i
    if plane.routes.count == 0:
        return
    msg.subject = subject
    msg.subject_len = <uint16_t>node_subject(node, subject, sizeof(subject))
    msg.shown_len = 0
    msg.reply_len = 0
    msg.hdr_len = weight
    msg.size = weight
    if msg.subject_len == 0:
        return
    if plane.route_perms != NULL and not may_import(plane, msg.subject, msg.subject_len):
        if not plane.retelling:
            return
        msg.hdr_len = msg.size = 0
    if only != NULL:
        tell_one(plane, acct, only, &msg, queue)
        return
    for i in range(plane.routes.count):
        tell_one(plane, acct, <route_t*>plane.routes.items[i], &msg, queue)


cdef void send_to_route(
    plane_t* plane, acct_t* acct, route_t* route, msg_t* msg, pick_t* picks, uint32_t pick_count
) noexcept nogil:
    cdef uint32_t i, queues = 0
    cdef uint16_t shown_len = msg.shown_len
    cdef uint32_t length
    cdef char* w
    cdef uint8_t kind = ROUTE_MESSAGE
    cdef bint same = msg.shown == msg.subject
    if acct.id != 0:
        tell_account(plane, route, acct)
        kind = ROUTE_ACCOUNT_MESSAGE
    if route.knows_origins:
        kind |= msg.origin << ROUTE_ORIGIN_SHIFT
    elif not may_be_asked(msg):
        return
    if same:
        msg.shown_len = 0
    length = head_bytes(acct) + msg.subject_len + msg.shown_len + msg.reply_len + msg.size
    for i in range(pick_count):
        if picks[i].route == route:
            queues += 1
            length += 2 + picks[i].group.name_len
    w = route_head(buf_reserve(&route.buf, length), acct, length, kind, <uint8_t>queues, msg)
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
    if route.pause_ns > plane.route_pause_ns:
        plane.route_pause_ns = route.pause_ns
    if route.buf.end > plane.route_turn_bytes:
        plane.route_full = plane.route_turn_bytes != 0
    count_sent(plane, route, acct, msg.size)
    mark_route(plane, route)


# -- local receivers

cdef bint capture(plane_t* plane, sink_t* sink, uint32_t client, msg_t* msg) noexcept nogil:
    """Append a capture record to a sink's batch; False when the message does not reach it."""
    cdef const char* subject = msg.shown if sink.shown else msg.subject
    cdef uint16_t subject_len = msg.shown_len if sink.shown else msg.subject_len
    cdef uint32_t length = capture_bytes(subject_len, msg.reply_len, msg.size)
    cdef char* head
    cdef char* w
    cdef uint32_t kept
    if not reaches(sink.admits, msg.origin):
        return False
    head = buf_reserve(&sink.buf, length)
    w = write_capture_head(head, subject_len, msg.reply_len, msg.hdr_len, msg.size - msg.hdr_len, client)
    memcpy(w, subject, subject_len)
    w += subject_len
    memcpy(w, msg.reply, msg.reply_len)
    w += msg.reply_len
    if msg.hdr_len == 0 or plane.exports == NULL:
        memcpy(w, msg.data, msg.size)
    else:       # who asked is not stored
        kept = <uint32_t>copy_without_info(msg.data, msg.hdr_len, w, False)
        memcpy(w + kept, msg.data + msg.hdr_len, msg.size - msg.hdr_len)
        length -= msg.hdr_len - kept
        write_capture_head(head, subject_len, msg.reply_len, kept, msg.size - msg.hdr_len, client)
    sink.buf.end += length
    sink.msgs += 1
    if not sink.dirty:
        sink.dirty = 1
        push_ptr(&plane.dirty_sinks, sink)
    return True


cdef uint32_t give(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg) noexcept nogil:
    """Deliver to one local subscription; returns 1 if it received the message, else 0."""
    if sub.closed:
        return 0
    if sub.kind != SUB_CLIENT:
        return give_elsewhere(plane, sub, origin, msg)
    if sub.of.conn.state != CONN_OPEN or (origin == sub.of.conn and not origin.echo):
        return 0
    if sub.of.conn.guard and not may_receive(plane, sub, msg):
        return 0
    sub.delivered += 1
    emit_message(plane, sub, msg)
    if sub.max_msgs and sub.delivered >= sub.max_msgs:
        drop_subscription(plane, sub)
    return 1


cdef bint names_pattern(msg_t* msg) noexcept nogil:
    """Whether the subject whose last sequence a message expects may have a wildcard."""
    cdef const char* end = msg.data + msg.hdr_len
    cdef const char* at = <const char*>memmem(msg.data, msg.hdr_len, b"-Subject-Sequence-Subject:", 26)
    while at != NULL and at < end and at[0] != c"\r":
        if at[0] == c"*" or at[0] == c">":
            return True
        at += 1
    return False


cdef inline bint says_more(msg_t* msg) noexcept nogil:
    """Whether this is an ack that is not handled in a run: it is negative, has a delay, or is a sign of progress."""
    if msg.size == 0 or msg.subject_len < 8 or memcmp(msg.subject, b"$JS.ACK.", 8) != 0:
        return False
    return msg.size != 4 or memcmp(msg.data, b"+ACK", 4) != 0


cdef inline uint32_t work_of(msg_t* msg) noexcept nogil:
    """What a message costs a receiver in Python; 1 is what one costs that is handled in a run."""
    if msg.subject_len > 8 and memcmp(msg.subject, b"$JS.API.", 8) == 0:
        if msg.subject_len > 26 and memcmp(msg.subject + 8, b"CONSUMER.MSG.NEXT.", 18) == 0:
            return 1 + WORK_OF_PULL
        return 1 + WORK_OF_REQUEST
    if msg.hdr_len == 0:
        return 1 + WORK_OF_ACK if says_more(msg) else 1
    if memmem(msg.data, msg.hdr_len, b"\nNats-", 6) == NULL:
        return 1 + WORK_OF_HEADERS
    if names_pattern(msg):
        return 1 + WORK_OF_PATTERN
    return 1 + WORK_OF_OUR_HEADERS


cdef uint32_t give_elsewhere(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg) noexcept nogil:
    """Deliver to a sink, or to the owner of a shadow; leaf nodes, and then other accounts, wait until all here have it."""
    if sub.kind == SUB_SINK:
        plane.work += work_of(msg)
        return capture(plane, sub.of.sink, 0 if origin == NULL else <uint32_t>origin.cid, msg)
    if sub.kind == SUB_SHADOW:
        return give_shadow(plane, sub, origin, msg)
    if sub.kind == SUB_LEAF:
        return note_leaf(plane, sub, NULL, origin, msg)
    if sub.kind == SUB_LEAF_SHADOW:
        return note_leaf(plane, sub.of.main, shadow_of(sub).by.shown, origin, msg)
    if sub.kind != SUB_SERVICE or reaches(plane.admits[SINK_SERVICE], msg.origin):
        push_ptr(&plane.crossings, sub)
    return 0


cdef uint32_t give_shadow(plane_t* plane, sub_t* shadow, conn_t* origin, msg_t* msg) noexcept nogil:
    """Deliver to the owner of a shadow, who sees the subject as its account imports it."""
    cdef msg_t here = msg[0]
    return give(plane, shadow.of.main, origin, &here) if shown_by(plane, shadow_of(shadow).by, &here) else 0


cdef sub_t* local_sink(match_t* match, group_t* group) noexcept nogil:
    cdef uint32_t i
    for i in range(group.count):
        if match.members[group.first + i].kind == SUB_SINK and not match.members[group.first + i].closed:
            return match.members[group.first + i]
    return NULL


cdef bint draw_member(plane_t* plane, match_t* match, group_t* group, bint local, uint32_t* start) noexcept nogil:
    """Draw one of the clients and, unless `local`, peers of a queue group by their weights; False when it has none."""
    cdef sub_t* sub
    cdef uint64_t total = 0, at
    cdef uint32_t i
    for i in range(group.count):
        sub = match.members[group.first + i]
        if sub.kind < SUB_ROUTE or (sub.kind == SUB_ROUTE and not local):
            total += sub.weight
    if total == 0:
        return False
    at = next_random(plane) % total
    for i in range(group.count):
        sub = match.members[group.first + i]
        if sub.kind > SUB_ROUTE or (sub.kind == SUB_ROUTE and local):
            continue
        start[0] = i
        if at < sub.weight:
            break
        at -= sub.weight
    return True


cdef uint32_t give_group(
    plane_t* plane, match_t* match, group_t* group, conn_t* origin, msg_t* msg, bint local, route_t** chosen
) noexcept nogil:
    """Deliver to one member of a queue group; a peer that was chosen is returned in `chosen`."""
    cdef sub_t* sub = local_sink(match, group)
    cdef uint32_t i, start = 0
    if sub != NULL:
        return give(plane, sub, origin, msg)
    plane.work += group.count // MEMBERS_PER_WORK
    if not draw_member(plane, match, group, local, &start):
        return pick_leaf(plane, match, group, origin, msg, next_random(plane), local)
    for i in range(group.count):
        sub = match.members[group.first + (start + i) % group.count]
        if sub.kind == SUB_ROUTE:
            if not local and not sub.closed and not sub.of.route.gone and not (plane.route_guard and is_kept_back(plane, msg)):
                chosen[0] = sub.of.route
                return 1
        elif sub.kind < SUB_ROUTE and give(plane, sub, origin, msg):
            return 1
    return pick_leaf(plane, match, group, origin, msg, next_random(plane), local)


# -- one message

cdef uint32_t send_to_routes(
    plane_t* plane, acct_t* acct, conn_t* origin, msg_t* msg, pick_t* picks, uint32_t pick_count
) noexcept nogil:
    """Send to the peers that have the stamp of the message; returns their number. `picks` has room for one more.

    They are told from the cluster of which leaf node the message came, since it must not go back there.
    """
    cdef uint32_t i, sent = 0
    cdef bint is_marked = name_origin(plane, origin)
    cdef route_t* route
    note_reply(plane, acct, origin, msg)
    picks[pick_count].group = &plane.origin_mark    # the last, where it counts
    for i in range(plane.routes.count):
        route = <route_t*>plane.routes.items[i]
        if route.stamp == plane.stamp:
            picks[pick_count].route = route
            send_to_route(plane, acct, route, msg, picks, pick_count + is_marked)
            sent += 1
    return sent


cdef uint32_t deliver(plane_t* plane, acct_t* acct, conn_t* origin, msg_t* msg, match_t* match) noexcept nogil:
    """Deliver a message of an account that entered at this node; returns the number of receivers (a peer counts once)."""
    cdef uint32_t i, taken = 0, pick_count = 0, first = plane.crossings.count
    cdef bint routed = False
    cdef sub_t* sub
    cdef route_t* chosen
    cdef pick_t picks[PICKS_MAX + 1]
    plane.stamp += 1
    plane.work += (match.count + match.group_count) // RECEIVERS_PER_WORK
    for i in range(match.count):
        sub = plain_of(match)[i]
        if sub.kind == SUB_ROUTE:
            if not sub.closed and sub.of.route.stamp != plane.stamp and not (plane.route_guard and is_kept_back(plane, msg)):
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
        taken += send_to_routes(plane, acct, origin, msg, picks, pick_count)
    if plane.leafs_due.count:
        send_to_leafs(plane, msg)
    if plane.crossings.count != first:
        taken += plane.cross(plane, origin, msg, first)
    return taken
