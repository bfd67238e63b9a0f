"""The data plane: connections, sinks, peers, turns.

One `turn()` reads every ready connection once, parses, routes and captures; the shell then lets the handlers of dirty
sinks run and calls `flush()`, which sends once per dirty connection and frees what has ended. Everything here runs in
the one trio thread; no Python object is made per message.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from jetraft.api.routing._deliver cimport deliver, drop_subscription, match_for, tell_interest
from jetraft.api.routing._routes cimport route_record
from jetraft.api.routing._sublist cimport node_subject, sublist_add, sublist_free, sublist_init
from jetraft.api.wire._reader cimport RECV_BYTES, feed_conn, read_turn
from jetraft.api.wire._text cimport jr_mono_ns, valid_subject
from jetraft.api.wire._types cimport (
    CLOSE_SLOW_DEADLINE,
    CLOSE_STALE,
    CONN_OPEN,
    SUB_SINK,
    CloseReason,
    conn_t,
    match_t,
    msg_t,
    plane_t,
    ptrs_t,
    queue_t,
    route_t,
    sink_t,
    sub_t,
    watch_t,
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
    CAPTURE_HEAD = 20
    BUF_KEEP_BYTES = 4 * 1024 * 1024
    IDLE_BUFFER_NS = 1_000_000_000      # an output buffer unused for a second is given back


class RouteFormatError(ValueError):
    """A peer's route records do not have the form that they must have."""


cdef void connect_callback(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept with gil:
    (<Plane>plane.face)._connect(conn, p, n)


cdef void first_ping_callback(plane_t* plane, conn_t* conn) noexcept with gil:
    (<Plane>plane.face)._first_ping(conn)


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


cdef class Plane:
    """The data plane of one node. See plane.pyi for the typed face."""

    def __cinit__(self, *, int64_t max_payload, int64_t max_control_line, int64_t max_pending, int64_t max_subscriptions,
                  connect_handler, first_ping_handler):
        self.p.seed = int.from_bytes(os.urandom(8), "little")
        self.p.rng = int.from_bytes(os.urandom(8), "little") | 1
        self.p.max_payload = max_payload
        self.p.max_control_line = max_control_line
        self.p.max_pending = max_pending
        self.p.max_subscriptions = max_subscriptions
        sublist_init(&self.p)
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
        self.sinks = {}
        self.sink_ptrs = {}
        self.routes = {}
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
        if self.p.cache != NULL:
            sublist_free(&self.p)

    def fileno(self):
        """The epoll descriptor: readable when a turn has something to do."""
        return self.p.epfd

    # -- connections

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

    # -- sinks

    def add_sink(self, bytes subject, handler, *, bytes queue=b"", bint local_only=False):
        """Subscribe `handler` (called with a capture batch once a turn); returns the handle for remove_sink."""
        cdef sink_t* sink
        if not valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"invalid subject {subject!r}")
        sink = <sink_t*>calloc(1, sizeof(sink_t))
        if sink == NULL:
            raise MemoryError
        self.next_id += 1
        sink.id = self.next_id
        push_ptr(&self.p.sinks, sink)
        self.sinks[sink.id] = handler
        self.sink_ptrs[sink.id] = <size_t>sink
        self.extend_sink(sink.id, subject, queue=queue, local_only=local_only)
        return sink.id

    def extend_sink(self, handle, bytes subject, *, bytes queue=b"", bint local_only=False):
        """Capture another subject into the same batches, so that messages of both keep their order."""
        cdef sub_t* sub
        cdef sink_t* sink = <sink_t*><size_t>self.sink_ptrs[handle]
        if not valid_subject(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"invalid subject {subject!r}")
        sub = <sub_t*>calloc(1, sizeof(sub_t))
        if sub == NULL:
            raise MemoryError
        sub.kind = SUB_SINK
        sub.sink = sink
        sub.local_only = local_only
        sub.next_of_owner = sink.subs
        if sink.subs != NULL:
            sink.subs.prev_of_owner = sub
        sink.subs = sub
        if sublist_add(&self.p, sub, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue)):
            tell_interest(&self.p, NULL, sub.node, sub.queue, sub.queue.local_count if sub.queue != NULL else 1)

    def remove_sink(self, handle):
        """End a sink; what it captured in this turn and was not handled yet is dropped."""
        cdef sink_t* sink
        cdef uint32_t i
        address = self.sink_ptrs.pop(handle, None)
        self.sinks.pop(handle, None)
        if address is None:
            return
        sink = <sink_t*><size_t>address
        while sink.subs != NULL:
            drop_subscription(&self.p, sink.subs)
        sink.closed = 1
        for i in range(self.p.sinks.count):
            if self.p.sinks.items[i] == sink:
                self.p.sinks.count -= 1
                self.p.sinks.items[i] = self.p.sinks.items[self.p.sinks.count]
                break
        sink.next_dead = self.p.dead_sinks
        self.p.dead_sinks = sink

    def run_sinks(self):
        """Hand every dirty sink's batch to its handler; handlers may publish, which may dirty sinks again."""
        cdef sink_t* sink
        cdef uint32_t count
        cdef list batches
        while self.p.dirty_sinks.count:
            batches = []
            count = self.p.dirty_sinks.count
            for i in range(count):
                sink = <sink_t*>self.p.dirty_sinks.items[i]
                sink.dirty = 0
                if not sink.closed and sink.buf.end:
                    batches.append((sink.id, PyBytes_FromStringAndSize(sink.buf.data, sink.buf.end)))
                sink.buf.start = sink.buf.end = 0
                if sink.buf.cap > BUF_KEEP_BYTES:
                    buf_free(&sink.buf)
            self.p.dirty_sinks.count = 0
            for sink_id, batch in batches:
                handler = self.sinks.get(sink_id)
                if handler is not None:
                    handler(batch)

    # -- publishing from Python

    def send(self, bytes to, *, bytes subject=None, bytes reply=b"", bytes hdr=b"", bytes payload=b""):
        """Deliver to the subscribers of `to`, who see `subject`; returns the number of receivers, a peer counting once."""
        cdef msg_t msg
        cdef bytes data = hdr + payload if hdr else payload
        msg.subject = PyBytes_AS_STRING(to)
        msg.subject_len = <uint16_t>PyBytes_GET_SIZE(to)
        if subject is None:
            msg.shown = msg.subject
            msg.shown_len = msg.subject_len
        else:
            msg.shown = PyBytes_AS_STRING(subject)
            msg.shown_len = <uint16_t>PyBytes_GET_SIZE(subject)
        msg.reply = PyBytes_AS_STRING(reply)
        msg.reply_len = <uint16_t>PyBytes_GET_SIZE(reply)
        msg.data = PyBytes_AS_STRING(data)
        msg.hdr_len = <uint32_t>PyBytes_GET_SIZE(hdr)
        msg.size = <uint32_t>PyBytes_GET_SIZE(data)
        return deliver(&self.p, NULL, &msg, match_for(&self.p, msg.subject, msg.subject_len))

    def send_batch(self, bytes records):
        """Deliver capture records back to back, each to the subject that it carries; returns the receivers in all."""
        cdef const char* p = PyBytes_AS_STRING(records)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(records), at = 0
        cdef uint32_t length, payload_len
        cdef uint64_t taken = 0
        cdef msg_t msg
        while at < n:
            if n - at < CAPTURE_HEAD:
                raise ValueError(f"capture record cut short at byte {at} of {n}")
            memcpy(&length, p + at, 4)
            memcpy(&msg.hdr_len, p + at + 4, 4)
            memcpy(&payload_len, p + at + 8, 4)
            memcpy(&msg.subject_len, p + at + 12, 2)
            memcpy(&msg.reply_len, p + at + 14, 2)
            if length != CAPTURE_HEAD + <int64_t>msg.subject_len + msg.reply_len + msg.hdr_len + payload_len or length > n - at:
                raise ValueError(f"capture record does not add up at byte {at} of {n}")
            msg.subject = msg.shown = p + at + CAPTURE_HEAD
            msg.shown_len = msg.subject_len
            msg.reply = msg.subject + msg.subject_len
            msg.data = msg.reply + msg.reply_len
            msg.size = msg.hdr_len + payload_len
            taken += deliver(&self.p, NULL, &msg, match_for(&self.p, msg.subject, msg.subject_len))
            at += length
        return taken

    def has_interest(self, bytes subject):
        """True when a client, a sink or a peer wants messages of this subject."""
        cdef match_t* match = match_for(&self.p, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        return match.count > 0 or match.group_count > 0

    def note_interest(self, bint wanted):
        """Begin or stop to remember which subscriptions come and go."""
        self.p.note_interest = wanted

    def take_interest_changes(self):
        """The subjects of the subscriptions that came or went since the last call, in order."""
        cdef uint16_t n
        cdef size_t at = 0
        if self.p.interest_changes.end == 0:
            return ()
        subjects = []
        while at < self.p.interest_changes.end:
            memcpy(&n, self.p.interest_changes.data + at, 2)
            subjects.append(PyBytes_FromStringAndSize(self.p.interest_changes.data + at + 2, n))
            at += 2 + n
        self.p.interest_changes.start = self.p.interest_changes.end = 0
        return subjects

    # -- peers

    def open_route(self):
        """A peer's link came up: returns its route id; its first records tell all interest of this node."""
        cdef route_t* route = <route_t*>calloc(1, sizeof(route_t))
        if route == NULL:
            raise MemoryError
        self.next_id += 1
        route.id = self.next_id
        push_ptr(&self.p.routes, route)
        self.routes[route.id] = <size_t>route
        self._tell_all(route)
        return route.id

    cdef void _tell_all(self, route_t* route):
        cdef uint32_t i, j
        cdef conn_t* conn
        cdef sub_t* sub
        self.p.stamp += 1
        for i in range(self.p.conns.count):
            conn = <conn_t*>self.p.conns.items[i]
            for j in range(conn.bucket_count):
                sub = conn.buckets[j]
                while sub != NULL:
                    self._tell_sub(route, sub)
                    sub = sub.next_in_bucket
        for i in range(self.p.sinks.count):
            sub = (<sink_t*>self.p.sinks.items[i]).subs
            while sub != NULL:
                if not sub.local_only:
                    self._tell_sub(route, sub)
                sub = sub.next_of_owner

    cdef void _tell_sub(self, route_t* route, sub_t* sub):
        """Tell one subject or queue once per full telling."""
        if sub.queue != NULL:
            if sub.queue.told_stamp != self.p.stamp:
                sub.queue.told_stamp = self.p.stamp
                tell_interest(&self.p, route, sub.node, sub.queue, sub.queue.local_count)
        elif sub.node.told_stamp != self.p.stamp:
            sub.node.told_stamp = self.p.stamp
            tell_interest(&self.p, route, sub.node, NULL, sub.node.local_count)

    def close_route(self, route_id):
        """A peer's link went down: its interest ends."""
        cdef route_t* route
        cdef uint32_t i
        address = self.routes.pop(route_id, None)
        if address is None:
            return
        route = <route_t*><size_t>address
        while route.subs != NULL:
            drop_subscription(&self.p, route.subs)
        drop_ptr(&self.p.routes, route)
        drop_ptr(&self.p.dirty_routes, route)
        buf_free(&route.buf)
        free(route)

    def take_routes(self):
        """[(route id, records)] of the peers for which something waits; each goes out as one frame."""
        cdef route_t* route
        cdef uint32_t i
        if self.p.dirty_routes.count == 0:
            return ()
        out = []
        for i in range(self.p.dirty_routes.count):
            route = <route_t*>self.p.dirty_routes.items[i]
            route.dirty = 0
            if route.buf.end:
                out.append((route.id, PyBytes_FromStringAndSize(route.buf.data, route.buf.end)))
                route.buf.start = route.buf.end = 0
                if route.buf.cap > BUF_KEEP_BYTES:
                    buf_free(&route.buf)
        self.p.dirty_routes.count = 0
        return out

    def on_route(self, route_id, const uint8_t[::1] records):
        """Act on a peer's records. Raises RouteFormatError (the link is to be closed) when they are malformed."""
        cdef Py_ssize_t at = 0, n = records.shape[0], used
        address = self.routes.get(route_id)
        if address is None:
            return
        while at < n:
            used = route_record(&self.p, <route_t*><size_t>address, <const char*>&records[0] + at, n - at)
            if used <= 0:
                raise RouteFormatError(f"bad route record at byte {at} of {n}")
            at += used

    # -- turns

    def turn(self, int64_t timeout_ns=0):
        """Read every ready connection once, after waiting for one. Returns the number of ready descriptors."""
        cdef int n
        with nogil:
            n = read_turn(&self.p, timeout_ns)
        return n

    def watch(self, int fd):
        """End a waiting turn when this descriptor is readable; `take_ready` then names it. The caller owns it."""
        cdef epoll_event event
        cdef watch_t* watch = <watch_t*>calloc(1, sizeof(watch_t))
        if watch == NULL:
            raise MemoryError
        watch.fd = fd
        event.events = EPOLLIN
        event.data.ptr = <void*>(<size_t>watch | 1)
        if epoll_ctl(self.p.epfd, EPOLL_CTL_ADD, fd, &event) < 0:
            free(watch)
            raise OSError(errno, "epoll_ctl")
        push_ptr(&self.p.watches, watch)

    def unwatch(self, int fd):
        """Stop watching; to be called before the descriptor is closed."""
        cdef watch_t* watch
        cdef uint32_t i
        for i in range(self.p.watches.count):
            watch = <watch_t*>self.p.watches.items[i]
            if watch.fd == fd:
                epoll_ctl(self.p.epfd, EPOLL_CTL_DEL, fd, NULL)
                drop_ptr(&self.p.watches, watch)
                free(watch)
                return

    def take_ready(self):
        """The watched descriptors that were readable in the last turn."""
        cdef watch_t* watch
        cdef uint32_t i
        if self.p.ready_watches == 0:
            return ()
        self.p.ready_watches = 0
        ready = []
        for i in range(self.p.watches.count):
            watch = <watch_t*>self.p.watches.items[i]
            if watch.ready:
                watch.ready = 0
                ready.append(watch.fd)
        return ready

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
            free(sub.sid)
            free(sub)
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

    def statistics(self):
        """Counters since start and sizes now."""
        return {
            "connections": len(self.conns), "total_connections": self.next_cid, "subscriptions": self.p.sub_count,
            "in_msgs": self.p.in_msgs, "in_bytes": self.p.in_bytes, "out_msgs": self.p.out_msgs,
            "out_bytes": self.p.out_bytes, "slow_consumers": self.p.slow_consumers, "turns": self.p.turns,
            "sends": self.p.sends, "recvs": self.p.recvs, "cache_misses": self.p.cache_misses, "stalls": self.p.stalls,
            "sinks": len(self.sinks), "routes": len(self.routes),
        }
