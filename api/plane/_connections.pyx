"""Client connections, from the accepted socket to the end.

`flush` sends once per dirty connection, then closes and frees the connections that have ended.
"""

import os
from operator import itemgetter

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from jetraft.api.plane._epoll cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLLIN,
    epoll_create1,
    epoll_ctl,
    epoll_event,
)
from jetraft.api.plane._answers cimport expire_answers
from jetraft.api.plane._ends cimport end_route_subscriptions, end_subscriptions, ends_share, has_ends
from jetraft.api.plane._idle cimport look_after
from jetraft.api.plane._leaf_interest cimport tell_queues
from jetraft.api.plane._inspection cimport rows_of
from jetraft.api.plane._packed cimport packed_free
from jetraft.api.plane._permissions cimport grant
from jetraft.api.plane._replies cimport forget_replies
from jetraft.api.plane._share cimport TURN_NS, TURN_WORK
from jetraft.api.plane._reviews cimport review_subscriptions
from jetraft.api.plane._sublist cimport answers_free, answers_init
from jetraft.api.plane._subs cimport sub_free
from jetraft.api.plane._tree cimport tree_free, tree_init
from jetraft.api.plane._feed cimport feed_conn, resume_conn
from jetraft.api.plane._reader cimport RECV_BYTES
from jetraft.api.plane._tenants cimport Tenants
from jetraft.api.plane._text cimport jr_mono_ns
from jetraft.api.plane._types cimport (
    CONN_OPEN,
    GUARD_REVIEW,
    CloseReason,
    acct_t,
    conn_t,
    plane_t,
    queue_t,
    route_t,
    sink_t,
    sub_t,
    text_t,
)
from jetraft.api.plane._writer cimport buf_free, conn_close, conn_send, conn_watch, count_unread, drop_ptr, emit_text, push_ptr
from jetraft.api.tls._records cimport tls_release
from jetraft.api.websocket._frames cimport ws_free

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef enum:
    BUF_KEEP_BYTES = 4 * 1024 * 1024    # of each buffer that is empty again
    JUDGED = 1                          # conn_t.ending: it is as its CONNECT asked when its subscriptions have ended
    CLOSED = 2                          # and there it is forgotten, and only its subscriptions are left
    CLOSED_ROWS_MAX = 32                # subscriptions of a closed connection that are reported with it

BY_SID = itemgetter(2)      # of (subject, queue, sid)


cdef void connect_callback(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept with gil:
    (<Connections>plane.owner)._connect(conn, p, n)


cdef void first_ping_callback(plane_t* plane, conn_t* conn) noexcept with gil:
    (<Connections>plane.owner)._first_ping(conn)


cdef void violation_callback(plane_t* plane, conn_t* conn, int kind, text_t subject, text_t queue, text_t sid) noexcept with gil:
    text = (<Connections>plane.owner).violation_handler(
        conn.cid, kind, subject.p[:subject.n], queue.p[:queue.n] if queue.n else b"", sid.p[:sid.n] if sid.n else b""
    )
    emit_text(plane, conn, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef void protocol_callback(
    plane_t* plane, conn_t* conn, bint inbound, const char* line, Py_ssize_t n, const char* payload, Py_ssize_t size
) noexcept with gil:
    (<Connections>plane.owner).protocol_handler(
        conn.cid, line[:n], payload[:size] if payload != NULL else None, inbound=inbound
    )


cdef void free_conn(conn_t* conn) noexcept:
    forget_replies(conn)
    free(conn.kept)
    free(conn.buckets)
    free(conn.requester)
    free(conn.leaf)
    packed_free(conn.packed)
    buf_free(&conn.out)
    if conn.ws != NULL:
        ws_free(conn.ws)
    free(conn)


cdef class Connections(Tenants):
    """Client connections: opened, fed, closed, looked after. The plane of one node without its sinks and peers."""

    def __cinit__(self, *, int64_t max_payload, int64_t max_control_line, int64_t max_pending, int64_t max_subscriptions,
                  connect_handler, first_ping_handler, violation_handler, trace_handler=None,
                  protocol_handler=None, **_options):
        self.p.work_end = UINT64_MAX
        self.p.turn_work = TURN_WORK
        self.p.work_cost = <uint64_t>TURN_NS * 1024 // TURN_WORK
        self.p.seed = int.from_bytes(os.urandom(8), "little")
        self.p.rng = int.from_bytes(os.urandom(8), "little") | 1
        self.p.max_payload = max_payload
        self.p.max_control_line = max_control_line
        self.p.max_pending = max_pending
        self.p.keep_bytes = BUF_KEEP_BYTES
        self.p.max_subscriptions = max_subscriptions
        self.p.stalls_producers = 1
        tree_init(&self.p)
        answers_init(&self.p)
        self.p.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.p.epfd < 0:
            raise OSError(errno, "epoll_create1")
        self.p.recv_cap = RECV_BYTES + max_payload + max_control_line + 64
        self.p.recv_buf = <char*>malloc(self.p.recv_cap)
        if self.p.recv_buf == NULL:
            raise MemoryError
        self.p.owner = <void*>self
        self.p.on_connect = connect_callback
        self.p.on_first_ping = first_ping_callback
        self.p.on_violation = violation_callback
        self.p.now_ns = jr_mono_ns()
        self.closed = []
        self.connect_handler = connect_handler
        self.first_ping_handler = first_ping_handler
        self.violation_handler = violation_handler
        self.granted = {}
        self.trace_handler = trace_handler
        self.protocol_handler = protocol_handler
        self.p.on_protocol = protocol_callback
        self.traces = []
        self.trace_streams, self.route_names = {}, {}

    def __dealloc__(self):
        cdef conn_t* conn
        cdef uint32_t i
        for i in range(self.p.conns.count):
            conn = <conn_t*>self.p.conns.items[i]
            if (conn.tls == NULL or tls_release(conn.tls)) and conn.fd >= 0:
                c_close(conn.fd)
            free_conn(conn)
        for i in range(self.p.ending_conns.count):
            conn = <conn_t*>self.p.ending_conns.items[i]
            if conn.ending == CLOSED:       # the others are open
                free_conn(conn)
        free(self.p.passed_conns.items)
        free(self.p.ending_conns.items)
        free(self.p.reviewed_conns.items)
        free(self.p.untold_queues.items)
        for i in range(self.p.ending_routes.count):
            free(self.p.ending_routes.items[i])
        free(self.p.ending_routes.items)
        if self.p.epfd >= 0:
            c_close(self.p.epfd)
        free(self.p.recv_buf)
        buf_free(&self.p.interest_changes)
        answers_free(&self.p)
        tree_free(&self.p)

    def log_protocol(self, bint wanted):
        """Hand every line of the protocol to the handler, or none."""
        self.p.log_protocol = wanted and self.protocol_handler is not None

    def fileno(self):
        """The epoll descriptor, which is readable when a connection or a watched descriptor is ready."""
        return self.p.epfd

    def open(self, int fd, bytes greeting, *, bint auth_required=False):
        """Take over a connected, non-blocking socket (-1: use `feed`) and queue the greeting; returns its id."""
        cdef conn_t* conn = <conn_t*>calloc(1, sizeof(conn_t))
        cdef epoll_event event
        if conn == NULL:
            raise MemoryError
        self.next_cid += 1
        conn.fd = fd
        conn.cid = self.next_cid
        conn.verbose = conn.pedantic = conn.echo = 1    # as in nats-server before CONNECT
        conn.auth_required = auth_required
        self._enter(conn, self.p.global_acct)
        self._limit(conn, -1, -1)
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

    cdef void _forget(self, conn_t* conn):
        cdef conn_t* last = <conn_t*>self.p.conns.items[self.p.conns.count - 1]
        self.p.conns.items[conn.slot] = last
        last.slot = conn.slot
        self.p.conns.count -= 1
        self._leave(conn)
        self.leaf_count -= conn.leaf != NULL
        self.conns.pop(conn.cid, None)
        self.granted.pop(conn.cid, None)
        self.judged.pop(conn.cid, None)
        self.reviews.pop(conn.cid, None)

    cdef void _connect(self, conn_t* conn, const char* p, Py_ssize_t n):
        """Let the handler check a CONNECT, or a client that begins without one (p is NULL)."""
        try:
            options = self.connect_handler(conn.cid, None if p == NULL else p[:n])
        except Exception:
            conn_close(&self.p, conn, CloseReason.CLOSE_PROTOCOL)
            raise
        if options.is_pending:
            conn.held = 1
            conn.paused = 1
            conn_watch(&self.p, conn)
            return
        self._accept(conn, options)

    cdef void _accept(self, conn_t* conn, options):
        """Let a connection be as its CONNECT asked, in its account, or close it.

        It is held while the subscriptions that it made before another CONNECT end, if they are many.
        """
        cdef acct_t* acct
        if conn.rtt_ns == 0:
            conn.rtt_ns = max(jr_mono_ns() - conn.started_ns, 1)
        if options.error is not None:
            emit_text(&self.p, conn, PyBytes_AS_STRING(options.error), PyBytes_GET_SIZE(options.error))
        if options.close_reason:
            conn_close(&self.p, conn, options.close_reason)
            return
        try:
            acct = self._account(options.account.encode())
        except (ValueError, OverflowError, MemoryError):
            conn_close(&self.p, conn, CloseReason.CLOSE_AUTH)
            return
        if self._is_full(conn, acct):
            return
        if conn.sub_count and (conn.connected or conn.acct != acct):   # made by who it was before
            if not end_subscriptions(&self.p, conn, ends_share(&self.p)):
                self.judged[conn.cid] = options
                conn.held = conn.paused = 1
                conn.ending = JUDGED
                conn_watch(&self.p, conn)
                push_ptr(&self.p.ending_conns, conn)
                return
        self._enter(conn, acct)
        conn.described = NULL
        conn.connected = 1
        conn.verbose = options.verbose
        conn.pedantic = options.pedantic
        conn.echo = options.echo
        conn.headers = options.headers
        conn.no_responders = options.no_responders
        conn.protocol = options.protocol
        self._limit(conn, options.max_payload, options.max_subs)
        grant(conn, options.permissions)
        if options.permissions is not None:
            self.granted[conn.cid] = options.permissions
        else:
            self.granted.pop(conn.cid, None)

    cdef void _first_ping(self, conn_t* conn):
        text = self.first_ping_handler(conn.cid)
        if text:
            emit_text(&self.p, conn, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    def release(self, cid, options):
        """The CONNECT that a connection was held for is judged; what came after it is acted on. False: it is gone."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN or not conn.held:
            return False
        if conn.ending:     # it waits for the end of its subscriptions: this is the last word on who it is then
            self.judged[cid] = options
        else:
            self._begin_again(conn, options)
        return True

    def write(self, cid, bytes text):
        """Queue protocol text for one connection; False when it has ended."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN:
            return False
        emit_text(&self.p, conn, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return True

    def write_async_info(self, bytes text):
        """Queue an INFO for every connection that accepts one at any time (CONNECT protocol 1)."""
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
        """Parse bytes received for a connection without a descriptor."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN or data.shape[0] == 0:
            return
        conn.spent = 0      # a turn of its own
        feed_conn(&self.p, conn, <const char*>&data[0], data.shape[0])

    def take(self, cid):
        """Take the output of a connection without a descriptor."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL:
            return b""
        out = PyBytes_FromStringAndSize(conn.out.data + conn.out.start, conn.out.end - conn.out.start)
        conn.out.start = conn.out.end = 0
        if conn.counted:
            count_unread(&self.p, conn)
        return out

    def connection(self, cid):
        """Counters of one connection as a dict, or None when it has ended."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL:
            return None
        error = {} if conn.ws == NULL or conn.ws.error == NULL else {"read_error": (<bytes>conn.ws.error).decode()}
        return error | {
            "cid": conn.cid, "in_msgs": conn.in_msgs, "in_bytes": conn.in_bytes, "out_msgs": conn.out_msgs,
            "out_bytes": conn.out_bytes, "subscriptions": conn.sub_count, "pending_bytes": conn.out.end - conn.out.start,
            "account": conn.acct.name[:conn.acct.name_len].decode(), "started_ns": conn.started_ns,
            "last_active_ns": conn.last_active_ns, "rtt_ns": conn.rtt_ns, "connected": bool(conn.connected),
        }

    # -- ends

    def flush(self):
        """Send waiting output, then close and free what has ended. Returns [(cid, reason, counters)] of the closed."""
        cdef uint32_t i
        cdef conn_t* conn
        if has_ends(&self.p):       # first, since what a connection sent after another CONNECT may be answered
            self._end_some(ends_share(&self.p))
            self._review_some(ends_share(&self.p))
            self._tell_some()
        if self.p.untold_queues.count:
            tell_queues(&self.p)
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
        if self.p.accts_idle:
            self._reap_accounts()
        if self.closed:
            closed, self.closed = self.closed, []
            return closed
        return ()

    cdef void _reap(self):
        cdef sub_t* sub
        cdef sink_t* sink
        cdef queue_t* queue
        self._reap_connections(ends_share(&self.p))
        while self.p.dead_subs != NULL:
            sub = self.p.dead_subs
            self.p.dead_subs = sub.prev_of_owner
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

    cdef void _reap_connections(self, uint32_t* share):
        """Close what has ended, and free what has no subscriptions left."""
        cdef conn_t* conn
        while self.p.dead_conns != NULL:
            conn = self.p.dead_conns
            self.p.dead_conns = conn.next_dead
            counters = self.connection(conn.cid)
            counters["subjects"] = rows_of(conn, CLOSED_ROWS_MAX)
            drop_ptr(&self.p.dirty_conns, conn)
            drop_ptr(&self.p.paused_conns, conn)
            drop_ptr(&self.p.resting_conns, conn)
            if conn.passed_over:
                drop_ptr(&self.p.passed_conns, conn)
            drop_ptr(&self.p.reviewed_conns, conn)
            self.closed.append((conn.cid, conn.reason, counters))
            self._forget(conn)
            if conn.fd >= 0:
                epoll_ctl(self.p.epfd, EPOLL_CTL_DEL, conn.fd, NULL)
                if conn.tls == NULL or tls_release(conn.tls):
                    c_close(conn.fd)    # a socket in a handshake is closed when the thread gives it back
                conn.fd = -1
            self.p.unread -= conn.counted
            conn.counted = 0
            if conn.ending:
                conn.ending = CLOSED
            elif end_subscriptions(&self.p, conn, share):
                free_conn(conn)
            else:
                conn.ending = CLOSED
                buf_free(&conn.out)
                push_ptr(&self.p.ending_conns, conn)

    cdef void _end_some(self, uint32_t* share):
        """Go on with the end of what has many subscriptions, the oldest first."""
        cdef conn_t* conn
        cdef route_t* route
        while self.p.ending_conns.count:
            conn = <conn_t*>self.p.ending_conns.items[0]
            if not end_subscriptions(&self.p, conn, share):
                return
            drop_ptr(&self.p.ending_conns, conn)
            if conn.ending == CLOSED:
                free_conn(conn)
                continue
            conn.ending = 0
            if conn.state == CONN_OPEN:     # else it is reaped by the next flush
                self._begin_again(conn, self.judged.pop(conn.cid))
        while self.p.ending_routes.count:
            route = <route_t*>self.p.ending_routes.items[0]
            if not end_route_subscriptions(&self.p, route, share):
                return
            drop_ptr(&self.p.ending_routes, route)
            free(route)

    cdef void _review_some(self, uint32_t* share):
        """Go on asking the subscriptions of those who were granted other rights, who waits longest first."""
        cdef conn_t* conn
        cdef bint done
        while self.p.reviewed_conns.count and share[0]:
            conn = <conn_t*>self.p.reviewed_conns.items[0]
            removed = []
            # Another CONNECT may have ended them all meanwhile, and with them the review.
            done = not conn.guard & GUARD_REVIEW or review_subscriptions(&self.p, conn, share, removed)
            tell = self.reviews[conn.cid]
            if done:
                drop_ptr(&self.p.reviewed_conns, conn)
                del self.reviews[conn.cid]
            if removed:
                tell(sorted(removed, key=BY_SID))

    cdef void _tell_some(self):
        """Go on with announcements of all interest; see Leafs and Plane."""

    cdef void _begin_again(self, conn_t* conn, options):
        """A connection that was held is as its CONNECT asked, and read on."""
        conn.held = 0
        self._accept(conn, options)
        if conn.state == CONN_OPEN and not conn.held:
            if conn.verbose:
                emit_text(&self.p, conn, b"+OK\r\n", 5)
            resume_conn(&self.p, conn)

    def next_wake_ns(self):
        """When the first paused producer is read again (monotonic ns); 0 if none is paused.

        At once when a connection had its share of a turn, or was passed over, or subscriptions have to end.
        """
        if self.p.resting_conns.count or self.p.passed_conns.count or has_ends(&self.p):
            return self.p.now_ns
        return 0 if self.p.paused_conns.count == 0 else self.p.wake_ns

    def housekeeping(
        self, int64_t ping_interval_ns, int ping_max, int64_t write_deadline_ns, int64_t leaf_deadline_ns=0
    ):
        """Ping idle clients, close stale and stuck ones, free idle buffers; called about once a second.

        Leaf nodes may have a deadline of their own (0: the same) for taking something of what waits.
        """
        cdef uint32_t i
        self.p.now_ns = jr_mono_ns()
        if self.p.answer_count:
            expire_answers(&self.p)
        for i in range(self.p.conns.count):
            look_after(&self.p, <conn_t*>self.p.conns.items[i], ping_interval_ns, ping_max, write_deadline_ns,
                       leaf_deadline_ns or write_deadline_ns)

    def connection_ids(self):
        """Ids of the open connections."""
        return list(self.conns)
