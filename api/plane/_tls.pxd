"""Events of connections whose handshake is not complete."""

from jetraft.api.plane._types cimport conn_t, plane_t

cdef void tls_event(plane_t* plane, conn_t* conn) noexcept nogil
cdef void tls_watch(plane_t* plane, conn_t* conn, bint writing) noexcept nogil
