"""Output buffers of client connections.

Messages are encoded directly into the receiver's buffer; each dirty connection gets one `send` at the end of the turn,
or earlier when it has SEND_EARLY_BYTES. A connection with more than `max_pending` bytes waiting is a slow consumer and
is closed without an -ERR, as in nats-server. `_unread.pyx` bounds what waits for all of them.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from jetraft.api.plane._epoll cimport EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, epoll_ctl, epoll_event
from jetraft.api.plane._packing cimport pack_some
from jetraft.api.plane._text cimport jr_utoa
from jetraft.api.plane._types cimport (
    CLOSE_SLOW_PENDING,
    CLOSE_WRITE_ERROR,
    CONN_OPEN,
    SID_NEAR,
    CloseReason,
    buf_t,
    conn_t,
    msg_t,
    plane_t,
    ptrs_t,
    sid_of,
    sub_t,
)
from jetraft.api.tls._records cimport tls_write
from jetraft.api.tls._state cimport TLS_OPEN, tls_unsent
from jetraft.api.websocket._sending cimport frame_some, ws_close_for
from jetraft.api.websocket._state cimport WS_OPEN

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t n, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    BUF_START = 4096
    SEND_EARLY_BYTES = 512 * 1024   # as much as one receive, so that a receiver is woken once for it
    SEND_EARLY_OF_MANY = 256 * 1024 # with several receivers, so that their buffers fit into the processor's cache
    MANY = 3
    MSG_OVERHEAD = 96               # verb, spaces, two sizes of ten digits, two line ends


cdef char* buf_reserve(buf_t* buf, size_t need) noexcept nogil:
    """Grow the buffer for `need` more bytes and return where they go; the caller moves `end`."""
    cdef size_t used = buf.end - buf.start, cap
    if buf.end + need <= buf.cap:
        return buf.data + buf.end
    if buf.start:
        memmove(buf.data, buf.data + buf.start, used)
        buf.start = 0
        buf.end = used
    if used + need > buf.cap:
        cap = buf.cap * 2 if buf.cap else BUF_START
        while cap < used + need:
            cap *= 2
        buf.data = <char*>realloc(buf.data, cap)
        buf.cap = cap
    return buf.data + buf.end


cdef void buf_free(buf_t* buf) noexcept nogil:
    free(buf.data)
    buf.data = NULL
    buf.start = buf.end = buf.cap = 0


cdef void push_ptr(ptrs_t* array, void* item) noexcept nogil:
    if array.count == array.cap:
        array.cap = array.cap * 2 if array.cap else 64
        array.items = <void**>realloc(array.items, array.cap * sizeof(void*))
    array.items[array.count] = item
    array.count += 1


cdef void drop_ptr(ptrs_t* array, void* item) noexcept nogil:
    cdef uint32_t i, j
    for i in range(array.count):
        if array.items[i] == item:
            for j in range(i + 1, array.count):
                array.items[j - 1] = array.items[j]
            array.count -= 1
            return


cdef inline void mark_dirty(plane_t* plane, conn_t* conn) noexcept nogil:
    if not conn.dirty:
        conn.dirty = 1
        push_ptr(&plane.dirty_conns, conn)


cdef void conn_wake(plane_t* plane, conn_t* conn) noexcept nogil:
    """Send what waits at the end of the turn."""
    mark_dirty(plane, conn)


cdef void check_pending(plane_t* plane, conn_t* conn) noexcept nogil:
    """Send early if much waits; pause the producer of a slow receiver; close a receiver above max_pending."""
    cdef size_t pending
    if plane.bound_unread != NULL:
        plane.bound_unread(plane, conn)
    pending = conn.out.end - conn.out.start
    if pending < (SEND_EARLY_OF_MANY if plane.dirty_conns.count >= MANY else SEND_EARLY_BYTES):
        return
    if not conn.want_write and conn.fd >= 0:
        conn_send(plane, conn)
        pending = conn.out.end - conn.out.start
    if <long long>pending > plane.max_pending:
        plane.slow_consumers += 1
        conn.acct.slow_consumers += 1
        conn_close(plane, conn, CLOSE_SLOW_PENDING)
    elif <long long>pending > plane.max_pending // 2:
        plane.stall = 1


cdef void conn_wrote(plane_t* plane, conn_t* conn) noexcept nogil:
    """Something was encoded into the buffer of a connection by another module."""
    mark_dirty(plane, conn)
    check_pending(plane, conn)


cdef void emit_text(plane_t* plane, conn_t* conn, const char* text, size_t n) noexcept nogil:
    """Queue protocol text."""
    if conn.state != CONN_OPEN or n == 0:
        return
    if plane.log_protocol:
        plane.on_protocol(plane, conn, False, text, n, NULL, 0)
    memcpy(buf_reserve(&conn.out, n), text, n)
    conn.out.end += n
    mark_dirty(plane, conn)
    check_pending(plane, conn)


cdef void emit_message(plane_t* plane, sub_t* sub, msg_t* msg) noexcept nogil:
    """Queue MSG or HMSG for one subscription; a client without header support gets the payload only."""
    cdef conn_t* conn = sub.of.conn
    cdef const char* data = msg.data
    cdef size_t size = msg.size, hdr_len = msg.hdr_len
    cdef char* w
    cdef char* start
    if hdr_len and not conn.headers:
        data += hdr_len
        size -= hdr_len
        hdr_len = 0
    start = w = buf_reserve(&conn.out, msg.shown_len + sub.sid_len + msg.reply_len + size + MSG_OVERHEAD)
    if hdr_len:
        memcpy(w, b"HMSG ", 5)
        w += 5
    else:
        memcpy(w, b"MSG ", 4)
        w += 4
    memcpy(w, msg.shown, msg.shown_len)
    w += msg.shown_len
    w[0] = c" "
    if sub.sid_len <= SID_NEAR:
        memcpy(w + 1, sub.near, SID_NEAR)   # a fixed length is inlined; surplus bytes are overwritten
    else:
        memcpy(w + 1, sid_of(sub), sub.sid_len)
    w += 1 + sub.sid_len
    w[0] = c" "
    w += 1
    if msg.reply_len:
        memcpy(w, msg.reply, msg.reply_len)
        w += msg.reply_len
        w[0] = c" "
        w += 1
    if hdr_len:
        w += jr_utoa(w, hdr_len)
        w[0] = c" "
        w += 1
    w += jr_utoa(w, size)
    w[0] = c"\r"
    w[1] = c"\n"
    memcpy(w + 2, data, size)
    w += 2 + size
    w[0] = c"\r"
    w[1] = c"\n"
    if plane.log_protocol:
        plane.on_protocol(plane, conn, False, start, w - size - 2 - start, w - size, size)
    conn.out.end += (w + 2) - start
    conn.out_msgs += 1
    conn.out_bytes += size
    plane.out_msgs += 1
    plane.out_bytes += size
    conn.acct.out_msgs += 1
    conn.acct.out_bytes += size
    mark_dirty(plane, conn)
    check_pending(plane, conn)


cdef void conn_watch(plane_t* plane, conn_t* conn) noexcept nogil:
    """Set the epoll events for the connection's present state."""
    cdef epoll_event event
    if conn.fd < 0 or (conn.tls != NULL and conn.tls.phase != TLS_OPEN):
        return
    event.events = (0 if conn.paused else EPOLLIN) | (EPOLLOUT if conn.want_write else 0)
    if conn.packed != NULL and conn.packed.backlog and not conn.paused:
        event.events |= EPOLLOUT        # so that the next turn goes on with it
    event.data.ptr = conn
    epoll_ctl(plane.epfd, EPOLL_CTL_MOD, conn.fd, &event)


cdef size_t packed_waiting(conn_t* conn, char** data) noexcept nogil:
    """What is to be sent next over a connection whose bytes are compressed."""
    cdef buf_t* wire = &conn.packed.wire
    cdef char* plain = NULL
    cdef size_t n
    if wire.start == wire.end:
        n = plain_waiting(conn, &plain)
        plain_sent(conn, pack_some(conn, plain, n))
    data[0] = wire.data + wire.start
    return wire.end - wire.start


cdef inline size_t waiting(conn_t* conn, char** data) noexcept nogil:
    """What is to be sent next."""
    return plain_waiting(conn, data) if conn.packed == NULL else packed_waiting(conn, data)


cdef inline size_t plain_waiting(conn_t* conn, char** data) noexcept nogil:
    """What is to be sent next before it is compressed: output as it is, or frames of it."""
    cdef buf_t* out = &conn.out
    if conn.ws == NULL or conn.ws.phase != WS_OPEN:
        data[0] = out.data + out.start
        return out.end - out.start
    out.start += frame_some(conn.ws, out.data + out.start, out.end - out.start)
    data[0] = conn.ws.wire + conn.ws.wire_start
    return conn.ws.wire_end - conn.ws.wire_start


cdef inline void sent(conn_t* conn, size_t n) noexcept nogil:
    if conn.packed == NULL:
        plain_sent(conn, n)
    else:
        conn.packed.wire.start += n


cdef inline void plain_sent(conn_t* conn, size_t n) noexcept nogil:
    if conn.ws == NULL or conn.ws.phase != WS_OPEN:
        conn.out.start += n
        return
    conn.ws.wire_start += n
    if conn.ws.wire_start == conn.ws.wire_end:
        conn.ws.wire_start = conn.ws.wire_end = 0


cdef void conn_send(plane_t* plane, conn_t* conn) noexcept nogil:
    """Send as much as the socket accepts. The rest waits for EPOLLOUT."""
    send_some(plane, conn)
    if conn.counted:
        count_unread(plane, conn)


cdef inline void send_some(plane_t* plane, conn_t* conn) noexcept nogil:
    cdef ssize_t k
    cdef buf_t* out = &conn.out
    cdef char* data
    cdef size_t n
    cdef int error
    if conn.fd < 0 or (conn.tls != NULL and conn.tls.phase != TLS_OPEN):
        return
    while True:
        n = waiting(conn, &data)
        if n == 0 and (conn.tls == NULL or not tls_unsent(conn.tls)):
            if out.start == out.end:
                break
            conn_close(plane, conn, CLOSE_WRITE_ERROR)     # no memory for a frame
            return
        if conn.tls != NULL:
            k = tls_write(conn.tls, data, n)
            error = <int>-k
        else:
            k = c_send(conn.fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL)
            error = errno
        plane.sends += 1
        if k < 0:
            if error == EINTR:
                continue
            if error != EAGAIN:
                out.start = out.end = 0
                conn_close(plane, conn, CLOSE_WRITE_ERROR)
                return
            if not conn.want_write:
                conn.want_write = 1
                conn.blocked_since_ns = plane.now_ns
                conn_watch(plane, conn)
            return
        sent(conn, k)
        if conn.want_write:
            conn.blocked_since_ns = plane.now_ns
    out.start = out.end = 0
    if out.cap > plane.keep_bytes:
        buf_free(out)
    if conn.want_write:
        conn.want_write = 0
        conn.blocked_since_ns = 0
        conn_watch(plane, conn)


cdef void conn_close(plane_t* plane, conn_t* conn, CloseReason reason) noexcept nogil:
    """Mark for closing at the end of the turn; only the first reason counts."""
    if conn.state != CONN_OPEN:
        return
    conn.state = 1
    conn.reason = reason
    if conn.ws != NULL and conn.ws.phase == WS_OPEN:
        ws_close_for(conn.ws, reason)
        mark_dirty(plane, conn)     # the close frame follows what waits
    conn.next_dead = plane.dead_conns
    plane.dead_conns = conn
