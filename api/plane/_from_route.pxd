"""Delivery of what a node of this cluster sends."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport acct_t, group_t, msg_t, plane_t, sub_t

cdef void deliver_from_route(plane_t* plane, acct_t* acct, msg_t* msg, const char* queues, uint32_t queue_count) noexcept nogil
cdef bint is_of_others(sub_t* sub) noexcept nogil
cdef bint named(const char* queues, uint32_t queue_count, group_t* group) noexcept nogil
