"""Connections on which nothing happens: pinged, closed when they do not answer or do not read, their buffers freed."""

from libc.stdint cimport int64_t

from jetraft.api.plane._types cimport CLOSE_SLOW_DEADLINE, CLOSE_STALE, CONN_OPEN, conn_t, plane_t
from jetraft.api.plane._writer cimport buf_free, conn_close, emit_text
from jetraft.api.websocket._sending cimport wire_free
from jetraft.api.websocket._state cimport WS_OPEN

cdef enum:
    IDLE_BUFFER_NS = 1_000_000_000      # an output buffer that was not used for a second is freed


cdef void look_after(
    plane_t* plane, conn_t* conn, int64_t ping_interval_ns, int ping_max, int64_t write_deadline_ns,
    int64_t leaf_deadline_ns,
) noexcept nogil:
    """Look at one connection; `plane.now_ns` is the time."""
    cdef int64_t idle_ns = plane.now_ns - conn.last_active_ns
    if conn.state != CONN_OPEN:
        return
    if conn.leaf != NULL:
        write_deadline_ns = leaf_deadline_ns
    if conn.want_write and plane.now_ns - conn.blocked_since_ns > write_deadline_ns:
        plane.slow_consumers += 1
        conn.acct.slow_consumers += 1
        conn_close(plane, conn, CLOSE_SLOW_DEADLINE)
        return
    if conn.ws != NULL:
        if conn.ws.phase != WS_OPEN:
            return              # the deadline of its handshake ends it
        if conn.ws.shared.ping_interval_ns:
            ping_interval_ns = conn.ws.shared.ping_interval_ns
    if ping_interval_ns and idle_ns > ping_interval_ns * (conn.pings_out + 1):
        if conn.pings_out >= ping_max:
            emit_text(plane, conn, b"-ERR 'Stale Connection'\r\n", 25)
            conn_close(plane, conn, CLOSE_STALE)
            return
        conn.pings_out += 1
        if conn.pinged_ns == 0:
            conn.pinged_ns = plane.now_ns
        emit_text(plane, conn, b"PING\r\n", 6)
    if idle_ns <= IDLE_BUFFER_NS:
        return
    if conn.out.start == conn.out.end and conn.out.cap:
        buf_free(&conn.out)
    if conn.ws != NULL and conn.ws.wire_start == conn.ws.wire_end:
        wire_free(conn.ws)
