"""What waits for all connections together, where memory has a limit: `max_pending` bounds each of them alone.

That is output that was not sent, and messages of which only a part has come.

From half of the bound on nothing waits for the end of the turn, and who publishes to a connection that does not read is
paused. Beyond the bound those that have the most waiting are slow consumers.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from jetraft.api.plane._types cimport CLOSE_SLOW_PENDING, CONN_OPEN, conn_t, plane_t
from jetraft.api.plane._writer cimport buf_free, conn_close, conn_send, count_unread


cdef void bound_unread(plane_t* plane, conn_t* conn) noexcept nogil:
    """Count what was written to a connection, and make room."""
    count_unread(plane, conn)
    if plane.unread <= plane.max_unread // 2:
        return
    if not conn.want_write and conn.state == CONN_OPEN:
        conn_send(plane, conn)
    if conn.want_write:
        plane.stall = 1
    if plane.unread > plane.max_unread:
        send_all(plane)
        close_slowest(plane, plane.max_unread // 4 * 3)


cdef void send_all(plane_t* plane) noexcept nogil:
    """What was written in this turn to connections that read is nobody's fault."""
    cdef conn_t* conn
    cdef uint32_t i
    for i in range(plane.dirty_conns.count):
        conn = <conn_t*>plane.dirty_conns.items[i]
        if not conn.want_write and conn.state == CONN_OPEN:
            conn_send(plane, conn)


cdef void close_slowest(plane_t* plane, size_t most) noexcept nogil:
    """Close connections until no more than that waits. Their buffers are freed now: the turn may still be long."""
    cdef conn_t* conn
    cdef conn_t* slowest
    cdef uint32_t i
    while plane.unread > most:
        slowest = NULL
        for i in range(plane.conns.count):
            conn = <conn_t*>plane.conns.items[i]
            if conn.state == CONN_OPEN and (slowest == NULL or conn.counted > slowest.counted):
                slowest = conn
        if slowest == NULL or slowest.counted == 0:
            return
        plane.slow_consumers += 1
        slowest.acct.slow_consumers += 1
        conn_close(plane, slowest, CLOSE_SLOW_PENDING)
        buf_free(&slowest.out)
        free(slowest.partial)
        slowest.partial = NULL
        slowest.partial_len = 0
        count_unread(plane, slowest)
