"""What leaf nodes and hubs are told of the interest of this server."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport leaf_t, node_t, plane_t, sub_t

cdef void tell_leafs(plane_t* plane, sub_t* sub, bint present) noexcept nogil
cdef void tell_queues(plane_t* plane) noexcept nogil
cdef void announce_to_leaf(plane_t* plane, leaf_t* leaf, sub_t* sub) noexcept nogil
cdef uint32_t announce_with_shadows(plane_t* plane, leaf_t* leaf, sub_t* sub) noexcept nogil
cdef bint is_loop_check(node_t* node) noexcept nogil
