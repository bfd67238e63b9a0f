"""The bound of what waits for all connections together."""

from jetraft.api.plane._types cimport conn_t, plane_t

cdef void bound_unread(plane_t* plane, conn_t* conn) noexcept nogil
