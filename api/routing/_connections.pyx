"""Client connections: from the socket that was accepted to the structures that are freed.

What has ended waits until `flush`, which sends once per dirty connection, then closes and frees.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc

from jetraft.api.routing._deliver cimport drop_subscription
from jetraft.api.routing._sublist cimport answers_free, answers_init
from jetraft.api.routing._tree cimport node_subject, sub_free, tree_free, tree_init
from jetraft.api.wire._reader cimport RECV_BYTES, feed_conn
from jetraft.api.wire._text cimport jr_mono_ns
from jetraft.api.wire._types cimport (
    CLOSE_SLOW_DEADLINE,
    CLOSE_STALE,
    CONN_OPEN,
    CloseReason,
    conn_t,
    plane_t,
    ptrs_t,
    queue_t,
    sink_t,
    sub_t,
)
from jetraft.api.wire._writer cimport buf_free, conn_close, conn_send, emit_text, push_ptr

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int EPOLLIN
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    int EPOLL_CLOEXEC

cdef enum:
    IDLE_BUFFER_NS = 1_000_000_000      # an output buffer unused for a second is given back


cdef void connect_callback(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept with gil:
    (<Connections>plane.face)._connect(conn, p, n)


cdef void first_ping_callback(plane_t* plane, conn_t* conn) noexcept with gil:
    (<Connections>plane.face)._first_ping(conn)


cdef void free_conn(conn_t* conn) noexcept:
    free(conn.partial)
    free(conn.buckets)
    buf_free(&conn.out)
    free(conn)


cdef void drop_ptr(ptrs_t* array, void* item) noexcept nogil:
    cdef uint32_t i, j
    for i in range(array.count):
        if array.items[i] == item:
            for j in range(i + 1, array.count):
                array.items[j - 1] = array.items[j]
            array.count -= 1
            return


cdef class Connections:
    """Client connections: opened, fed, closed, looked after. The plane of one node without its sinks and peers."""

    def __cinit__(self, *, int64_t max_payload, int64_t max_control_line, int64_t max_pending, int64_t max_subscriptions,
                  connect_handler, first_ping_handler):
        self.p.seed = int.from_bytes(os.urandom(8), "little")
        self.p.rng = int.from_bytes(os.urandom(8), "little") | 1
        self.p.max_payload = max_payload
        self.p.max_control_line = max_control_line
        self.p.max_pending = max_pending
        self.p.max_subscriptions = max_subscriptions
        tree_init(&self.p)
        answers_init(&self.p)
        self.p.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.p.epfd < 0:
            raise OSError(errno, "epoll_create1")
        self.p.recv_cap = RECV_BYTES + max_payload + max_control_line + 64
        self.p.recv_buf = <char*>malloc(self.p.recv_cap)
        if self.p.recv_buf == NULL:
            raise MemoryError
        self.p.face = <void*>self
        self.p.on_connect = connect_callback
        self.p.on_first_ping = first_ping_callback
        self.p.now_ns = jr_mono_ns()
        self.conns = {}
        self.closed = []
        self.connect_handler = connect_handler
        self.first_ping_handler = first_ping_handler

    def __dealloc__(self):
        cdef conn_t* conn
        cdef uint32_t i
        for i in range(self.p.conns.count):
            conn = <conn_t*>self.p.conns.items[i]
            if conn.fd >= 0:
                c_close(conn.fd)
            free_conn(conn)
        if self.p.epfd >= 0:
            c_close(self.p.epfd)
        free(self.p.recv_buf)
        buf_free(&self.p.interest_changes)
        answers_free(&self.p)
        tree_free(&self.p)

    def fileno(self):
        """The epoll descriptor: readable when a turn has something to do."""
        return self.p.epfd

    def open(self, int fd, bytes greeting, *, bint auth_required=False):
        """Take over a connected, non-blocking socket (-1: bytes are fed) and greet it; returns the connection id."""
        cdef conn_t* conn = <conn_t*>calloc(1, sizeof(conn_t))
        cdef epoll_event event
        if conn == NULL:
            raise MemoryError
        self.next_cid += 1
        conn.fd = fd
        conn.cid = self.next_cid
        conn.verbose = conn.pedantic = conn.echo = 1    # as nats-server until CONNECT says otherwise
        conn.auth_required = auth_required
        conn.started_ns = conn.last_active_ns = jr_mono_ns()
        conn.slot = self.p.conns.count
        push_ptr(&self.p.conns, conn)
        self.conns[conn.cid] = <size_t>conn
        if fd >= 0:
            event.events = EPOLLIN
            event.data.ptr = conn
            if epoll_ctl(self.p.epfd, EPOLL_CTL_ADD, fd, &event) < 0:
                self._forget(conn)
                free_conn(conn)
                raise OSError(errno, "epoll_ctl")
        emit_text(&self.p, conn, PyBytes_AS_STRING(greeting), PyBytes_GET_SIZE(greeting))
        return conn.cid

    cdef conn_t* _conn(self, cid) except? NULL:
        address = self.conns.get(cid)
        return NULL if address is None else <conn_t*><size_t>address

    cdef void _forget(self, conn_t* conn):
        cdef conn_t* last = <conn_t*>self.p.conns.items[self.p.conns.count - 1]
        self.p.conns.items[conn.slot] = last
        last.slot = conn.slot
        self.p.conns.count -= 1
        self.conns.pop(conn.cid, None)

    cdef void _connect(self, conn_t* conn, const char* p, Py_ssize_t n):
        """Let the session judge a CONNECT: options to set, or None with what to say before closing."""
        try:
            options = self.connect_handler(conn.cid, p[:n])
        except Exception:
            conn_close(&self.p, conn, CloseReason.CLOSE_PROTOCOL)
            raise
        if options.error is not None:
            emit_text(&self.p, conn, PyBytes_AS_STRING(options.error), PyBytes_GET_SIZE(options.error))
        if options.close_reason:
            conn_close(&self.p, conn, options.close_reason)
            return
        conn.connected = 1
        conn.verbose = options.verbose
        conn.pedantic = options.pedantic
        conn.echo = options.echo
        conn.headers = options.headers
        conn.no_responders = options.no_responders
        conn.protocol = options.protocol

    cdef void _first_ping(self, conn_t* conn):
        text = self.first_ping_handler(conn.cid)
        if text:
            emit_text(&self.p, conn, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    def write(self, cid, bytes text):
        """Queue protocol text for one connection; False when it is gone."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN:
            return False
        emit_text(&self.p, conn, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return True

    def write_async_info(self, bytes text):
        """Queue an INFO for every connection that understands one at any time (CONNECT protocol 1)."""
        cdef uint32_t i
        cdef conn_t* conn
        for i in range(self.p.conns.count):
            conn = <conn_t*>self.p.conns.items[i]
            if conn.state == CONN_OPEN and conn.connected and conn.protocol:
                emit_text(&self.p, conn, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    def close(self, cid, int reason, bytes text=b""):
        """Close one connection at the end of the turn, after the text."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL:
            return
        if text:
            emit_text(&self.p, conn, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        conn_close(&self.p, conn, <CloseReason>reason)

    def feed(self, cid, const uint8_t[::1] data):
        """Parse bytes that arrived on a connection without a descriptor (TLS, WebSocket)."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN or data.shape[0] == 0:
            return
        feed_conn(&self.p, conn, <const char*>&data[0], data.shape[0])

    def take(self, cid):
        """The bytes that wait for a connection without a descriptor."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL:
            return b""
        out = PyBytes_FromStringAndSize(conn.out.data + conn.out.start, conn.out.end - conn.out.start)
        conn.out.start = conn.out.end = 0
        return out

    def connection(self, cid):
        """Counters of one connection as a dict, or None when it is gone."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL:
            return None
        return {
            "cid": conn.cid, "in_msgs": conn.in_msgs, "in_bytes": conn.in_bytes, "out_msgs": conn.out_msgs,
            "out_bytes": conn.out_bytes, "subscriptions": conn.sub_count, "pending_bytes": conn.out.end - conn.out.start,
            "started_ns": conn.started_ns, "last_active_ns": conn.last_active_ns, "connected": bool(conn.connected),
        }

    def subscriptions(self, cid):
        """The subjects that one connection subscribes to."""
        cdef conn_t* conn = self._conn(cid)
        cdef char text[8192]
        cdef uint32_t i
        cdef sub_t* sub
        cdef Py_ssize_t n
        found = []
        if conn != NULL:
            for i in range(conn.bucket_count):
                sub = conn.buckets[i]
                while sub != NULL:
                    n = node_subject(&self.p, sub.node, text, sizeof(text))
                    found.append(text[:n])
                    sub = sub.next_in_bucket
        return sorted(found)

    # -- ends

    def flush(self):
        """Send what waits, then close and free what has ended. Returns [(cid, reason, counters)] of the closed."""
        cdef uint32_t i
        cdef conn_t* conn
        with nogil:
            i = 0
            while i < self.p.dirty_conns.count:
                conn = <conn_t*>self.p.dirty_conns.items[i]
                conn.dirty = 0
                if not conn.want_write:
                    conn_send(&self.p, conn)
                i += 1
            self.p.dirty_conns.count = 0
        if self.p.dead_conns != NULL or self.p.dead_subs != NULL or self.p.dead_sinks != NULL or self.p.dead_queues != NULL:
            self._reap()
        if self.closed:
            closed, self.closed = self.closed, []
            return closed
        return ()

    cdef void _reap(self):
        cdef conn_t* conn
        cdef conn_t* following
        cdef sub_t* sub
        cdef sink_t* sink
        cdef queue_t* queue
        cdef uint32_t i
        while self.p.dead_conns != NULL:
            conn = self.p.dead_conns
            self.p.dead_conns = conn.next_dead
            for i in range(conn.bucket_count):
                while conn.buckets[i] != NULL:
                    drop_subscription(&self.p, conn.buckets[i])
            drop_ptr(&self.p.dirty_conns, conn)
            drop_ptr(&self.p.paused_conns, conn)
            self.closed.append((conn.cid, conn.reason, self.connection(conn.cid)))
            self._forget(conn)
            if conn.fd >= 0:
                epoll_ctl(self.p.epfd, EPOLL_CTL_DEL, conn.fd, NULL)
                c_close(conn.fd)
            free_conn(conn)
        while self.p.dead_subs != NULL:
            sub = self.p.dead_subs
            self.p.dead_subs = sub.next_dead
            sub_free(&self.p, sub)
        while self.p.dead_queues != NULL:
            queue = self.p.dead_queues
            self.p.dead_queues = queue.next
            free(queue.name)
            free(queue.members)
            free(queue)
        while self.p.dead_sinks != NULL:
            sink = self.p.dead_sinks
            self.p.dead_sinks = sink.next_dead
            drop_ptr(&self.p.dirty_sinks, sink)
            buf_free(&sink.buf)
            free(sink)

    def next_wake_ns(self):
        """When paused producers are to be read again (monotonic ns), or 0: nothing waits."""
        return 0 if self.p.paused_conns.count == 0 else (<conn_t*>self.p.paused_conns.items[0]).paused_until_ns

    def housekeeping(self, int64_t ping_interval_ns, int ping_max, int64_t write_deadline_ns):
        """Once a second or so: ping quiet clients, close stale and stuck ones, give back idle buffers."""
        cdef uint32_t i
        cdef conn_t* conn
        cdef int64_t now = jr_mono_ns()
        self.p.now_ns = now
        for i in range(self.p.conns.count):
            conn = <conn_t*>self.p.conns.items[i]
            if conn.state != CONN_OPEN:
                continue
            if conn.want_write and now - conn.blocked_since_ns > write_deadline_ns:
                self.p.slow_consumers += 1
                conn_close(&self.p, conn, CLOSE_SLOW_DEADLINE)
                continue
            if ping_interval_ns and now - conn.last_active_ns > ping_interval_ns * (conn.pings_out + 1):
                if conn.pings_out >= ping_max:
                    emit_text(&self.p, conn, b"-ERR 'Stale Connection'\r\n", 25)
                    conn_close(&self.p, conn, CLOSE_STALE)
                    continue
                conn.pings_out += 1
                emit_text(&self.p, conn, b"PING\r\n", 6)
            if conn.out.start == conn.out.end and conn.out.cap and now - conn.last_active_ns > IDLE_BUFFER_NS:
                buf_free(&conn.out)

    def connection_ids(self):
        """Ids of the open connections."""
        return list(self.conns)
