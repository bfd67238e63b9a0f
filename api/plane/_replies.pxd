"""Reply subjects that a connection may answer."""

from libc.stdint cimport uint64_t

from jetraft.api.plane._types cimport conn_t, plane_t, replies_t, reply_t

cdef reply_t* find_reply(replies_t* replies, const char* s, Py_ssize_t n, uint64_t h) noexcept nogil
cdef void drop_reply(replies_t* replies, reply_t* reply) noexcept nogil
cdef void track_reply(plane_t* plane, conn_t* conn, const char* s, Py_ssize_t n) noexcept nogil
cdef void forget_replies(conn_t* conn) noexcept nogil
