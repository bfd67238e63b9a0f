"""A connection's share of a turn, and that of all connections together, by what lines cost and not by their bytes.

A unit of work is 0.5 us or more: what it takes is measured, and TURN_WORK is less where it takes longer (`note_cost`). A turn reads those that are ready, those first that the last turn passed over. Up to TURN_WORK
each has its whole share; beyond it a part of half as much, WORK_AT_LEAST in a crowd, so that who sends little
is served beside those that send much; beyond that they are passed over. Then it goes on with those that rest, in turn, for
TURN_WORK more. A turn that does less than TURN_WORK is not changed by that.
"""

from libc.stdint cimport int64_t, uint64_t

from jetraft.api.plane._types cimport conn_t, plane_t

cdef enum:
    WORK_PER_TURN = 4096        # messages for a receiver in Python, most of which are handled in runs: see work_of
    WORK_OF_CALL = 128          # a CONNECT, a message to be traced, or something that is denied and logged
    WORK_OF_SUBSCRIPTION = 8    # begun or ended, 1 to 4 us: five hundred of them are a share
    TURN_WORK = 4096            # of those that are read, and once more of those that rest: as much as one of them may have
    TURN_WORK_LEAST = 1024      # the same where each takes long, in large turns
    TURN_NS = 2_500_000         # what that may take, and once more for those that rest: the others wait for both
    WORK_AT_LEAST = 16          # for who comes late in a turn: a request, a few publishes
    BYTES_PER_WORK = 4096       # copied to receivers; a message that is received or sent, 30 to 80 ns, counts for
    BYTES_OF_MESSAGE = 256

cdef void rest(plane_t* plane, conn_t* conn) noexcept nogil


cdef inline uint64_t share_end(plane_t* plane, conn_t* conn) noexcept nogil:
    """Where plane_t.work is when a connection has had its share of this turn, however many pieces of it are acted on."""
    if conn.share_turn != plane.turns:
        conn.share_turn = plane.turns
        conn.spent = 0
    return plane.work + WORK_PER_TURN - min(conn.spent, <uint64_t>WORK_PER_TURN)


cdef inline uint64_t turn_end(plane_t* plane) noexcept nogil:
    """Where work and what was moved are when the connection that is read now has had what all together may have."""
    return max(plane.work_end, plane.work + plane.moved + plane.work_late)


cdef inline void note_cost(plane_t* plane, int64_t took_ns) noexcept nogil:
    """Learn from how long a turn took, whatever it was that connections sent, how much the next ones may have done.

    What is least counts at once, what is more by and by: a turn takes long too when another process had the processor.
    """
    cdef uint64_t done = plane.work + plane.moved - plane.turn_began, cost
    if done < TURN_WORK_LEAST or took_ns <= 0:
        return
    cost = <uint64_t>took_ns * 1024 // done
    if cost > plane.work_cost:
        cost = plane.work_cost + (min(cost, 4 * plane.work_cost) - plane.work_cost) // 8
    plane.work_cost = max(cost, 1)
    plane.turn_work = max(min(<uint64_t>TURN_NS * 1024 // plane.work_cost, <uint64_t>TURN_WORK), <uint64_t>TURN_WORK_LEAST)


cdef inline uint64_t bytes_moved(plane_t* plane) noexcept nogil:
    """What compiled code has received and copied to receivers, in bytes that cost as much."""
    return (plane.in_msgs + plane.out_msgs) * BYTES_OF_MESSAGE + plane.in_bytes + plane.out_bytes


cdef inline void count_moved(plane_t* plane, uint64_t* counted) noexcept nogil:
    """Count what was moved since `counted`, in whole units of work."""
    cdef uint64_t units = (bytes_moved(plane) - counted[0]) // BYTES_PER_WORK
    plane.moved += units
    counted[0] += units * BYTES_PER_WORK


cdef inline bint is_behind(conn_t* conn) noexcept nogil:
    """Whether something of what a connection has sent is still to be acted on: it is not closed before, and read again."""
    return conn.held or conn.resting
