"""Delivers a message that came from a leaf node or a hub, in the account of the connection.

Plain subscriptions all get it, and one member of each queue group that it names: the server at the other end chose this
one for them. What a leaf node sends goes to the other nodes of this cluster as well; what a hub sends does not, because
they have connections of their own.

A subject of this server's domain, `$JS.<domain>.API.x`, is another name of `$JS.API.x`, and an account may map subjects.
The sender does not know the queue groups of the subject that its own stands for, so all of them are served.
"""

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._deliver cimport PICKS_MAX, give, give_group, match_for, pick_t, send_to_routes
from jetraft.api.plane._grants cimport EMPTY_TOKENS, look_up
from jetraft.api.plane._leaf_out cimport send_to_leafs
from jetraft.api.plane._mappings cimport map_published
from jetraft.api.plane._share cimport WORK_OF_CALL
from jetraft.api.plane._trace_asked cimport asks_for_trace
from jetraft.api.plane._types cimport (
    FROM_DELIVERY,
    SUB_ROUTE,
    TRACE_DROPPED,
    acct_t,
    conn_t,
    group_t,
    match_t,
    msg_t,
    perms_t,
    plain_of,
    plane_t,
    route_t,
    sub_t,
    text_t,
)

cdef enum:
    ACK_DOTS = 8            # of `$JS.ACK.stream.consumer.1.2.3.4.5`, behind which a subject may stand
    HEAD = 4                # of `$JS.`
    TAIL = 5                # of `.API.`
    API = 8                 # of `$JS.API.`
    DENIED_PUBLISH = 7      # LeafText of _leaf_parser.pxd


cdef bint may_enter(perms_t* perms, msg_t* msg) noexcept nogil:
    cdef text_t queue
    if perms == NULL:
        return True
    queue.p = NULL
    queue.n = 0
    if perms.publish_allow != NULL and not look_up(perms.publish_allow, msg.subject, msg.subject_len, 0, queue).plain:
        return False
    return perms.publish_deny == NULL or not look_up(
        perms.publish_deny, msg.subject, msg.subject_len, EMPTY_TOKENS, queue
    ).plain


cdef void find_shown(msg_t* msg) noexcept nogil:
    """The reply subject of a stored message has behind it, after an @, the subject that receivers see."""
    cdef uint16_t i
    cdef int dots = 0
    if msg.reply_len < 8 or memcmp(msg.reply, b"$JS.ACK.", 8) != 0:
        return
    for i in range(msg.reply_len):
        if msg.reply[i] == c".":
            dots += 1
        elif msg.reply[i] == c"@" and dots >= ACK_DOTS and i + 1 < msg.reply_len:
            msg.shown = msg.reply + i + 1
            msg.shown_len = <uint16_t>(msg.reply_len - i - 1)
            msg.reply_len = i
            msg.origin = FROM_DELIVERY
            return


cdef inline bint begins(const char* p, Py_ssize_t n, const char* word, Py_ssize_t length) noexcept nogil:
    return n >= length and memcmp(p, word, length) == 0


cdef bint is_of_jetstream(msg_t* msg) noexcept nogil:
    """Whether a message is of the spaces that every such connection denies: that is passed over."""
    cdef const char* s = msg.subject
    return begins(s, msg.subject_len, b"$JS.", 4) or begins(s, msg.subject_len, b"$KV.", 4) or begins(s, msg.subject_len, b"$OBJ.", 5)


cdef bint is_of_api(const char* p, Py_ssize_t n) noexcept nogil:
    """Whether what follows `$JS.<domain>.API.` follows `$JS.API.` as well: the list is nats-server's."""
    return (
        begins(p, n, b"STREAM.", 7) or begins(p, n, b"CONSUMER.", 9) or begins(p, n, b"DIRECT.", 7)
        or (n == 4 and begins(p, n, b"INFO", 4))
        or begins(p, n, b"META.", 5) or begins(p, n, b"SERVER.", 7) or begins(p, n, b"ACCOUNT.", 8)
    )


cdef bint map_domain(plane_t* plane, msg_t* msg) noexcept nogil:
    """Let a subject of this server's domain be the one that it stands for; False where it is none.

    The text is in the buffer of a receive and is not looked at again, so the end of the domain's name is overwritten.
    """
    cdef uint16_t head = HEAD + plane.domain_len + TAIL
    cdef const char* rest = msg.subject + head
    cdef uint16_t n = msg.subject_len - head
    if (
        msg.subject_len <= head
        or memcmp(msg.subject, b"$JS.", HEAD) != 0
        or memcmp(msg.subject + HEAD, plane.domain, plane.domain_len) != 0
        or memcmp(msg.subject + HEAD + plane.domain_len, b".API.", TAIL) != 0
    ):
        return False
    if is_of_api(rest, n):
        rest -= API
        n += API
        memcpy(<char*>rest, b"$JS.", HEAD)
    elif not begins(rest, n, b"$KV.", 4) and not begins(rest, n, b"$OBJ.", 5):
        return False
    msg.subject = msg.shown = rest
    msg.subject_len = msg.shown_len = n
    return True


cdef bint is_named(text_t* queues, int queue_count, group_t* group) noexcept nogil:
    cdef int i
    for i in range(queue_count):
        if queues[i].n == group.name_len and memcmp(queues[i].p, group.name, group.name_len) == 0:
            return True
    return False


cdef void deliver_from_leaf(plane_t* plane, conn_t* conn, msg_t* msg, text_t* queues, int queue_count) noexcept nogil:
    """Deliver to all plain subscriptions, and to the queue groups that are named."""
    cdef acct_t* acct = conn.acct
    cdef pick_t picks[PICKS_MAX + 1]
    cdef uint32_t i, pick_count = 0, first = plane.crossings.count
    cdef bint is_mapped, stays = conn.leaf.spoke
    cdef route_t* chosen
    cdef match_t* match
    cdef sub_t* sub
    conn.in_msgs += 1
    conn.in_bytes += msg.size
    plane.in_msgs += 1
    plane.in_bytes += msg.size
    acct.in_msgs += 1
    acct.in_bytes += msg.size
    if not may_enter(conn.perms, msg):
        if not conn.leaf.spoke and not is_of_jetstream(msg):
            plane.work += WORK_OF_CALL
            plane.on_leaf_text(plane, conn, DENIED_PUBLISH, msg.subject, msg.subject_len)
        return
    if msg.hdr_len and asks_for_trace(plane, msg) and plane.begin_trace(plane, conn, NULL, acct, msg) == TRACE_DROPPED:
        return
    find_shown(msg)
    is_mapped = False
    if conn.acct.mappings != NULL:
        is_mapped = map_published(plane, acct, msg)
        if msg.subject_len == 0:
            return
    if plane.domain_len and map_domain(plane, msg):
        is_mapped = True
        stays = False       # one node of this cluster has told the names of the domain: it asks the others
    plane.stamp += 1
    match = match_for(plane, acct, msg.subject, msg.subject_len)
    for i in range(match.count):
        sub = plain_of(match)[i]
        if sub.kind != SUB_ROUTE:
            give(plane, sub, conn, msg)
        elif not stays and not sub.closed:
            sub.of.route.stamp = plane.stamp
    for i in range(match.group_count):
        if not is_mapped and not is_named(queues, queue_count, &match.groups[i]):
            continue
        chosen = NULL
        give_group(plane, match, &match.groups[i], conn, msg, stays or pick_count == PICKS_MAX, &chosen)
        if chosen != NULL:
            picks[pick_count].route = chosen
            picks[pick_count].group = &match.groups[i]
            pick_count += 1
            chosen.stamp = plane.stamp
    send_to_routes(plane, acct, conn, msg, picks, pick_count)
    if plane.leafs_due.count:
        send_to_leafs(plane, msg)
    if plane.crossings.count != first:
        plane.stays = stays
        plane.cross(plane, conn, msg, first)
        plane.crossed = 0
        plane.stays = False
