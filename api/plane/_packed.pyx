"""What was received over connections that are compressed with S2, and what was not, on its way to frames and the parser.

A chunk grows to BLOCK_MAX at most, and to UNNAMED_BYTES before its sender is admitted. A turn decodes TURN_BYTES of a connection and
at most one block more, and acts on what the connection's share of the turn allows; the rest waits, and the connection is
not read meanwhile: it is watched for room to write too, which brings it back in the next turn. So a bomb costs a block of
memory, and its sender time of its own connection.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memmove

from jetraft.api.plane._feed cimport keep_rest, parse_conn
from jetraft.api.plane._share cimport is_behind
from jetraft.api.plane._types cimport CLOSE_CLIENT, CLOSE_READ_ERROR, CONN_OPEN, conn_t, packed_t, plane_t
from jetraft.api.plane._webreader cimport read_web
from jetraft.api.plane._writer cimport buf_free, buf_reserve, conn_close, conn_watch
from jetraft.store.frames._frame cimport crc32c_of
from jetraft.store.s2._blocks cimport block_size, decompress

cdef enum:
    BLOCK_MAX = 4 * 1024 * 1024         # S2's largest
    CHUNK_MAX = BLOCK_MAX + BLOCK_MAX // 6 + 64
    UNNAMED_BYTES = 64 * 1024           # of a block, before its sender has said who it is
    UNNAMED_CHUNK_MAX = UNNAMED_BYTES + UNNAMED_BYTES // 6 + 64
    TURN_BYTES = 1024 * 1024
    PIECE_BYTES = 256 * 1024            # handed on at a time; the receive buffer has room for more
    CHUNK_HEAD = 4
    SUM_BYTES = 4
    COMPRESSED = 0x00
    AS_IT_IS = 0x01
    NAME = 0xFF
    SKIPPED_FROM = 0x80


cdef void take(plane_t* plane, conn_t* conn, size_t n, bint ended) noexcept nogil:
    """Act on n bytes that lie in the receive buffer behind the room for what the connection has kept."""
    cdef size_t have = conn.partial_len
    cdef Py_ssize_t used
    if conn.ws != NULL:
        read_web(plane, conn, plane.recv_buf + have, n, ended)
        return
    if have:
        memcpy(plane.recv_buf, conn.partial, have)
    used = parse_conn(plane, conn, plane.recv_buf, have + n)
    if conn.state == CONN_OPEN:
        keep_rest(plane, conn, plane.recv_buf + used, have + n - used)
        if ended and not is_behind(conn):
            conn_close(plane, conn, CLOSE_CLIENT)


cdef bint hand_on(plane_t* plane, conn_t* conn) noexcept nogil:
    """Act on decoded bytes; False when some are left, because the connection is held, or has had its share of the turn."""
    cdef packed_t* packed = conn.packed
    cdef size_t piece
    while packed.plain_at < packed.plain_size and conn.state == CONN_OPEN:
        if conn.held or conn.resting:
            return False
        piece = min(packed.plain_size - packed.plain_at, <size_t>PIECE_BYTES)
        memcpy(plane.recv_buf + conn.partial_len, packed.plain + packed.plain_at, piece)
        packed.plain_at += piece
        take(plane, conn, piece, False)
    free(packed.plain)
    packed.plain = NULL
    packed.plain_at = packed.plain_size = 0
    return True


cdef bint is_sound(conn_t* conn, uint8_t kind, size_t length) noexcept nogil:
    """Whether a chunk may be there, and so long: what is not, is not waited for."""
    cdef packed_t* packed = conn.packed
    if kind == NAME:
        return length == 6
    if kind == COMPRESSED or kind == AS_IT_IS:
        return packed.begun and SUM_BYTES <= length <= (CHUNK_MAX if conn.connected else UNNAMED_CHUNK_MAX)
    return packed.begun and kind >= SKIPPED_FROM


cdef Py_ssize_t decode(plane_t* plane, conn_t* conn, uint8_t kind, const char* body, size_t n) noexcept nogil:
    """Decode the data of a chunk; returns its bytes, -1 when it is damaged, or larger than it may be."""
    cdef size_t size = n - SUM_BYTES, at = 0
    cdef const uint8_t* block = <const uint8_t*>body + SUM_BYTES
    cdef char* plain
    cdef uint32_t crc, told
    if kind == COMPRESSED and not block_size(block, n - SUM_BYTES, &size, &at):
        return -1
    if size > (<size_t>BLOCK_MAX if conn.connected else <size_t>UNNAMED_BYTES):
        return -1
    plain = <char*>malloc(max(size, 1))
    if plain == NULL:
        return -1
    if kind != COMPRESSED:
        memcpy(plain, body + SUM_BYTES, size)
    elif not decompress(block, at, n - SUM_BYTES, <uint8_t*>plain, size):
        free(plain)
        return -1
    memcpy(&told, body, SUM_BYTES)
    crc = crc32c_of(<const uint8_t*>plain, size, 0)
    if told != ((crc >> 15) | (crc << 17)) + <uint32_t>0xA282EAD8u:
        free(plain)
        return -1
    conn.packed.plain = plain
    conn.packed.plain_size = size
    return size


cdef void read_packed(plane_t* plane, conn_t* conn, const char* data, size_t n, bint ended) noexcept nogil:
    """Decode what has arrived, as far as this turn goes. `ended`: nothing more will come."""
    cdef packed_t* packed = conn.packed
    cdef bint had_backlog = packed.backlog
    cdef size_t length, done = 0
    cdef Py_ssize_t size
    cdef uint8_t kind
    cdef char* at
    if n:
        memcpy(buf_reserve(&packed.arrived, n), data, n)
        packed.arrived.end += n
    packed.backlog = 0
    while conn.state == CONN_OPEN:
        if packed.plain != NULL and not hand_on(plane, conn):
            packed.backlog = 1
            break
        length = min(packed.passed_over, packed.arrived.end - packed.arrived.start)
        packed.passed_over -= length
        packed.arrived.start += length
        if packed.arrived.end - packed.arrived.start < CHUNK_HEAD:
            break
        at = packed.arrived.data + packed.arrived.start
        kind = <uint8_t>at[0]
        length = <uint8_t>at[1] | <size_t>(<uint8_t>at[2]) << 8 | <size_t>(<uint8_t>at[3]) << 16
        if not is_sound(conn, kind, length):
            conn_close(plane, conn, CLOSE_READ_ERROR)
            return
        if kind >= SKIPPED_FROM and kind != NAME:
            packed.arrived.start += CHUNK_HEAD
            packed.passed_over = length
            continue
        if packed.arrived.end - packed.arrived.start < CHUNK_HEAD + length:
            break
        if conn.held or conn.resting or done >= TURN_BYTES:
            packed.backlog = 1
            break
        packed.arrived.start += CHUNK_HEAD + length
        if kind == NAME:
            if memcmp(at + CHUNK_HEAD, b"S2sTwO", 6) != 0 and memcmp(at + CHUNK_HEAD, b"sNaPpY", 6) != 0:
                conn_close(plane, conn, CLOSE_READ_ERROR)
                return
            packed.begun = 1
            continue
        size = decode(plane, conn, kind, at + CHUNK_HEAD, length)
        if size < 0:
            conn_close(plane, conn, CLOSE_READ_ERROR)
            return
        done += size + CHUNK_HEAD
    if packed.arrived.start == packed.arrived.end:
        packed.arrived.start = packed.arrived.end = 0
        if packed.arrived.cap > PIECE_BYTES:
            buf_free(&packed.arrived)
    if ended and not packed.backlog and not is_behind(conn):
        conn_close(plane, conn, CLOSE_CLIENT)
    elif packed.backlog != had_backlog:
        conn_watch(plane, conn)


cdef void packed_free(packed_t* packed) noexcept nogil:
    if packed != NULL:
        free(packed.arrived.data)
        free(packed.wire.data)
        free(packed.plain)
        free(packed)
