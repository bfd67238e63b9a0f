"""Messages that come from leaf nodes and hubs, and the names of a domain's JetStream API."""

from jetraft.api.plane._types cimport conn_t, msg_t, plane_t, text_t

cdef void deliver_from_leaf(plane_t* plane, conn_t* conn, msg_t* msg, text_t* queues, int queue_count) noexcept nogil
cdef bint map_domain(plane_t* plane, msg_t* msg) noexcept nogil
