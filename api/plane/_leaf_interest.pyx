"""Tells leaf nodes and hubs the interest of their account: LS+ and LS-, one for each subject and each queue on it.

A leaf node hears of all of this cluster's interest, and of other leaf nodes' unless it is isolated. A hub hears of this
server's own clients and leaf nodes; the other nodes of this cluster have connections of their own. No peer hears of what
it told, or of what another server of its cluster told. Nothing is kept about what was told: that follows from the
subscriptions that there are.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._grants cimport look_up
from jetraft.api.plane._leaf_out cimport same_side
from jetraft.api.plane._text cimport jr_utoa
from jetraft.api.plane._tree cimport node_subject
from jetraft.api.plane._types cimport (
    CONN_OPEN,
    SUB_LEAF,
    SUB_LEAF_SHADOW,
    SUB_ROUTE,
    SUB_SERVICE,
    leaf_t,
    node_t,
    perms_t,
    plain_subs,
    plane_t,
    queue_t,
    shadow_of,
    sub_t,
    text_t,
    token_of,
)
from jetraft.api.plane._writer cimport buf_reserve, conn_wrote, push_ptr

cdef enum:
    SUBJECT_MAX = 8192          # a control line is shorter
    TOLD_AT_ONCE_MAX = 64       # members of a queue group whose weight is added up for each one that comes or goes
    LINE_OVERHEAD = 32          # verb, spaces, a weight of ten digits, line end


cdef bint is_loop_check(node_t* node) noexcept nogil:
    """Whether a subscription is to `$LDS.x`, which goes everywhere so that it comes back in a loop."""
    while node.parent.parent != NULL:
        node = node.parent
    return node.token_len == 4 and memcmp(token_of(node), b"$LDS", 4) == 0


cdef bint counts(leaf_t* leaf, sub_t* sub) noexcept nogil:
    """Whether a server is told of this subscription."""
    if sub.kind == SUB_ROUTE:
        return not leaf.spoke
    if sub.kind == SUB_SERVICE:
        return True
    if sub.kind == SUB_LEAF_SHADOW:
        sub = sub.of.main
    if sub.kind != SUB_LEAF:
        return not sub.local_only
    if is_loop_check(sub.node):
        return sub.of.conn.leaf != leaf
    if same_side(leaf, sub.of.conn):
        return False
    return not leaf.isolated and not (leaf.spoke and sub.of.conn.leaf.spoke)


cdef bint may_import(perms_t* perms, const char* subject, Py_ssize_t n) noexcept nogil:
    """Whether messages of a subject may come from the server at the other end."""
    cdef text_t queue
    if perms == NULL:
        return True
    queue.p = NULL
    queue.n = 0
    if perms.publish_allow != NULL and not look_up(perms.publish_allow, subject, n, 0, queue).plain:
        return False
    return perms.publish_deny == NULL or not look_up(perms.publish_deny, subject, n, 0, queue).plain


cdef void write_interest(plane_t* plane, leaf_t* leaf, node_t* node, queue_t* queue, uint64_t weight) noexcept nogil:
    """LS+, or LS- where nothing is left."""
    cdef char subject[SUBJECT_MAX]
    cdef Py_ssize_t n = node_subject(node, subject, sizeof(subject))
    cdef uint16_t queue_len = 0 if queue == NULL else queue.name_len
    cdef char* w
    cdef char* start
    if n == 0 or not may_import(leaf.conn.perms, subject, n):
        return
    start = w = buf_reserve(&leaf.conn.out, n + queue_len + LINE_OVERHEAD)
    memcpy(w, b"LS+ " if weight else b"LS- ", 4)
    memcpy(w + 4, subject, n)
    w += 4 + n
    if queue_len:
        w[0] = c" "
        memcpy(w + 1, queue.name, queue_len)
        w += 1 + queue_len
        if weight:
            w[0] = c" "
            w += 1 + jr_utoa(w + 1, weight)
    memcpy(w, b"\r\n", 2)
    leaf.conn.out.end += w + 2 - start
    conn_wrote(plane, leaf.conn)


cdef uint64_t weight_of(leaf_t* leaf, queue_t* queue, sub_t* but) noexcept nogil:
    """The members of a queue that a server is told of, all but one."""
    cdef uint64_t weight = 0
    cdef uint32_t i
    cdef sub_t* sub
    for i in range(queue.count):
        sub = queue.members[i]
        if sub != but and not sub.closed and counts(leaf, sub):
            weight += sub.weight
    return weight


cdef bint has_others(leaf_t* leaf, node_t* node, sub_t* but) noexcept nogil:
    """Whether there is another plain subscription of which a server is told."""
    cdef uint32_t i
    cdef sub_t* sub
    for i in range(node.count):
        sub = plain_subs(node)[i]
        if sub != but and not sub.closed and counts(leaf, sub):
            return True
    return False


cdef void tell_leafs(plane_t* plane, sub_t* sub, bint present) noexcept nogil:
    """A subscription came, has another weight, or goes: tell those for whom that makes a difference."""
    cdef leaf_t* leaf = sub.acct.leafs
    if sub.queue != NULL and sub.queue.count > TOLD_AT_ONCE_MAX:
        if not sub.queue.untold:
            sub.queue.untold = 1
            push_ptr(&plane.untold_queues, sub.queue)
        return
    while leaf != NULL:
        if leaf.conn.state == CONN_OPEN and counts(leaf, sub):
            if sub.queue != NULL:
                write_interest(
                    plane, leaf, sub.node, sub.queue, weight_of(leaf, sub.queue, sub) + (sub.weight if present else 0)
                )
            elif (present and plane.tellings) or not has_others(leaf, sub.node, sub):
                write_interest(plane, leaf, sub.node, NULL, present)
        leaf = leaf.next


cdef void tell_queues(plane_t* plane) noexcept nogil:
    """Tell the weights of the large queue groups that have others in this turn: to add one up takes time."""
    cdef uint32_t i
    cdef queue_t* queue
    cdef leaf_t* leaf
    for i in range(plane.untold_queues.count):
        queue = <queue_t*>plane.untold_queues.items[i]
        if queue == NULL:
            continue
        queue.untold = 0
        leaf = queue.members[0].acct.leafs
        while leaf != NULL:
            if leaf.conn.state == CONN_OPEN:
                write_interest(plane, leaf, queue.node, queue, weight_of(leaf, queue, NULL))
            leaf = leaf.next
    plane.untold_queues.count = 0


cdef void announce_to_leaf(plane_t* plane, leaf_t* leaf, sub_t* sub) noexcept nogil:
    """Tell a connection that begins of a subject, or of a queue on it, once per full announcement."""
    if sub.acct != leaf.conn.acct or sub.closed or not counts(leaf, sub):
        return
    if sub.queue != NULL:
        if sub.queue.announced != plane.announcement:
            sub.queue.announced = plane.announcement
            write_interest(plane, leaf, sub.node, sub.queue, weight_of(leaf, sub.queue, NULL))
    elif sub.node.announced != plane.announcement:
        sub.node.announced = plane.announcement
        write_interest(plane, leaf, sub.node, NULL, 1)


cdef uint32_t announce_with_shadows(plane_t* plane, leaf_t* leaf, sub_t* sub) noexcept nogil:
    """The same for a subscription and its shadows; returns their number."""
    cdef uint32_t count = 1
    announce_to_leaf(plane, leaf, sub)
    sub = sub.shadows
    while sub != NULL:
        announce_to_leaf(plane, leaf, sub)
        sub = shadow_of(sub).next
        count += 1
    return count
