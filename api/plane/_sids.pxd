"""The subscriptions of one connection by their ids."""

from libc.stdint cimport uint64_t

from jetraft.api.plane._types cimport conn_t, sub_t

cdef sub_t* find_sid(conn_t* conn, const char* sid, Py_ssize_t n, uint64_t h) noexcept nogil
cdef void grow_sids(conn_t* conn) noexcept nogil
