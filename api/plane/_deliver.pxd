"""Delivers a message to all its receivers: clients, sinks, peers."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport acct_t, conn_t, group_t, match_t, msg_t, node_t, plane_t, queue_t, route_t, sink_t, sub_t

cdef enum:
    PICKS_MAX = 64      # queue groups of one message that were given to peers; more are kept local

cdef struct pick_t:
    route_t* route
    group_t* group

cdef uint32_t deliver(plane_t* plane, acct_t* acct, conn_t* origin, msg_t* msg, match_t* match) noexcept nogil
cdef match_t* match_for(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil
cdef void drop_subscription(plane_t* plane, sub_t* sub) noexcept nogil
cdef void tell_interest(plane_t* plane, acct_t* acct, route_t* only, node_t* node, queue_t* queue, uint32_t weight) noexcept nogil
cdef bint draw_member(plane_t* plane, match_t* match, group_t* group, bint local, uint32_t* start) noexcept nogil
cdef uint32_t give_group(
    plane_t* plane, match_t* match, group_t* group, conn_t* origin, msg_t* msg, bint local, route_t** chosen
) noexcept nogil
cdef void unlink_sid(sub_t* sub) noexcept nogil
cdef bint capture(plane_t* plane, sink_t* sink, uint32_t client, msg_t* msg) noexcept nogil
cdef uint32_t send_to_routes(
    plane_t* plane, acct_t* acct, conn_t* origin, msg_t* msg, pick_t* picks, uint32_t pick_count
) noexcept nogil
cdef uint32_t give(plane_t* plane, sub_t* sub, conn_t* origin, msg_t* msg) noexcept nogil
cdef void send_to_route(plane_t* plane, acct_t* acct, route_t* route, msg_t* msg, pick_t* picks, uint32_t pick_count) noexcept nogil
