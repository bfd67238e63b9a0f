"""Received bytes of the protocol, on their way to the parser."""

from jetraft.api.plane._types cimport conn_t, plane_t

cdef Py_ssize_t parse_conn(plane_t* plane, conn_t* conn, const char* data, Py_ssize_t n) noexcept nogil
cdef void keep_rest(plane_t* plane, conn_t* conn, const char* data, size_t n) noexcept nogil
cdef void feed_conn(plane_t* plane, conn_t* conn, const char* data, size_t n) noexcept nogil
cdef void resume_conn(plane_t* plane, conn_t* conn) noexcept nogil
