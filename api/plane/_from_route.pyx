"""Delivers a message that came from a node of this cluster, which sends it to all others itself."""

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._answers cimport is_measured
from jetraft.api.plane._deliver cimport give, give_group, match_for
from jetraft.api.plane._leaf_out cimport read_origin, send_to_leafs
from jetraft.api.plane._types cimport (
    MEASURE_SERVED,
    SUB_LEAF,
    SUB_LEAF_SHADOW,
    SUB_ROUTE,
    SUB_SERVICE,
    acct_t,
    group_t,
    match_t,
    msg_t,
    plain_of,
    plane_t,
    route_t,
    sub_t,
)


cdef bint named(const char* queues, uint32_t queue_count, group_t* group) noexcept nogil:
    cdef uint16_t n
    cdef uint32_t i
    for i in range(queue_count):
        memcpy(&n, queues, 2)
        if n == group.name_len and memcmp(queues + 2, group.name, n) == 0:
            return True
        queues += 2 + n
    return False


cdef bint is_of_others(sub_t* sub) noexcept nogil:
    """Whether a subscription is not for what a node of this cluster sends.

    Not a peer's, as that node sends to it itself. Not a service, as it hands over what enters there. Not a hub's, as it has
    a connection of its own.
    """
    if sub.kind == SUB_ROUTE or sub.kind == SUB_SERVICE:
        return True
    return sub.local_only and (sub.kind == SUB_LEAF or sub.kind == SUB_LEAF_SHADOW)


cdef void deliver_from_route(
    plane_t* plane, acct_t* acct, msg_t* msg, const char* queues, uint32_t queue_count
) noexcept nogil:
    """Deliver a peer's message here: to all plain subscriptions and to one local member of each queue it names."""
    cdef match_t* match = match_for(plane, acct, msg.subject, msg.subject_len)
    cdef route_t* chosen = NULL
    cdef uint32_t i, first = plane.crossings.count
    if acct.measured and is_measured(msg.reply, msg.reply_len):
        plane.measure(plane, MEASURE_SERVED, 0, NULL, NULL, msg)
    if queue_count:
        read_origin(plane, queues, queue_count)
    for i in range(match.count):
        if not is_of_others(plain_of(match)[i]):
            give(plane, plain_of(match)[i], NULL, msg)
    for i in range(match.group_count):
        if named(queues, queue_count, &match.groups[i]):
            give_group(plane, match, &match.groups[i], NULL, msg, True, &chosen)
    if plane.leafs_due.count:
        send_to_leafs(plane, msg)
    if plane.crossings.count != first:
        plane.routed = 1
        plane.cross(plane, NULL, msg, first)
        plane.routed = 0
    plane.origin_len = 0
