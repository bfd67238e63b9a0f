"""The client protocol, from bytes to deliveries."""

from jetraft.api.plane._types cimport conn_t, plane_t

cdef Py_ssize_t parse(plane_t* plane, conn_t* conn, const char* data, Py_ssize_t n) noexcept nogil
