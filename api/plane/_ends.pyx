"""The end of many subscriptions, a share of them in each turn.

A connection may have a million. All at once they would cost 0.7 s in which no one else is served; so what a turn ends is
bounded, and the rest goes in the turns that follow. A subscription whose owner is gone receives nothing meanwhile: a
delivery asks for the state of the connection, and of the route.
"""

from libc.stdint cimport uint32_t

from jetraft.api.plane._deliver cimport drop_subscription
from jetraft.api.plane._types cimport conn_t, plane_t, route_t


cdef bint end_subscriptions(plane_t* plane, conn_t* conn, uint32_t* share) noexcept nogil:
    """End subscriptions of a connection, as many as the share has; True when none is left.

    None may be added between two calls, since the table is gone through once.
    """
    while conn.sub_count and share[0]:
        while conn.buckets[conn.ended_buckets] == NULL:
            conn.ended_buckets += 1
        drop_subscription(plane, conn.buckets[conn.ended_buckets])
        share[0] -= 1
    if conn.sub_count == 0:
        conn.ended_buckets = 0
        return True
    return False


cdef bint end_route_subscriptions(plane_t* plane, route_t* route, uint32_t* share) noexcept nogil:
    """End what a peer had told of, as much as the share has; True when nothing is left."""
    while route.subs != NULL and share[0]:
        drop_subscription(plane, route.subs)
        share[0] -= 1
    return route.subs == NULL
