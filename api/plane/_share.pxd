"""A connection's share of a turn, by what its lines cost and not by their bytes."""

from libc.stdint cimport uint64_t

from jetraft.api.plane._types cimport conn_t, plane_t

cdef enum:
    WORK_PER_TURN = 4096        # messages for a receiver in Python, most of which are handled in runs: see work_of
    WORK_OF_CALL = 128          # a CONNECT, a message to be traced, or something that is denied and logged
    WORK_OF_SUBSCRIPTION = 8    # begun or ended, 1 to 4 us: five hundred of them are a share

cdef void rest(plane_t* plane, conn_t* conn) noexcept nogil


cdef inline uint64_t share_end(plane_t* plane, conn_t* conn) noexcept nogil:
    """Where plane_t.work is when a connection has had its share of this turn, however many pieces of it are acted on."""
    if conn.share_turn != plane.turns:
        conn.share_turn = plane.turns
        conn.spent = 0
    return plane.work + WORK_PER_TURN - min(conn.spent, <uint64_t>WORK_PER_TURN)


cdef inline bint is_behind(conn_t* conn) noexcept nogil:
    """Whether something of what a connection has sent is still to be acted on: it is not closed before, and read again."""
    return conn.held or conn.resting
