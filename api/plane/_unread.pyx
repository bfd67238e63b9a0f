"""What waits for all connections together, where memory has a limit: `max_pending` bounds each of them alone.

That is the buffers of output that was not sent, and messages of which only a part has come. What is received in one turn
is bounded as well, since it waits in sinks and for peers until the end of the turn.

From half of the bound on nothing waits for the end of the turn, and who publishes to a connection that does not read is
paused. Beyond the bound those that have the most waiting are slow consumers.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from jetraft.api.plane._types cimport CLOSE_SLOW_PENDING, CONN_OPEN, conn_t, plane_t
from jetraft.api.plane._writer cimport buf_free, conn_close, conn_send, count_unread

cdef extern from "<sys/socket.h>" nogil:
    cdef struct linger:
        int l_onoff
        int l_linger
    int c_setsockopt "setsockopt"(int fd, int level, int name, const void* value, unsigned int n)
    int SOL_SOCKET
    int SO_LINGER

cdef linger AT_ONCE     # what waits in the socket counts too (control groups of version 2), and who does not read keeps it
AT_ONCE.l_onoff = 1
AT_ONCE.l_linger = 0


cdef void bound_unread(plane_t* plane, conn_t* conn) noexcept nogil:
    """Count what was written to a connection, and make room."""
    count_unread(plane, conn)
    if plane.unread <= plane.max_unread // 2:
        return
    if not conn.want_write and conn.state == CONN_OPEN:
        conn_send(plane, conn)
    if conn.want_write:
        plane.stall = 1
    keep_within(plane)


cdef void keep_within(plane_t* plane) noexcept nogil:
    """Make room if more waits than may, after the bound was lowered too."""
    if plane.unread > plane.max_unread:
        send_all(plane)
        close_slowest(plane, plane.max_unread // 4 * 3)


cdef void send_all(plane_t* plane) noexcept nogil:
    """What was written in this turn to connections that read counts for no connection."""
    cdef conn_t* conn
    cdef uint32_t i
    for i in range(plane.dirty_conns.count):
        conn = <conn_t*>plane.dirty_conns.items[i]
        if not conn.want_write and conn.state == CONN_OPEN:
            conn_send(plane, conn)


cdef inline size_t waits(conn_t* conn, bint output) noexcept nogil:
    return conn.out.end - conn.out.start if output else conn.partial_len


cdef bint is_mostly_output(plane_t* plane) noexcept nogil:
    """Whether readers have more waiting than publishers: who publishes much is paused, and not to blame for them."""
    cdef conn_t* conn
    cdef size_t output = 0, partial = 0
    cdef uint32_t i
    for i in range(plane.conns.count):
        conn = <conn_t*>plane.conns.items[i]
        if conn.state == CONN_OPEN:
            output += waits(conn, True)
            partial += waits(conn, False)
    return output >= partial


cdef void close_slowest(plane_t* plane, size_t most) noexcept nogil:
    """Close connections until no more than that waits. Their buffers are freed now: the turn may still be long."""
    cdef conn_t* conn
    cdef conn_t* slowest
    cdef bint output
    cdef uint32_t i
    while plane.unread > most:
        slowest = NULL
        output = is_mostly_output(plane)
        for i in range(plane.conns.count):
            conn = <conn_t*>plane.conns.items[i]
            if conn.state == CONN_OPEN and waits(conn, output) > (0 if slowest == NULL else waits(slowest, output)):
                slowest = conn
        if slowest == NULL:
            return
        plane.slow_consumers += 1
        slowest.acct.slow_consumers += 1
        conn_close(plane, slowest, CLOSE_SLOW_PENDING)
        if slowest.fd >= 0:
            c_setsockopt(slowest.fd, SOL_SOCKET, SO_LINGER, &AT_ONCE, sizeof(AT_ONCE))
        buf_free(&slowest.out)
        free(slowest.kept)
        slowest.kept = slowest.partial = NULL
        slowest.partial_len = 0
        count_unread(plane, slowest)
