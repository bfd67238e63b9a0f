"""Receiving: one turn over the ready sockets."""

from libc.stdint cimport int64_t

from jetraft.api.wire._types cimport conn_t, plane_t

cdef enum:
    RECV_BYTES = 256 * 1024     # measured: 64 KiB costs 1.5x, 1 MiB gains nothing

cdef int read_turn(plane_t* plane, int64_t timeout_ns) noexcept nogil
cdef void feed_conn(plane_t* plane, conn_t* conn, const char* data, size_t n) noexcept nogil
