"""The data plane: connections (_connections.pyx), sinks (_sinks.pyx), and here peers, turns and what else is watched.

One `turn()` reads every ready connection once, parses, routes and captures; the shell then lets the handlers of dirty
sinks run and calls `flush()`, which sends once per dirty connection and frees what has ended. Everything here runs in
the one trio thread; no Python object is made per message.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from jetraft.api.routing._connections cimport drop_ptr
from jetraft.api.routing._deliver cimport drop_subscription, tell_interest
from jetraft.api.routing._routes cimport route_record
from jetraft.api.routing._sinks cimport Sinks
from jetraft.api.wire._reader cimport read_turn
from jetraft.api.wire._types cimport CONN_OPEN, conn_t, route_t, sink_t, sub_t, watch_t
from jetraft.api.wire._writer cimport buf_free, conn_send, push_ptr

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
    BUF_KEEP_BYTES = 4 * 1024 * 1024
    SEND_MUCH_BYTES = 16 * 1024         # takes as long to send as a turn's work that can be put off


class RouteFormatError(ValueError):
    """A peer's route records do not have the form that they must have."""


cdef class Plane(Sinks):
    """The data plane of one node. See plane.pyi for the typed face."""

    def __cinit__(self, **_options):
        self.routes = {}

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
        self.p.telling += 1
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
            if sub.queue.told != self.p.telling:
                sub.queue.told = self.p.telling
                tell_interest(&self.p, route, sub.node, sub.queue, sub.queue.local_count)
        elif sub.node.told != self.p.telling:
            sub.node.told = self.p.telling
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

    def send_much(self):
        """Send now where much waits: the receivers begin to work while this turn goes on."""
        cdef uint32_t i
        cdef conn_t* conn
        with nogil:
            for i in range(self.p.dirty_conns.count):
                conn = <conn_t*>self.p.dirty_conns.items[i]
                if conn.out.end - conn.out.start >= SEND_MUCH_BYTES and conn.state == CONN_OPEN and not conn.want_write:
                    conn_send(&self.p, conn)

    def statistics(self):
        """Counters since start and sizes now."""
        return {
            "connections": len(self.conns), "total_connections": self.next_cid, "subscriptions": self.p.sub_count,
            "in_msgs": self.p.in_msgs, "in_bytes": self.p.in_bytes, "out_msgs": self.p.out_msgs,
            "out_bytes": self.p.out_bytes, "slow_consumers": self.p.slow_consumers, "turns": self.p.turns,
            "sends": self.p.sends, "recvs": self.p.recvs, "cache_misses": self.p.cache_misses, "stalls": self.p.stalls,
            "sinks": len(self.sinks), "routes": len(self.routes),
        }
