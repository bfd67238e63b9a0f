"""Received bytes of the protocol, on their way to the parser: an incomplete line or message waits for the rest."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from jetraft.api.plane._leaf_parser cimport parse_leaf
from jetraft.api.plane._parser cimport parse
from jetraft.api.plane._types cimport CLOSE_MAX_CONTROL_LINE, CONN_OPEN, conn_t, plane_t
from jetraft.api.plane._writer cimport conn_close, conn_watch


cdef Py_ssize_t parse_conn(plane_t* plane, conn_t* conn, const char* data, Py_ssize_t n) noexcept nogil:
    """Act on what was received, by the protocol of the connection; returns the bytes consumed."""
    cdef uint64_t before = plane.work
    cdef Py_ssize_t used = parse(plane, conn, data, n) if conn.leaf == NULL else parse_leaf(plane, conn, data, n)
    conn.spent += plane.work - before
    return used


cdef void keep_rest(plane_t* plane, conn_t* conn, const char* data, size_t n) noexcept nogil:
    """Keep an incomplete line or message until more arrives."""
    free(conn.kept)
    conn.kept = conn.partial = NULL
    conn.partial_len = n
    if n:
        conn.kept = conn.partial = <char*>malloc(n)
        memcpy(conn.partial, data, n)
    if plane.bound_unread != NULL:
        plane.bound_unread(plane, conn)


cdef void feed_conn(plane_t* plane, conn_t* conn, const char* data, size_t n) noexcept nogil:
    """Parse bytes that the caller received."""
    cdef size_t have, chunk
    cdef Py_ssize_t used
    while n and conn.state == CONN_OPEN:
        have = conn.partial_len
        chunk = plane.recv_cap - have
        if (conn.held or conn.resting) and n <= chunk:
            if have:
                memcpy(plane.recv_buf, conn.partial, have)
            memcpy(plane.recv_buf + have, data, n)
            keep_rest(plane, conn, plane.recv_buf, have + n)
            return
        if chunk == 0 or conn.held or conn.resting:
            conn_close(plane, conn, CLOSE_MAX_CONTROL_LINE)
            return
        if chunk > n:
            chunk = n
        if have:
            memcpy(plane.recv_buf, conn.partial, have)
        memcpy(plane.recv_buf + have, data, chunk)
        data += chunk
        n -= chunk
        conn.last_active_ns = plane.now_ns
        used = parse_conn(plane, conn, plane.recv_buf, have + chunk)
        if conn.state == CONN_OPEN:
            keep_rest(plane, conn, plane.recv_buf + used, have + chunk - used)


cdef void resume_conn(plane_t* plane, conn_t* conn) noexcept nogil:
    """Act on what a connection that was held, or rested, had sent, and read on.

    It is acted on where it is kept. What is left is copied once it is half of that, so all turns together copy no more
    than was sent: a connection may rest a thousand times before it has had all of it.
    """
    cdef size_t have = conn.partial_len, left
    cdef char* data = conn.partial
    cdef char* kept = conn.kept
    cdef Py_ssize_t used
    conn.paused = conn.resting = 0
    conn_watch(plane, conn)
    if have == 0:
        return
    conn.kept = conn.partial = NULL
    conn.partial_len = 0
    used = parse_conn(plane, conn, data, have)
    if conn.state == CONN_OPEN:
        left = have - used
        if left > <size_t>(data + used - kept):
            conn.kept = kept
            conn.partial = data + used
            conn.partial_len = left
            if plane.bound_unread != NULL:
                plane.bound_unread(plane, conn)
            return
        keep_rest(plane, conn, data + used, left)
    free(kept)
