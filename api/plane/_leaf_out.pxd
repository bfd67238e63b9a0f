"""Messages for leaf nodes and hubs, from the choice of the receivers to the bytes."""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.api.plane._types cimport conn_t, group_t, leaf_t, match_t, msg_t, plane_t, sub_t, transform_t

cdef bint same_side(leaf_t* leaf, conn_t* origin) noexcept nogil
cdef void read_origin(plane_t* plane, const char* queues, uint32_t queue_count) noexcept nogil
cdef bint name_origin(plane_t* plane, conn_t* origin) noexcept nogil
cdef uint32_t note_leaf(plane_t* plane, sub_t* sub, transform_t* shown, conn_t* origin, msg_t* msg) noexcept nogil
cdef uint32_t pick_leaf(
    plane_t* plane, match_t* match, group_t* group, conn_t* origin, msg_t* msg, uint64_t random, bint from_route
) noexcept nogil
cdef bint may_be_asked(msg_t* msg) noexcept nogil
cdef void send_to_leafs(plane_t* plane, msg_t* msg) noexcept nogil
