"""A connection's share of a turn: one that has had it rests, until the others have had theirs."""

from jetraft.api.plane._types cimport conn_t, plane_t
from jetraft.api.plane._writer cimport conn_watch, push_ptr


cdef void rest(plane_t* plane, conn_t* conn) noexcept nogil:
    """Go on with this connection in the next turn, after the others have had theirs."""
    conn.resting = conn.paused = 1
    push_ptr(&plane.resting_conns, conn)
    conn_watch(plane, conn)
