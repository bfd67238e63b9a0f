"""The data plane with WebSocket: connections whose bytes are HTTP first, and frames after their upgrade.

Python reads the requests (api/websocket/clients.py), a call for each receive; after that no byte of a frame reaches it
but those of compressed messages.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from jetraft.api.plane._secure cimport SecurePlane
from jetraft.api.plane._types cimport CLOSE_PROTOCOL, CONN_OPEN, conn_t, plane_t
from jetraft.api.plane._writer cimport conn_close, conn_wake
from jetraft.api.websocket._common cimport WebSocketCommon
from jetraft.api.websocket._frames cimport wire_append, ws_new
from jetraft.api.websocket._state cimport BROWSER_FRAME_BYTES, WS_OPEN, WS_UPGRADE


cdef void upgrade_callback(plane_t* plane, conn_t* conn, const char* p, Py_ssize_t n) noexcept with gil:
    (<WebPlane>plane.owner)._upgrade(conn, p, n)


cdef class WebPlane(SecurePlane):
    """The data plane of a node with a listener for WebSocket."""

    def serve_websocket(self, WebSocketCommon common not None, upgrade_handler):
        """Name what the connections have in common and who reads their requests; before the first `expect_upgrade`."""
        self.common = common
        self.upgrade_handler = upgrade_handler
        self.p.on_upgrade = upgrade_callback

    def expect_upgrade(self, cid):
        """A connection was accepted just now: it begins with HTTP."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN or conn.ws != NULL:
            return
        conn.ws = ws_new(&self.common.shared)
        if conn.ws == NULL:
            raise MemoryError

    cdef void _upgrade(self, conn_t* conn, const char* p, Py_ssize_t n):
        try:
            self.upgrade_handler(conn.cid, p[:n])
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
