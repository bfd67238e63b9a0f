"""What is sent over connections that are compressed with S2."""

from jetraft.api.plane._types cimport Packing, conn_t

cdef Packing packing_of(conn_t* conn) noexcept nogil
cdef size_t pack_some(conn_t* conn, const char* data, size_t n) noexcept nogil
