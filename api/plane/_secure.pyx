"""The data plane with TLS: begins handshakes, takes their results, admits who has passed.

A connection begins in the clear, so that INFO can be sent; `start_tls` ends that for good: from there on nothing is sent or
parsed that is not in a record, except where the first byte shows a client that may do without (`DETECT`).
"""

from collections import namedtuple

from libc.errno cimport errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from jetraft.api.plane._plane cimport Plane
from jetraft.api.plane._tls cimport tls_watch
from jetraft.api.plane._types cimport CLOSE_PROTOCOL, CLOSE_WRITE_ERROR, CONN_OPEN, conn_t
from jetraft.api.plane._writer cimport conn_close, conn_send, conn_watch
from jetraft.api.tls._context cimport TlsContext
from jetraft.api.tls._handshakes cimport HandshakePool, submit
from jetraft.api.tls._openssl cimport (
    SSL,
    ERR_reason_error_string,
    ERR_GET_REASON,
    SSL_CIPHER_standard_name,
    SSL_get_current_cipher,
    SSL_get_version,
)
from jetraft.api.tls._records import prepare
from jetraft.api.tls._records cimport tls_free, tls_new, tls_release
from jetraft.api.tls._state cimport (
    STEP_DONE,
    STEP_FAILED,
    STEP_WRITE,
    TLS_DETECT,
    TLS_HANDSHAKE,
    TLS_JUDGED,
    TLS_OPEN,
    TLS_WAIT,
    tls_t,
)

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

WAIT, DETECT, HANDSHAKE, OPEN, PLAIN = TLS_WAIT, TLS_DETECT, TLS_HANDSHAKE, TLS_OPEN, -1
Judged = namedtuple(
    "Judged",
    "cid complete reason library_text verified errno ended first_byte version cipher certificates",
)


cdef list certificates_of(tls_t* tls):
    """What the peer has shown, its own first, as DER."""
    cdef uint32_t n
    cdef size_t at = 0
    found = []
    while at + 4 <= tls.certs_len:
        memcpy(&n, tls.certs + at, 4)
        found.append(tls.certs[at + 4:at + 4 + n])
        at += 4 + n
    return found


cdef object result_of(tls_t* tls):
    cdef bint complete = tls.step == STEP_DONE
    text = ERR_reason_error_string(tls.reason) if tls.reason else NULL
    return Judged(
        tls.cid, complete, ERR_GET_REASON(tls.reason) if tls.reason else 0,
        (<bytes>text).decode() if text != NULL else "", tls.verified, tls.error, bool(tls.eof),
        tls.first if tls.has_first else None,
        (<bytes>SSL_get_version(<SSL*>tls.ssl)).decode() if complete else "",
        (<bytes>SSL_CIPHER_standard_name(SSL_get_current_cipher(<SSL*>tls.ssl))).decode() if complete else "",
        certificates_of(tls),
    )


cdef class SecurePlane(Plane):
    """The data plane of a node whose clients may or must use TLS."""

    def serve_tls(self, TlsContext context not None, HandshakePool pool not None):
        """Name what the connections of a listener are made from, and who makes them; before its first `start_tls`."""
        prepare()
        pool.context = context

    def start_tls(self, cid, int phase, HandshakePool pool not None):
        """Send in the clear what waits, and nothing after it. The connection is closed when that is not possible."""
        cdef conn_t* conn = self._conn(cid)
        cdef tls_t* tls
        if conn == NULL or conn.state != CONN_OPEN or conn.fd < 0 or conn.tls != NULL:
            return
        conn_send(&self.p, conn)
        if conn.state != CONN_OPEN or conn.out.start < conn.out.end:
            conn_close(&self.p, conn, CLOSE_WRITE_ERROR)
            return
        tls = tls_new((<TlsContext>pool.context).ctx, pool.pool, conn.fd)
        if tls == NULL:
            conn_close(&self.p, conn, CLOSE_WRITE_ERROR)
            return
        tls.cid = conn.cid
        tls.conn = conn
        tls.phase = phase
        conn.tls = tls
        tls_watch(&self.p, conn, False)

    def connect_tls(self, cid, TlsContext context not None, HandshakePool pool not None):
        """Begin the handshake of a connection that this server made and that is held, or has received nothing.

        What came in the clear behind the last line is not taken for a part of the protocol: the connection is closed.
        """
        cdef conn_t* conn = self._conn(cid)
        cdef tls_t* tls
        if conn == NULL or conn.state != CONN_OPEN or conn.fd < 0 or conn.tls != NULL:
            return
        if conn.partial_len or conn.out.start < conn.out.end:
            conn_close(&self.p, conn, CLOSE_PROTOCOL)
            return
        prepare()
        tls = tls_new(context.ctx, pool.pool, conn.fd)
        if tls == NULL:
            conn_close(&self.p, conn, CLOSE_WRITE_ERROR)
            return
        conn.held = conn.paused = 0
        tls.cid = conn.cid
        tls.conn = conn
        tls.phase = TLS_HANDSHAKE
        conn.tls = tls
        tls_watch(&self.p, conn, False)
        submit(tls)

    def tls_phase(self, cid):
        """The phase of a connection, PLAIN where it has no TLS, None when it is gone."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN:
            return None
        return PLAIN if conn.tls == NULL else conn.tls.phase

    def go_on(self, cid, int phase):
        """After a delay: from WAIT to DETECT or HANDSHAKE, or from DETECT to PLAIN. False when it has gone on by itself."""
        cdef conn_t* conn = self._conn(cid)
        cdef tls_t* tls
        if conn == NULL or conn.state != CONN_OPEN or conn.tls == NULL or conn.tls.busy:
            return False
        tls = conn.tls
        if tls.phase == TLS_WAIT and phase in (TLS_DETECT, TLS_HANDSHAKE):
            conn.tls = NULL         # INFO goes out in the clear
            conn_send(&self.p, conn)
            conn.tls = tls
            if conn.out.start < conn.out.end:
                conn_close(&self.p, conn, CLOSE_WRITE_ERROR)
            tls.phase = phase
            return True
        if tls.phase == TLS_DETECT and phase == PLAIN:
            conn.tls = NULL
            tls_release(tls)
            conn_watch(&self.p, conn)
            return True
        return False

    def judged(self, HandshakePool pool not None):
        """The handshakes that are complete or have failed since the last call; the others wait for their peers."""
        cdef tls_t* tls = pool.take()
        cdef tls_t* following
        cdef conn_t* conn
        found = []
        while tls != NULL:
            following = tls.next
            tls.busy = 0
            if tls.orphan:
                c_close(tls.fd)
                tls_free(tls)
            elif tls.step == STEP_DONE or tls.step == STEP_FAILED:
                tls.phase = TLS_JUDGED
                found.append(result_of(tls))
                free(tls.certs)
                tls.certs = NULL
                tls.certs_len = 0
            else:
                conn = <conn_t*>tls.conn
                tls_watch(&self.p, conn, tls.step == STEP_WRITE)
            tls = following
        return found

    def admit(self, cid):
        """Let a connection whose handshake is complete exchange records; what waits for it is sent."""
        cdef conn_t* conn = self._conn(cid)
        if conn == NULL or conn.state != CONN_OPEN or conn.tls == NULL or conn.tls.phase != TLS_JUDGED:
            return
        if conn.tls.broken:
            return
        conn.tls.phase = TLS_OPEN
        conn_watch(&self.p, conn)
        conn_send(&self.p, conn)
