"""The data plane: connections (_connections.pyx), sinks (_sinks.pyx), and here peers, turns and watched descriptors.

One `turn()` reads every ready connection once, parses, routes and captures. The reactor then runs the handlers of dirty
sinks and calls `flush()`, which sends once per dirty connection and frees what has ended. Everything here runs in the
one trio thread; no Python object is made per message.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from jetraft.api.plane._accounts cimport Account, free_route_accounts
from jetraft.api.plane._deliver cimport drop_subscription, tell_interest
from jetraft.api.plane._ends cimport end_route_subscriptions, ends_share
from jetraft.api.plane._inspection cimport add_bucket, cached_answers, row_of, rows_from, rows_matching
from jetraft.api.plane._epoll cimport EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, epoll_ctl, epoll_event
from jetraft.api.plane._routes cimport route_record
from jetraft.api.plane._exchange cimport Exchange
from jetraft.api.plane._leafs cimport Telling
from jetraft.api.plane._permissions cimport UserPermissions, grant
from jetraft.api.plane._reader cimport RECV_BYTES, read_turn, resume_paused
from jetraft.api.plane._route_permissions cimport may_export
from jetraft.api.plane._share cimport note_cost
from jetraft.api.plane._tree cimport node_subject
from jetraft.api.plane._types cimport CONN_OPEN, GUARD_REVIEW, acct_t, conn_t, route_t, shadow_of, sid_of, sink_t, sub_t, text_t, watch_t
from jetraft.api.plane._unread cimport KEEP_LITTLE_BYTES, bound_unread, keep_within
from jetraft.api.plane._writer cimport buf_free, conn_send, drop_ptr, push_ptr

cdef enum:
    SEND_MUCH_BYTES = 16 * 1024         # takes as long to send as the deferred work of a turn


class RouteFormatError(ValueError):
    """A peer's route records are malformed."""


cdef class Plane(Exchange):
    """The data plane of one node. _plane.pyi has the types."""

    def __cinit__(self, **_options):
        self.routes = {}

    # -- peers

    def open_route(self, str name not None=""):
        """Open a route to a peer whose link came up; returns its id. The first records announce all local interest."""
        cdef route_t* route = <route_t*>calloc(1, sizeof(route_t))
        if route == NULL:
            raise MemoryError
        self.next_id += 1
        route.id = self.next_id
        push_ptr(&self.p.routes, route)
        self.routes[route.id] = <size_t>route
        self.route_names[route.id] = name
        self._announce_all(route, False)
        return route.id

    def open_accounts(self, route_id):
        """The peer understands records of other accounts: tell all interest of this node in them."""
        cdef route_t* route
        address = self.routes.get(route_id)
        if address is None:
            return
        route = <route_t*><size_t>address
        if not route.knows_accounts:
            route.knows_accounts = 1
            self._announce_all(route, True)

    def permit_routes(self, UserPermissions permissions):
        """Exchange what these permissions let peers have from now on; None: everything.

        What must not be told any more is taken back, what is not believed any more is forgotten. What is believed only from
        now on has to be told again by the peers.
        """
        cdef uint32_t i
        cdef sub_t* sub
        cdef sub_t* following
        cdef char text[8192]
        cdef Py_ssize_t n
        self.route_permissions = permissions
        self.p.route_perms = NULL if permissions is None else &permissions.p
        self.p.route_guard = 0
        for i in range(self.p.routes.count):
            sub = (<route_t*>self.p.routes.items[i]).subs
            while sub != NULL:
                following = sub.next_of_owner
                n = node_subject(sub.node, text, sizeof(text))
                if not may_export(&self.p, text, n):
                    drop_subscription(&self.p, sub)
                sub = following
        for route_id in self.routes:
            self.tell_again(route_id)

    def tell_again(self, route_id):
        """Tell a peer all interest of this node once more, and take back what it must not have."""
        cdef route_t* route
        address = self.routes.get(route_id)
        if address is None:
            return
        route = <route_t*><size_t>address
        self._announce_all(route, False, True)
        if route.knows_accounts:
            self._announce_all(route, True, True)

    def open_traces(self, route_id):
        """The peer knows messages that are for a trace only."""
        address = self.routes.get(route_id)
        if address is not None:
            (<route_t*><size_t>address).knows_traces = 1

    def open_origins(self, route_id):
        """The peer reads the origins of messages, and says those of its own."""
        address = self.routes.get(route_id)
        if address is not None:
            (<route_t*><size_t>address).knows_origins = 1

    cdef void _announce_all(self, route_t* route, bint others, bint retelling=False):
        """Announce the interest of `$G`, or of all other accounts, to a peer: that of this server, then of connections."""
        cdef uint32_t i
        cdef sub_t* sub
        cdef acct_t* acct
        cdef Telling telling = Telling()
        telling.route_id = route.id
        telling.others = others
        telling.retelling = retelling
        self._begin_telling(telling)
        self.p.retelling = retelling
        for i in range(self.p.sinks.count):
            sub = (<sink_t*>self.p.sinks.items[i]).subs
            while sub != NULL:
                self._announce_with_shadows(route, sub, others)
                sub = sub.next_of_owner
        for i in range(self.p.accts.count):
            acct = <acct_t*>self.p.accts.items[i]
            if acct != NULL and acct.answers != NULL:
                self._announce_sub(route, acct.answers, others)
        self.p.retelling = 0
        self._go_on(telling)

    cdef bint _is_told(self, Telling telling):
        return Exchange._is_told(self, telling) if telling.route_id is None else telling.route_id not in self.routes

    cdef uint32_t _tell_of(self, Telling telling, sub_t* sub):
        if telling.route_id is None:
            return Exchange._tell_of(self, telling, sub)
        return self._announce_with_shadows(<route_t*><size_t>self.routes[telling.route_id], sub, telling.others)

    cdef uint32_t _announce_with_shadows(self, route_t* route, sub_t* sub, bint others):
        cdef uint32_t count = 1
        self._announce_sub(route, sub, others)
        sub = sub.shadows
        while sub != NULL:
            self._announce_sub(route, sub, others)
            sub = shadow_of(sub).next
            count += 1
        return count

    cdef void _announce_sub(self, route_t* route, sub_t* sub, bint others):
        """Announce one subject or queue, once per full announcement, if it is of `$G` or of another account as asked."""
        if sub.local_only or (sub.acct.id != 0) != others:
            return
        if sub.queue != NULL:
            if sub.queue.announced != self.p.announcement:
                sub.queue.announced = self.p.announcement
                tell_interest(&self.p, sub.acct, route, sub.node, sub.queue, sub.queue.local_count)
        elif sub.node.announced != self.p.announcement:
            sub.node.announced = self.p.announcement
            tell_interest(&self.p, sub.acct, route, sub.node, NULL, sub.node.local_count)

    def close_route(self, route_id):
        """Close the route of a peer whose link went down, and remove its interest, much of it in the next turns."""
        cdef route_t* route
        address = self.routes.pop(route_id, None)
        self.route_names.pop(route_id, None)
        if address is None:
            return
        route = <route_t*><size_t>address
        self._hold(route, 0)
        drop_ptr(&self.p.routes, route)
        drop_ptr(&self.p.dirty_routes, route)
        free_route_accounts(&self.p, route)
        buf_free(&route.buf)
        if end_route_subscriptions(&self.p, route, ends_share(&self.p)):
            free(route)
        else:
            route.gone = 1
            push_ptr(&self.p.ending_routes, route)

    def limit_route_turn(self, size_t most):
        """Read little at a time once a turn has more than this for one peer; 0: no limit."""
        self.p.route_turn_bytes = most

    def hold_producers(self, route_id, int64_t pause_ns):
        """From now on a connection that sends something to this peer is not read for so long; 0: the peer keeps up.

        Only what connections send is held. What nodes say to each other is not read by the plane's turn.
        """
        address = self.routes.get(route_id)
        if address is not None:
            self._hold(<route_t*><size_t>address, pause_ns)

    cdef void _hold(self, route_t* route, int64_t pause_ns):
        self.p.slow_routes += <uint32_t>(pause_ns != 0) - <uint32_t>(route.pause_ns != 0)
        route.pause_ns = pause_ns
        if self.p.slow_routes == 0 and self.p.paused_conns.count:
            resume_paused(&self.p)

    def take_routes(self):
        """Take [(route id, records)] of the peers with waiting records; each becomes one frame."""
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
                if route.buf.cap > self.p.keep_bytes:
                    buf_free(&route.buf)
        self.p.dirty_routes.count = 0
        self.p.route_full = 0
        return out

    def on_route(self, route_id, const uint8_t[::1] records):
        """Act on a peer's records. Raises RouteFormatError when they are malformed; the link has to be closed then."""
        cdef Py_ssize_t at = 0, n = records.shape[0], used
        cdef route_t* route
        cdef bint knew
        address = self.routes.get(route_id)
        if address is None:
            return
        route = <route_t*><size_t>address
        knew = route.knows_accounts
        while at < n:
            used = route_record(&self.p, route, <const char*>&records[0] + at, n - at)
            if used <= 0:
                raise RouteFormatError(f"bad route record at byte {at} of {n}")
            at += used
        if route.knows_accounts and not knew:
            self._announce_all(route, True)     # who sends such records understands them

    # -- a new configuration

    def stall_producers(self, bint wanted):
        """Pause who publishes to a slow receiver, as at first, or none."""
        self.p.stalls_producers = wanted

    def limit_tokens(self, uint32_t most):
        """Refuse subscriptions to subjects of more tokens; 0: none."""
        self.p.max_sub_tokens = most

    def limit_unread(self, size_t most):
        """Bound the bytes that wait for all connections together, for the first time before the first of them."""
        self.p.max_unread = most
        self.p.keep_bytes = KEEP_LITTLE_BYTES
        self.p.bound_unread = bound_unread
        keep_within(&self.p)

    def unread_bytes(self):
        """What buffers of what waits for all connections take, if there is a bound."""
        return self.p.unread

    def follow_limits(self, *, int64_t max_payload, int64_t max_control_line):
        """Keep to other limits from the next message on. Between turns, when nothing is being read."""
        cdef size_t wanted = RECV_BYTES + max_payload + max_control_line + 64
        cdef char* larger
        if wanted > self.p.recv_cap:    # never smaller: what a connection has kept was within the limits before
            larger = <char*>realloc(self.p.recv_buf, wanted)
            if larger == NULL:
                raise MemoryError
            self.p.recv_buf = larger
            self.p.recv_cap = wanted
        self.p.max_payload = max_payload
        self.p.max_control_line = max_control_line

    def regrant(self, cid, UserPermissions permissions, tell):
        """Let a connection have other permissions from now on.

        What it may not subscribe to now receives nothing any more. It ends at once, or over several turns if the connection
        has many: `tell` is called with (subject, queue, sid) of those that ended, each time.
        """
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL:
            return
        grant(conn, permissions)
        self.granted.pop(cid, None)
        if permissions is not None:
            self.granted[cid] = permissions
        self._judge_otherwise(cid, {"permissions": permissions})
        if conn.state != CONN_OPEN:     # its subscriptions end anyway
            return
        conn.guard |= GUARD_REVIEW
        conn.reviewed_buckets = 0
        if cid not in self.reviews:
            push_ptr(&self.p.reviewed_conns, conn)
        self.reviews[cid] = tell
        self._review_some(ends_share(&self.p))

    # -- turns

    def turn(self, int64_t timeout_ns=0):
        """Wait for a ready descriptor for `timeout_ns` at most, then read every ready connection once.

        Returns the number of ready descriptors.
        """
        cdef int n
        with nogil:
            n = read_turn(&self.p, timeout_ns)
        return n

    def note_turn(self, int64_t ended_ns):
        """The turn ended then, with all that was done of what it read (monotonic ns)."""
        note_cost(&self.p, ended_ns - self.p.now_ns)

    def watch(self, int fd):
        """End the wait of a turn when this descriptor is readable; `take_ready` returns it. The caller owns it."""
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
        """Stop watching; call it before the descriptor is closed."""
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
        """Send output of SEND_MUCH_BYTES or more now, so that its receivers work while the turn continues."""
        cdef uint32_t i
        cdef conn_t* conn
        with nogil:
            for i in range(self.p.dirty_conns.count):
                conn = <conn_t*>self.p.dirty_conns.items[i]
                if conn.out.end - conn.out.start >= SEND_MUCH_BYTES and conn.state == CONN_OPEN and not conn.want_write:
                    conn_send(&self.p, conn)

    # -- for monitoring

    def subscriptions_from(self, cid, uint32_t bucket, uint32_t most):
        """How many buckets a connection's subscriptions are in, the next one to look at, and `most` rows or a few more.

        Rows are as in _inspection.pyx; there are fewer when the last bucket was looked at. No buckets: it has ended.
        What is added meanwhile has its bucket behind all, and takes some of another one there: a row may come twice.
        """
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL:
            return 0, 0, []
        rows = []
        while bucket < conn.bucket_count and len(rows) < most:
            add_bucket(rows, conn, bucket)
            bucket += 1
        return conn.bucket_count, bucket, rows

    def subscription_rows(self, uint64_t offset, uint64_t most, *, Account account=None):
        """How many subscriptions clients and sinks have (in an account), and the rows of some of them."""
        return rows_from(&self.p, NULL if account is None else account.within(&self.p), offset, most)

    def receivers(self, Account account not None, bytes subject, uint64_t offset, uint64_t most):
        """How many local subscriptions of an account receive messages of a subject, and the rows of some of them."""
        return rows_matching(&self.p, account.within(&self.p), subject, offset, most)

    def cached_answers(self, Account account=None):
        """Current answers in the cache (of an account): how many, their receivers in all, the most of one."""
        return cached_answers(&self.p, NULL if account is None else account.within(&self.p))

    def route_figures(self, route_id):
        """Messages and bytes of a route, its subscriptions, and the bytes that wait in it; None when it has ended."""
        cdef route_t* route
        cdef sub_t* sub
        cdef uint32_t subs = 0
        address = self.routes.get(route_id)
        if address is None:
            return None
        route = <route_t*><size_t>address
        sub = route.subs
        while sub != NULL:
            subs += 1
            sub = sub.next_of_owner
        return {
            "in_msgs": route.in_msgs, "out_msgs": route.out_msgs, "in_bytes": route.in_bytes,
            "out_bytes": route.out_bytes, "subscriptions": subs, "pending_size": route.buf.end - route.buf.start,
        }

    def route_rows(self, route_id, uint64_t most, uint64_t skipped=0):
        """The interest of a peer behind the first ones, `most` subscriptions at most."""
        cdef sub_t* sub
        address = self.routes.get(route_id)
        rows = []
        sub = NULL if address is None else (<route_t*><size_t>address).subs
        while sub != NULL and len(rows) < most:
            if skipped:
                skipped -= 1
            else:
                rows.append(row_of(sub))
            sub = sub.next_of_owner
        return rows

    def statistics(self):
        """Counters since the start, and current numbers."""
        return {
            "connections": len(self.conns) - self.leaf_count, "leafnodes": self.leaf_count, "total_connections": self.next_cid, "subscriptions": self.p.sub_count,
            "in_msgs": self.p.in_msgs, "in_bytes": self.p.in_bytes, "out_msgs": self.p.out_msgs,
            "out_bytes": self.p.out_bytes, "slow_consumers": self.p.slow_consumers, "turns": self.p.turns,
            "sends": self.p.sends, "recvs": self.p.recvs, "cache_misses": self.p.cache_misses, "stalls": self.p.stalls,
            "routed_in_msgs": self.p.routed_in_msgs, "routed_in_bytes": self.p.routed_in_bytes,
            "routed_out_msgs": self.p.routed_out_msgs, "routed_out_bytes": self.p.routed_out_bytes,
            "sinks": len(self.sinks), "routes": len(self.routes), "accounts": len(self.accounts),
            "answers_waiting": self.p.answer_count,
        }
