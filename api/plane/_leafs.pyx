"""Connections to leaf nodes and hubs: opened, taken into an account, and what they have told."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from jetraft.api.plane._ends cimport ends_share
from jetraft.api.plane._leaf_interest cimport announce_to_leaf, announce_with_shadows, tell_leafs
from jetraft.api.plane._packing cimport packing_of
from jetraft.api.plane._permissions cimport grant
from jetraft.api.plane._feed cimport resume_conn
from jetraft.api.plane._sinks cimport Sinks
from jetraft.api.plane._types cimport (
    CLOSE_PROTOCOL,
    CLOSE_WRITE_ERROR,
    CONN_OPEN,
    LEAF_PICKS_MAX,
    conn_t,
    leaf_pick_t,
    leaf_t,
    packed_t,
    plane_t,
    route_t,
    service_import_t,
    sink_t,
    sub_t,
)
from jetraft.api.plane._writer cimport conn_close, conn_send, conn_watch, emit_text

cdef enum:
    NAME_BYTES_MAX = 255        # of a cluster, of a domain


cdef void leaf_text_callback(plane_t* plane, conn_t* conn, int kind, const char* p, Py_ssize_t n) noexcept with gil:
    (<Leafs>plane.owner)._leaf_text(conn, kind, p, n)


cdef class Telling:
    pass


cdef class Leafs(Sinks):
    """Connections, sinks, and connections to other servers' leaf nodes."""

    def __cinit__(self, *, leaf_handler=None, **_options):
        self.leaf_handler = leaf_handler
        self.tellings = []
        self.p.on_leaf_text = leaf_text_callback
        self.p.on_interest = tell_leafs
        self.p.leaf_picks = <leaf_pick_t*>malloc(LEAF_PICKS_MAX * sizeof(leaf_pick_t))
        if self.p.leaf_picks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.p.leaf_picks)
        free(self.p.leafs_due.items)

    cdef void _leaf_text(self, conn_t* conn, int kind, const char* p, Py_ssize_t n):
        """Let the handler act on a line; a connection whose line cannot be handled is closed."""
        try:
            self.leaf_handler(conn.cid, kind, p[:n])
        except Exception:
            conn_close(&self.p, conn, CLOSE_PROTOCOL)
            raise

    def set_domain(self, bytes domain not None):
        """From now on `$JS.<domain>.API.x` is another name of `$JS.API.x`, in every account; without one it is none."""
        if len(domain) > NAME_BYTES_MAX:
            raise ValueError(f"a domain of {len(domain)} bytes")
        self.p.domain_len = <uint8_t>len(domain)
        memcpy(self.p.domain, PyBytes_AS_STRING(domain), PyBytes_GET_SIZE(domain))

    def open_leaf(self, int fd, *, bint solicited):
        """Take over a socket that another server connected, or that this one did (`solicited`); returns its id."""
        cid = self.open(fd, b"", auth_required=True)
        self.become_leaf(cid, solicited=solicited)
        return cid

    def become_leaf(self, cid, *, bint solicited):
        """Another server is behind a connection that was opened just now, or upgraded."""
        cdef conn_t* conn = self._conn(cid)
        cdef leaf_t* leaf
        if conn == NULL or conn.state != CONN_OPEN or conn.leaf != NULL:
            return
        leaf = <leaf_t*>calloc(1, sizeof(leaf_t))
        if leaf == NULL:
            raise MemoryError
        conn.verbose = conn.pedantic = conn.echo = 0
        conn.leaf = leaf
        leaf.conn = conn
        leaf.solicited = solicited
        self.leaf_count += 1

    def hold(self, cid):
        """Do not read a connection until it is admitted, read on or closed: who it is, is being found out."""
        cdef conn_t* conn = self._conn(cid)
        if conn != NULL and conn.state == CONN_OPEN:
            conn.held = 1
            conn.paused = 1
            conn_watch(&self.p, conn)

    def read_on(self, cid):
        """Read a connection that was held before anything was read of it."""
        cdef conn_t* conn = self._conn(cid)
        if conn != NULL and conn.state == CONN_OPEN and conn.held:
            conn.held = 0
            resume_conn(&self.p, conn)

    def pack_leaf(self, cid, int mode, rtts_ns=()):
        """Compress what is sent from now on (Packing), and expect the same; what waits is sent as it is. False: it is gone.

        With PACKS_AUTO a mode is used up to a round trip, by its number; beyond the last one, that one or the best.
        """
        cdef conn_t* conn = self._conn(cid)
        cdef packed_t* packed
        if conn == NULL or conn.state != CONN_OPEN or conn.leaf == NULL or conn.packed != NULL:
            return False
        conn_send(&self.p, conn)
        if conn.state != CONN_OPEN or conn.out.start < conn.out.end or (conn.ws != NULL and conn.ws.wire_start < conn.ws.wire_end):
            conn_close(&self.p, conn, CLOSE_WRITE_ERROR)
            return False
        packed = <packed_t*>calloc(1, sizeof(packed_t))
        if packed == NULL:
            raise MemoryError
        packed.mode = <uint8_t>mode
        for rtt_ns in rtts_ns[:4]:
            packed.rtts_ns[packed.rtt_count] = rtt_ns
            packed.rtt_count += 1
        if conn.rtt_ns == 0:
            conn.rtt_ns = max(self.p.now_ns - conn.started_ns, 1)
        conn.packed = packed
        return True

    def packing(self, cid):
        """How a connection compresses now (Packing); None when it does not."""
        cdef conn_t* conn = self._conn(cid)
        return None if conn == NULL or conn.packed == NULL else <int>packing_of(conn)

    def admit_leaf(self, cid, *, str account not None, bytes cluster not None, bint spoke, bint isolated, bint headers, permissions):
        """Exchange interest and messages of an account over a connection from now on; False when it is gone.

        Interest is told from now on, much of it in the next turns. `permissions`: what may be published over it enters, what may be subscribed leaves.
        """
        cdef conn_t* conn = self._conn(cid)
        cdef leaf_t* leaf
        if conn == NULL or conn.state != CONN_OPEN or conn.leaf == NULL or conn.leaf.admitted:
            return False
        leaf = conn.leaf
        self._enter(conn, self._account(account.encode()))
        self._limit(conn, -1, -1)
        leaf.cluster_len = <uint8_t>min(len(cluster), NAME_BYTES_MAX)
        memcpy(leaf.cluster, PyBytes_AS_STRING(cluster), leaf.cluster_len)
        leaf.spoke = spoke
        leaf.isolated = isolated
        leaf.admitted = 1
        conn.connected = 1
        conn.headers = headers
        grant(conn, permissions)
        if permissions is not None:
            self.granted[cid] = permissions
        leaf.next = conn.acct.leafs
        conn.acct.leafs = leaf
        self._tell_all(leaf)
        if conn.held:
            conn.held = 0
            resume_conn(&self.p, conn)
        return True

    cdef void _tell_all(self, leaf_t* leaf):
        cdef uint32_t i
        cdef sub_t* sub
        cdef service_import_t* service
        cdef Telling telling = Telling()
        telling.cid = leaf.conn.cid
        telling.routes = [(<route_t*>self.p.routes.items[i]).id for i in range(self.p.routes.count)]
        self._begin_telling(telling)
        for i in range(self.p.sinks.count):
            sub = (<sink_t*>self.p.sinks.items[i]).subs
            while sub != NULL:
                announce_with_shadows(&self.p, leaf, sub)
                sub = sub.next_of_owner
        service = leaf.conn.acct.services
        while service != NULL:
            announce_to_leaf(&self.p, leaf, service.sub)
            service = service.next
        if leaf.conn.acct.answers != NULL:
            announce_to_leaf(&self.p, leaf, leaf.conn.acct.answers)
        self._go_on(telling)

    # -- announcements

    cdef void _begin_telling(self, Telling telling):
        """Number an announcement: what it tells first is not told again by its rest."""
        self.p.announcements += 1
        self.p.announcement = telling.number = self.p.announcements
        telling.cids = list(self.conns)

    cdef void _go_on(self, Telling telling):
        """Tell what the share of this turn allows, in the order in which announcements began; the rest has others."""
        self.tellings.append(telling)
        self.p.tellings += 1
        self._tell_some()

    cdef void _tell_some(self):
        cdef uint32_t* share = ends_share(&self.p)
        cdef Telling telling
        while self.tellings:
            telling = self.tellings[0]
            self.p.announcement = telling.number
            self.p.retelling = telling.retelling
            ended = self._is_told(telling) or self._tell_more(telling, share)
            self.p.retelling = 0
            if not ended:
                return
            self.p.told_next = NULL
            self.p.tellings -= 1
            self.tellings.pop(0)

    cdef bint _tell_more(self, Telling telling, uint32_t* share):
        """Go on until the share is used up; True when all is told."""
        cdef conn_t* conn
        cdef sub_t* sub
        cdef uint32_t i, told
        while telling.at < len(telling.cids):
            conn = self._conn(telling.cids[telling.at])
            while conn != NULL and telling.bucket < conn.bucket_count:
                if share[0] == 0:
                    return False
                told = 1
                sub = conn.buckets[telling.bucket]
                while sub != NULL:
                    told += self._tell_of(telling, sub)
                    sub = sub.next_in_bucket
                share[0] -= min(told, share[0])
                telling.bucket += 1
            telling.bucket = 0
            telling.at += 1
        while telling.routes is not None and telling.route_at < len(telling.routes):
            for i in range(0 if telling.inside else self.p.routes.count):
                if (<route_t*>self.p.routes.items[i]).id == telling.routes[telling.route_at]:
                    self.p.told_next = (<route_t*>self.p.routes.items[i]).subs
            telling.inside = True
            while self.p.told_next != NULL:
                if share[0] == 0:
                    return False
                sub = self.p.told_next
                self.p.told_next = sub.next_of_owner
                self._tell_of(telling, sub)
                share[0] -= 1
            telling.inside = False
            telling.route_at += 1
        return True

    cdef bint _is_told(self, Telling telling):
        """Whether the one that was told of all interest is gone."""
        cdef conn_t* conn = self._conn(telling.cid)
        return conn == NULL or conn.state != CONN_OPEN

    cdef uint32_t _tell_of(self, Telling telling, sub_t* sub):
        """Tell of a subscription and its shadows; returns their number."""
        cdef conn_t* conn = self._conn(telling.cid)
        return announce_with_shadows(&self.p, conn.leaf, sub)
