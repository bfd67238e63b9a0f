"""The bound of what waits for all connections together."""

from jetraft.api.plane._types cimport conn_t, plane_t

cdef enum:
    KEEP_LITTLE_BYTES = 4096    # of each buffer that is empty again
    TURN_SHARE = 4              # of the bound may be received in one turn

cdef void keep_within(plane_t* plane) noexcept nogil
cdef void bound_unread(plane_t* plane, conn_t* conn) noexcept nogil
