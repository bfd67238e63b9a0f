"""Frames of WebSocket (RFC 6455): heads, masks, fragments, control frames, what closes a connection.

`frames_next` takes bytes as they arrive, cut anywhere, and gives out payloads in place: nothing of a message is kept here
but the head of its frame. Control frames are answered on the way. The texts of violations are nats-server's.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strlen

from cpython.ref cimport Py_XDECREF, PyObject

from jetraft.api.websocket._sending cimport wire_frame, ws_close_with
from jetraft.api.websocket._state cimport (
    CONTROL_BYTES,
    FRAME_BYTES,
    PIECE_CLOSE,
    PIECE_DATA,
    PIECE_ERROR,
    PIECE_NONE,
    UNSENT_CONTROL_BYTES,
    Piece,
    ws_shared_t,
    ws_t,
)

cdef enum:
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10
    FINAL = 0x80
    RSV1 = 0x40         # compressed
    RSV23 = 0x30
    MASKED = 0x80
    LENGTH_16 = 126
    LENGTH_64 = 127
    PROTOCOL_ERROR = 1002
    INVALID_PAYLOAD = 1007


cdef ws_t* ws_new(ws_shared_t* shared) noexcept nogil:
    """A connection whose request for an upgrade has yet to come; NULL when there is no memory."""
    cdef ws_t* ws = <ws_t*>calloc(1, sizeof(ws_t))
    if ws != NULL:
        ws.shared = shared
        ws.masked = 1
        ws.frame_bytes = FRAME_BYTES
    return ws


cdef void ws_free(ws_t* ws) noexcept:
    Py_XDECREF(<PyObject*>ws.inflater)
    free(ws.wire)
    free(ws)


cdef Piece fail(ws_t* ws, const char* text) noexcept nogil:
    """The client broke the rules; it is told how."""
    cdef char payload[CONTROL_BYTES]
    ws.error = text
    payload[0] = PROTOCOL_ERROR >> 8
    payload[1] = <char>(PROTOCOL_ERROR & 0xff)
    memcpy(&payload[2], text, strlen(text))     # the texts here are short
    ws_close_with(ws, payload, 2 + strlen(text))
    return PIECE_ERROR


cdef Piece begin(ws_t* ws) noexcept nogil:
    """Judge the first byte of a head."""
    cdef uint8_t first = ws.head[0]
    if first & RSV23:
        return fail(ws, b"RSV2 and RSV3 must be clear")
    if first & RSV1 and not ws.deflates:
        return fail(ws, b"compressed frame received without negotiated permessage-deflate")
    return PIECE_NONE


cdef Piece judge(ws_t* ws) noexcept nogil:
    """Judge the first two bytes of a head."""
    cdef uint8_t first = ws.head[0], second = ws.head[1]
    cdef bint compressed = (first & RSV1) != 0
    ws.opcode = first & 0x0f
    ws.final = (first & FINAL) != 0
    if ws.masked and not second & MASKED:
        return fail(ws, b"mask bit missing")
    if ws.opcode == CLOSE or ws.opcode == PING or ws.opcode == PONG:
        if second & 0x7f > CONTROL_BYTES:
            return fail(ws, b"control frame length bigger than maximum allowed of 125 bytes")
        if not ws.final:
            return fail(ws, b"control frame does not have final bit set")
        if compressed:
            return fail(ws, b"control frame must not be compressed")
    elif ws.opcode == TEXT or ws.opcode == BINARY:
        if ws.in_message:
            return fail(ws, b"new message started before final frame for previous message was received")
        ws.in_message = not ws.final
        ws.compressed = compressed
    elif ws.opcode == CONTINUATION:
        if not ws.in_message or compressed:
            return fail(ws, b"invalid continuation frame")
        ws.in_message = not ws.final
    else:
        snprintf(ws.error_text, sizeof(ws.error_text), b"unknown opcode %d", <int>ws.opcode)
        return fail(ws, ws.error_text)
    return PIECE_NONE


cdef inline size_t head_bytes(ws_t* ws) noexcept nogil:
    """How long the head is whose first two bytes are known."""
    cdef uint8_t length = ws.head[1] & 0x7f
    return 2 + (2 if length == LENGTH_16 else 8 if length == LENGTH_64 else 0) + (4 if ws.masked else 0)


cdef Piece complete(ws_t* ws) noexcept nogil:
    """The head is there: how much follows, and with what mask."""
    cdef uint8_t* at = &ws.head[2]
    cdef uint8_t length = ws.head[1] & 0x7f
    cdef int i, size = 2 if length == LENGTH_16 else 8 if length == LENGTH_64 else 0
    ws.left = 0 if size else length
    for i in range(size):
        ws.left = ws.left << 8 | at[i]
    if ws.left >> 63:
        return fail(ws, b"invalid 64-bit payload length")
    if ws.masked:
        memcpy(ws.key, at + size, 4)
    ws.key_at = 0
    ws.control_len = 0
    ws.head_len = 0
    ws.in_payload = 1
    return PIECE_NONE


cdef void unmask(ws_t* ws, char* data, size_t n) noexcept nogil:
    cdef uint8_t key[8]
    cdef uint64_t wide, word
    cdef size_t i = 0
    for i in range(8):
        key[i] = ws.key[(ws.key_at + i) & 3]
    memcpy(&wide, key, 8)
    i = 0
    while i + 8 <= n:
        memcpy(&word, data + i, 8)
        word ^= wide
        memcpy(data + i, &word, 8)
        i += 8
    while i < n:
        data[i] ^= <char>key[i & 7]
        i += 1
    ws.key_at = (ws.key_at + n) & 3


cdef Piece frames_next(ws_t* ws, char** data, size_t* n, char** piece, size_t* piece_len) noexcept nogil:
    """Take bytes up to the next payload or part of one. The end of a message may be a piece of no bytes."""
    cdef Piece found
    cdef size_t part
    while n[0] or (ws.in_payload and ws.left == 0):
        if not ws.in_payload:
            ws.head[ws.head_len] = <uint8_t>data[0][0]
            ws.head_len += 1
            data[0] += 1
            n[0] -= 1
            found = begin(ws) if ws.head_len == 1 else judge(ws) if ws.head_len == 2 else PIECE_NONE
            if found == PIECE_NONE and ws.head_len >= 2 and ws.head_len == head_bytes(ws):
                found = complete(ws)
            if found != PIECE_NONE:
                return found
            continue
        part = <size_t>min(<uint64_t>n[0], ws.left)
        if ws.masked:
            unmask(ws, data[0], part)
        piece[0] = data[0]
        piece_len[0] = part
        data[0] += part
        n[0] -= part
        ws.left -= part
        ws.in_payload = ws.left != 0
        if ws.opcode < CLOSE:
            return PIECE_DATA
        memcpy(&ws.control[ws.control_len], piece[0], part)
        ws.control_len += <uint8_t>part
        if ws.in_payload:
            continue
        if ws.opcode == PING:
            answer(ws)
        elif ws.opcode == CLOSE:
            return take_close(ws)
    return PIECE_NONE


cdef void answer(ws_t* ws) noexcept nogil:
    """Queue a pong. A peer that does not read its answers does not get all of them."""
    if ws.wire_end - ws.wire_start <= FRAME_BYTES + UNSENT_CONTROL_BYTES:
        wire_frame(ws, FINAL | PONG, <char*>ws.control, ws.control_len)


cdef Piece take_close(ws_t* ws) noexcept nogil:
    """Answer a close frame in kind."""
    cdef int status
    if ws.control_len == 0:
        ws_close_with(ws, NULL, 0)
        return PIECE_CLOSE
    if ws.control_len == 1:
        return fail(ws, b"close frame payload cannot be 1 byte")
    status = ws.control[0] << 8 | ws.control[1]
    if not is_status(status):
        snprintf(ws.error_text, sizeof(ws.error_text), b"invalid close status code %d", status)
        return fail(ws, ws.error_text)
    if is_utf8(&ws.control[2], ws.control_len - 2):
        ws_close_with(ws, <char*>ws.control, ws.control_len)
    else:
        ws_close_with(ws, b"\x03\xefinvalid utf8 body in close frame", 34)
    return PIECE_CLOSE


cdef bint is_status(int code) noexcept nogil:
    """Whether a peer may give this status; 1016 to 2999 are reserved, some below stand for what was not sent."""
    if code < 1000 or code >= 5000 or 1016 <= code <= 2999:
        return False
    return not (1004 <= code <= 1006 or code == 1015)


cdef bint is_utf8(const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t i = 0
    cdef int more, k
    cdef uint32_t code
    while i < n:
        if p[i] < 0x80:
            i += 1
            continue
        more = 1 if p[i] & 0xe0 == 0xc0 else 2 if p[i] & 0xf0 == 0xe0 else 3 if p[i] & 0xf8 == 0xf0 else 0
        if more == 0 or i + more >= n:
            return False
        code = p[i] & (0x3f >> more)
        for k in range(1, more + 1):
            if p[i + k] & 0xc0 != 0x80:
                return False
            code = code << 6 | (p[i + k] & 0x3f)
        if code < (0x80 if more == 1 else 0x800 if more == 2 else 0x10000):
            return False
        if code > 0x10ffff or 0xd800 <= code <= 0xdfff:
            return False
        i += more + 1
    return True
