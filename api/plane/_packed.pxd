"""Connections whose bytes are compressed with S2."""

from jetraft.api.plane._types cimport conn_t, packed_t, plane_t

cdef void take(plane_t* plane, conn_t* conn, size_t n, bint ended) noexcept nogil
cdef void read_packed(plane_t* plane, conn_t* conn, const char* data, size_t n, bint ended) noexcept nogil
cdef void packed_free(packed_t* packed) noexcept nogil
