"""The data plane with WebSocket: connections whose bytes are HTTP first, and frames after their upgrade.

Python reads the requests of others (api/websocket/clients.py) and the answers to its own (api/leafnodes/web.py), a call
for each receive; after that no byte of a frame reaches it but those of compressed messages.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

from jetraft.api.plane._secure cimport SecurePlane
from jetraft.api.plane._types cimport CLOSE_PROTOCOL, CONN_OPEN, conn_t, plane_t
from jetraft.api.plane._webreader cimport read_web
from jetraft.api.plane._writer cimport conn_close, conn_wake
from jetraft.api.websocket._common cimport WebSocketCommon
from jetraft.api.websocket._frames cimport ws_new
from jetraft.api.websocket._sending cimport wire_append
from jetraft.api.websocket._state cimport BROWSER_FRAME_BYTES, WS_OPEN, WS_UPGRADE


cdef void upgrade_callback(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept with gil:
    (<WebPlane>plane.owner)._upgrade(conn, p, n)


cdef class WebPlane(SecurePlane):
    """The data plane of a node with connections over WebSocket."""

    def __cinit__(self, **_settings):
        self.commons = []
        self.p.on_upgrade = upgrade_callback

    def serve_websocket(self, WebSocketCommon common not None):
        """Keep what some connections have in common, for as long as the plane is there; before `expect_upgrade`."""
        self.commons.append(common)

    def expect_upgrade(self, cid, WebSocketCommon common not None):
        """What comes over a connection from now on is HTTP, and `common.on_http` reads it."""
        cdef conn_t* conn = self._conn(cid)
        assert common in self.commons
        if conn == NULL or conn.state != CONN_OPEN or conn.ws != NULL:
            return
        conn.ws = ws_new(&common.shared)
        if conn.ws == NULL:
            raise MemoryError

    cdef void _upgrade(self, conn_t* conn, const char* p, Py_ssize_t n):
        try:
            (<WebSocketCommon>conn.ws.shared.common).on_http(conn.cid, p[:n])
        except Exception:
            conn_close(&self.p, conn, CLOSE_PROTOCOL)
            raise

    def upgrade(self, cid, bytes response, *, bint masked, bint deflates, bint browser):
        """Answer the request; from there on the connection exchanges frames. False: it is gone."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN or conn.ws == NULL or conn.ws.phase != WS_UPGRADE:
            return False
        if not wire_append(conn.ws, conn.out.data + conn.out.start, conn.out.end - conn.out.start):
            raise MemoryError
        if not wire_append(conn.ws, PyBytes_AS_STRING(response), PyBytes_GET_SIZE(response)):
            raise MemoryError
        conn.out.start = conn.out.end = 0
        conn.ws.masked = masked
        conn.ws.deflates = deflates
        if browser:
            conn.ws.frame_bytes = BROWSER_FRAME_BYTES
        conn.ws.phase = WS_OPEN
        conn_wake(&self.p, conn)
        return True

    def upgraded(self, cid, bytes first not None, *, bint masks, bint deflates):
        """The other end has accepted this server's request; `first` is what came behind its answer."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN or conn.ws == NULL or conn.ws.phase != WS_UPGRADE:
            return
        conn.ws.masked = 0
        conn.ws.masks = masks
        conn.ws.deflates = deflates
        conn.ws.phase = WS_OPEN
        if len(first) > <Py_ssize_t>self.p.recv_cap:
            conn_close(&self.p, conn, CLOSE_PROTOCOL)
            return
        memcpy(self.p.recv_buf, PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first))
        read_web(&self.p, conn, self.p.recv_buf, PyBytes_GET_SIZE(first), False)
