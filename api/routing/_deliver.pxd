"""One message to everybody who wants it: clients, sinks, peers."""

from libc.stdint cimport uint32_t

from jetraft.api.wire._types cimport conn_t, match_t, msg_t, node_t, plane_t, queue_t, route_t, sub_t

cdef uint32_t deliver(plane_t* plane, conn_t* origin, msg_t* msg, match_t* match) noexcept nogil
cdef void deliver_from_route(plane_t* plane, msg_t* msg, const char* queues, uint32_t queue_count) noexcept nogil
cdef match_t* match_for(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil
cdef bint answer_no_responders(plane_t* plane, conn_t* conn, msg_t* msg) noexcept nogil
cdef void drop_subscription(plane_t* plane, sub_t* sub) noexcept nogil
cdef void tell_interest(plane_t* plane, route_t* only, node_t* node, queue_t* queue, uint32_t weight) noexcept nogil
cdef void unlink_sid(sub_t* sub) noexcept nogil
