"""The end of many subscriptions, a share of them in each turn."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport conn_t, plane_t, route_t

cdef enum:
    ENDS_PER_TURN = 2000    # subscriptions: 0.7 us each, with their places in tables that are in no cache

cdef bint end_subscriptions(plane_t* plane, conn_t* conn, uint32_t* share) noexcept nogil
cdef bint end_route_subscriptions(plane_t* plane, route_t* route, uint32_t* share) noexcept nogil


cdef inline bint has_ends(plane_t* plane) noexcept nogil:
    """Whether subscriptions have to end, to be asked again, or to be told of, in the next turns."""
    return plane.ending_conns.count != 0 or plane.ending_routes.count != 0 or plane.reviewed_conns.count != 0 or plane.tellings != 0


cdef inline uint32_t* ends_share(plane_t* plane) noexcept nogil:
    """How many subscriptions may still end in this turn, which may flush several times."""
    if plane.ends_turn != plane.turns + 1:
        plane.ends_turn = plane.turns + 1
        plane.ends_left = ENDS_PER_TURN
    return &plane.ends_left
