"""Frames of WebSocket on their way out: what a connection has to say, whole frames that wait for the socket.

A server's frames have no mask. Those of a connection that this server made have one, unless the other end has agreed to
do without: its bytes are random for each frame (RFC 6455, 5.3), so that they come from the system.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from jetraft.api.websocket._common cimport deflated
from jetraft.api.websocket._state cimport CLOSE_TEXTS, CONTROL_BYTES, HEAD_BYTES, ws_t

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* data, size_t n, unsigned int flags)
    enum: GRND_NONBLOCK

cdef enum:
    BINARY = 2
    CLOSE = 8
    FINAL = 0x80
    RSV1 = 0x40         # compressed
    MASKED = 0x80
    MASK_BYTES = 4
    LENGTH_16 = 126
    LENGTH_64 = 127
    COMPRESS_FROM = 64  # fewer bytes are not worth it, as in nats-server


cdef int wire_append(ws_t* ws, const char* data, size_t n) noexcept nogil:
    """Queue bytes for the socket; 0 when there is no memory."""
    cdef size_t used = ws.wire_end - ws.wire_start, cap
    cdef char* grown
    if n == 0:
        return 1
    if ws.wire_end + n > ws.wire_cap:
        if ws.wire_start:
            memmove(ws.wire, ws.wire + ws.wire_start, used)
            ws.wire_start = 0
            ws.wire_end = used
        if used + n > ws.wire_cap:
            cap = max(used + n, 2 * ws.wire_cap)
            grown = <char*>realloc(ws.wire, cap)
            if grown == NULL:
                return 0
            ws.wire = grown
            ws.wire_cap = cap
    memcpy(ws.wire + ws.wire_end, data, n)
    ws.wire_end += n
    return 1


cdef void wire_free(ws_t* ws) noexcept nogil:
    """Let go of the memory of an empty wire."""
    free(ws.wire)
    ws.wire = NULL
    ws.wire_start = ws.wire_end = ws.wire_cap = 0


cdef size_t put_head(char* head, uint8_t first, size_t n) noexcept nogil:
    """Write the head of a frame but for its mask; returns its length."""
    cdef int i, size = 0 if n < LENGTH_16 else 2 if n < 65536 else 8
    head[0] = <char>first
    head[1] = <char>(n if size == 0 else LENGTH_16 if size == 2 else LENGTH_64)
    for i in range(size):
        head[2 + i] = <char>(n >> (8 * (size - 1 - i)))
    return 2 + size


cdef int wire_frame(ws_t* ws, uint8_t first, const char* data, size_t n) noexcept nogil:
    """Queue a frame; 0 when there is no memory. One that goes to a server that asks for it is masked."""
    cdef char head[HEAD_BYTES]
    cdef size_t i, size = put_head(head, first, n)
    cdef uint8_t* key = <uint8_t*>head + size
    cdef char* at
    if ws.masks:
        if getrandom(key, MASK_BYTES, GRND_NONBLOCK) != MASK_BYTES:
            return 0
        head[1] = <char>(<uint8_t>head[1] | MASKED)
        size += MASK_BYTES
    if not wire_append(ws, head, size) or not wire_append(ws, data, n):
        return 0
    if ws.masks:
        at = ws.wire + ws.wire_end - n
        for i in range(n):
            at[i] ^= <char>key[i & 3]
    return 1


cdef size_t frame_some(ws_t* ws, const char* data, size_t n) noexcept nogil:
    """Queue the next frame for the socket when none waits: how many of the bytes it has taken."""
    cdef char* packed
    cdef size_t packed_len
    cdef bint written
    if ws.wire_end > ws.wire_start:
        return 0
    if n == 0:
        if ws.ending and not ws.ended:
            ws.ended = 1
            wire_frame(ws, FINAL | CLOSE, <char*>ws.close, ws.close_len)
        return 0
    if n > ws.frame_bytes:
        n = ws.frame_bytes
    if ws.deflates and n > COMPRESS_FROM and deflated(ws.shared, data, n, &packed, &packed_len):
        written = wire_frame(ws, FINAL | RSV1 | BINARY, packed, packed_len)
    else:
        written = wire_frame(ws, FINAL | BINARY, data, n)
    return n if written else 0


cdef void ws_close_with(ws_t* ws, const char* payload, size_t n) noexcept nogil:
    """Choose the payload of the close frame, which follows what waits."""
    if ws.ending:
        return
    ws.ending = 1
    ws.close_len = <uint8_t>min(n, <size_t>CONTROL_BYTES)
    if ws.close_len:
        memcpy(ws.close, payload, ws.close_len)


cdef void ws_close_for(ws_t* ws, int reason) noexcept nogil:
    """The same for a reason of the server."""
    if reason < CLOSE_TEXTS and ws.shared.closes[reason].n:
        ws_close_with(ws, ws.shared.closes[reason].p, ws.shared.closes[reason].n)
