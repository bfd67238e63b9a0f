"""Receiving: one turn over the ready sockets."""

from libc.stdint cimport int64_t

from jetraft.api.wire._types cimport conn_t, plane_t

cdef enum:
    RECV_BYTES = 512 * 1024     # measured with 1 KiB a message: 64 and 128 KiB cost a third more than 256, 512 a tenth less

cdef int read_turn(plane_t* plane, int64_t timeout_ns) noexcept nogil
cdef void feed_conn(plane_t* plane, conn_t* conn, const char* data, size_t n) noexcept nogil
