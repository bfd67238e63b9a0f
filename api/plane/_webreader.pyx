"""Received bytes of WebSocket connections: to Python while they are HTTP, then out of their frames and to the parser.

Payloads are moved together in the receive buffer, behind what the connection keeps of the protocol, and parsed in one go.
Compressed messages are inflated in pieces, each of which is parsed before the next: what a message grows to is bounded
(`plain_max`) and never in memory as a whole.
"""

import zlib

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memmove

from jetraft.api.plane._feed cimport feed_conn, keep_rest, parse_conn
from jetraft.api.plane._share cimport is_behind
from jetraft.api.plane._types cimport (
    CLOSE_CLIENT,
    CLOSE_MAX_PAYLOAD,
    CLOSE_READ_ERROR,
    CONN_OPEN,
    conn_t,
    plane_t,
)
from jetraft.api.plane._writer cimport conn_close, conn_wake
from jetraft.api.websocket._frames cimport frames_next
from jetraft.api.websocket._sending cimport ws_close_with
from jetraft.api.websocket._state cimport (
    PIECE_CLOSE,
    PIECE_DATA,
    PIECE_ERROR,
    WS_OPEN,
    WS_UPGRADE,
    Piece,
    ws_t,
)

cdef enum:
    INFLATE_BYTES = 64 * 1024       # given to the parser at a time
    UNNAMED_BYTES = 64 * 1024       # what a message may grow to before its sender has said who it is

RAW = -15                           # a stream without zlib's head and checksum
TAIL = b"\x00\x00\xff\xff"          # of the last block, which the sender leaves out


cdef void read_web(plane_t* plane, conn_t* conn, char* data, size_t n, bint ended) noexcept nogil:
    """Act on what one receive has brought; `ended`: nothing more will come."""
    cdef ws_t* ws = conn.ws
    cdef char* piece
    cdef char* end = data
    cdef size_t piece_len
    cdef Piece found
    if ws.phase == WS_UPGRADE:
        plane.on_upgrade(plane, conn, data, n)
    elif ws.phase == WS_OPEN and ws.deflates:
        read_packed(plane, conn, data, n)
    elif ws.phase == WS_OPEN:
        piece = data
        found = frames_next(ws, &data, &n, &piece, &piece_len)
        while found == PIECE_DATA:
            memmove(end, piece, piece_len)
            end += piece_len
            found = frames_next(ws, &data, &n, &piece, &piece_len)
        parse_plain(plane, conn, end)
        finish(plane, conn, found)
    if ended and not is_behind(conn):
        conn_close(plane, conn, CLOSE_CLIENT)
    elif ws.wire_end > ws.wire_start:
        conn_wake(plane, conn)      # answers to pings


cdef void parse_plain(plane_t* plane, conn_t* conn, char* end) noexcept nogil:
    """Parse what lies in the receive buffer up to `end`, behind room for what the connection has kept."""
    cdef size_t have = conn.partial_len, n = end - plane.recv_buf
    cdef Py_ssize_t used
    if n == have:
        return
    if have:
        memcpy(plane.recv_buf, conn.partial, have)
    used = parse_conn(plane, conn, plane.recv_buf, n)
    if conn.state == CONN_OPEN:
        keep_rest(plane, conn, plane.recv_buf + used, n - used)


cdef void finish(plane_t* plane, conn_t* conn, Piece found) noexcept nogil:
    """Close the connection where the client asks for it, or has broken the rules."""
    if found == PIECE_CLOSE:
        conn_close(plane, conn, CLOSE_CLIENT)
    elif found == PIECE_ERROR:
        conn_close(plane, conn, CLOSE_READ_ERROR)


cdef void read_packed(plane_t* plane, conn_t* conn, const char* data, size_t n) noexcept with gil:
    """The same where messages may be compressed. The parser uses the receive buffer, so what arrived is copied.

    Not to `bytes`: masks are taken off in place, and the interpreter shares short ones.
    """
    cdef bytearray arrived = PyByteArray_FromStringAndSize(data, n)
    cdef char* at = PyByteArray_AS_STRING(arrived)
    cdef char* piece = at
    cdef size_t piece_len = 0
    cdef Piece found = PIECE_DATA
    while found == PIECE_DATA and conn.state == CONN_OPEN:
        found = frames_next(conn.ws, &at, &n, &piece, &piece_len)
        if found == PIECE_DATA and not conn.ws.compressed:
            feed_conn(plane, conn, piece, piece_len)
        elif found == PIECE_DATA:
            inflate(plane, conn, piece[:piece_len])
    finish(plane, conn, found)


cdef void inflate(plane_t* plane, conn_t* conn, bytes packed):
    """Parse a part of a compressed message."""
    cdef ws_t* ws = conn.ws
    cdef bint is_last = not ws.in_message and not ws.in_payload
    cdef uint64_t plain_max = ws.shared.plain_max if conn.connected else min(<uint64_t>UNNAMED_BYTES, ws.shared.plain_max)
    cdef bytes plain = b""
    if ws.inflater == NULL:
        inflater = zlib.decompressobj(RAW)
        Py_INCREF(inflater)
        ws.inflater = <void*>inflater
    inflater = <object>ws.inflater
    ws.packed += len(packed)
    if is_last:
        packed += TAIL
    while conn.state == CONN_OPEN:
        try:
            plain = inflater.decompress(packed, INFLATE_BYTES)
        except zlib.error:
            ws.error = b"corrupt compressed message"
            ws_close_with(ws, b"\x03\xefcorrupt compressed message", 28)
            conn_close(plane, conn, CLOSE_READ_ERROR)
            return
        ws.plain += len(plain)
        if ws.plain > plain_max or ws.packed > ws.shared.packed_max:
            conn_close(plane, conn, CLOSE_MAX_PAYLOAD)
            return
        feed_conn(plane, conn, PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))
        packed = inflater.unconsumed_tail
        if not packed and len(plain) < INFLATE_BYTES:
            break
    if is_last:
        ws.inflater = NULL
        Py_DECREF(inflater)
        ws.packed = ws.plain = 0
