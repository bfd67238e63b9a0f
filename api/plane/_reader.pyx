"""Receiving: one turn over the ready sockets, through one shared buffer.

Connections own no receive buffer: an incomplete line or message is copied out of the shared one. A connection is read
once a turn, RECV_BYTES at most, so that no client starves another, and what all of them together may have done in a turn is
bounded (_share.pxd). A producer whose receiver is slow is paused.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memmove

from jetraft.api.plane._epoll cimport EPOLLIN, EPOLLOUT, epoll_event, epoll_wait
from jetraft.api.plane._ends cimport has_ends
from jetraft.api.plane._feed cimport resume_conn
from jetraft.api.plane._packed cimport read_packed, take
from jetraft.api.plane._share cimport WORK_AT_LEAST, WORK_PER_TURN
from jetraft.api.plane._text cimport jr_mono_ns
from jetraft.api.plane._tls cimport tls_event
from jetraft.api.plane._types cimport CLOSE_CLIENT, CONN_OPEN, conn_t, plane_t, watch_t
from jetraft.api.plane._unread cimport TURN_SHARE
from jetraft.api.plane._writer cimport conn_close, conn_send, conn_watch, push_ptr
from jetraft.api.tls._records cimport tls_read
from jetraft.api.tls._state cimport RECORD_BYTES, TLS_OPEN

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t n, int flags)
    int MSG_DONTWAIT

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int ppoll(pollfd* fds, unsigned long n, const timespec* timeout, const void* mask)
    int POLLIN

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    EVENTS_PER_TURN = 256
    SPIN_NS = 40_000            # a sleeping thread of a virtual machine wakes up 20 to 50 us after its event
    SPIN_SCORE_MAX = 16         # misses until polling is suspended
    SPIN_PROBE = 32             # waits until polling is tried again
    RECV_PACKED_BYTES = 16 * 1024   # where messages may be compressed: they may have a thousand times as many
    PAUSE_NS = 5_000_000        # nats-server stalls producers for 2 to 10 ms
    RECV_STALLED_BYTES = 16 * 1024  # of who publishes to a peer that is behind
    LATE_BYTES_PER_WORK = 256   # of who gets little of a turn: what is received and not acted on is copied


cdef void read_conn(plane_t* plane, conn_t* conn) noexcept nogil:
    """Receive once into the shared buffer, after the bytes kept from the last receive, and parse."""
    cdef ssize_t k
    cdef size_t have = conn.partial_len
    cdef size_t wanted = RECV_BYTES, room = plane.recv_cap - have
    cdef bint ended = False
    cdef int error
    if conn.ws != NULL and conn.ws.deflates:
        wanted = RECV_PACKED_BYTES
        room = min(room, <size_t>RECV_PACKED_BYTES + 2 * RECORD_BYTES)
    if conn.stalled or plane.route_full:
        wanted = min(wanted, RECV_STALLED_BYTES)
        room = min(room, <size_t>RECV_STALLED_BYTES + RECORD_BYTES)
    if plane.work + plane.moved >= plane.work_end:
        wanted = min(wanted, <size_t>plane.work_late * LATE_BYTES_PER_WORK)
        room = min(room, <size_t>plane.work_late * LATE_BYTES_PER_WORK + RECORD_BYTES)
    plane.recvs += 1
    if conn.tls != NULL:
        k = tls_read(conn.tls, plane.recv_buf + have, room, &ended)
        if k == 0 and not ended:
            return          # a part of a record
        error = <int>-k
    else:
        k = c_recv(conn.fd, plane.recv_buf + have, min(wanted, room), MSG_DONTWAIT)
        error = errno
    if k <= 0:
        if k < 0 and (error == EAGAIN or error == EINTR):
            return
        conn_close(plane, conn, CLOSE_CLIENT)
        return
    plane.received += k
    conn.last_active_ns = plane.now_ns
    conn.pings_out = 0
    if conn.packed != NULL:
        read_packed(plane, conn, plane.recv_buf + have, k, ended)
    else:
        take(plane, conn, k, ended)


cdef void back_pressure(plane_t* plane, conn_t* conn) noexcept nogil:
    """Do not read this producer for a while if what was just read of it went to a receiver that is slow."""
    cdef int64_t pause_ns = plane.route_pause_ns
    if plane.stall and pause_ns < PAUSE_NS:
        pause_ns = PAUSE_NS
    if not plane.stalls_producers or conn.state != CONN_OPEN:
        return
    conn.stalled = plane.route_pause_ns != 0 or (conn.stalled and plane.slow_routes != 0)
    if pause_ns == 0 or conn.paused or conn.fd < 0:
        return
    conn.paused = 1
    conn.paused_until_ns = plane.now_ns + pause_ns
    if plane.paused_conns.count == 0 or conn.paused_until_ns < plane.wake_ns:
        plane.wake_ns = conn.paused_until_ns
    plane.stalls += 1
    push_ptr(&plane.paused_conns, conn)
    conn_watch(plane, conn)


cdef void resume_paused(plane_t* plane) noexcept nogil:
    """Read those again whose pause is over, and those that were paused for a peer once no peer is behind."""
    cdef uint32_t i = 0, kept = 0
    cdef conn_t* conn
    for i in range(plane.paused_conns.count):
        conn = <conn_t*>plane.paused_conns.items[i]
        if conn.paused_until_ns > plane.now_ns and not (conn.stalled and plane.slow_routes == 0):
            if kept == 0 or conn.paused_until_ns < plane.wake_ns:
                plane.wake_ns = conn.paused_until_ns
            plane.paused_conns.items[kept] = conn
            kept += 1
            continue
        conn.paused = 0
        if conn.state == CONN_OPEN:
            conn_watch(plane, conn)
    plane.paused_conns.count = kept


cdef int resume_rested(plane_t* plane) noexcept nogil:
    """Go on with connections that had their share of this turn or of one before, as far as all together have one left.

    Returns how many there were. Those that are not reached keep their places, and are reached in one of the next turns.
    """
    cdef uint32_t i = 0, count = plane.resting_conns.count
    cdef conn_t* conn
    plane.work_end = plane.work + plane.moved + plane.turn_work
    while i < count and plane.work + plane.moved < plane.work_end:
        conn = <conn_t*>plane.resting_conns.items[i]
        i += 1
        if conn.state != CONN_OPEN or not conn.resting:
            continue
        if conn.share_turn == plane.turns and conn.spent >= WORK_PER_TURN:
            push_ptr(&plane.resting_conns, conn)
            continue
        resume_conn(plane, conn)
    plane.resting_conns.count -= i       # who rests again stands behind them
    memmove(plane.resting_conns.items, plane.resting_conns.items + i, plane.resting_conns.count * sizeof(void*))
    return <int>count


cdef inline void pass_over(plane_t* plane, conn_t* conn) noexcept nogil:
    """Read a connection that is ready in the next turn, before those that are not passed over in this one."""
    if not conn.passed_over:
        conn.passed_over = 1
        push_ptr(&plane.passed_conns, conn)


cdef void read_ready(plane_t* plane, conn_t* conn, uint64_t work_max) noexcept nogil:
    """Read a connection, once a turn; not if this turn has done so much, or received as much as may wait."""
    if conn.paused or conn.read_turn == plane.turns:
        return
    if plane.work + plane.moved >= work_max or (plane.bound_unread != NULL and plane.received > plane.max_unread // TURN_SHARE):
        pass_over(plane, conn)
        return
    conn.read_turn = plane.turns
    plane.stall = 0
    plane.route_pause_ns = 0
    if conn.packed != NULL and conn.packed.backlog:
        read_packed(plane, conn, NULL, 0, False)
    else:
        read_conn(plane, conn)
    back_pressure(plane, conn)


cdef void read_passed(plane_t* plane, uint64_t work_max) noexcept nogil:
    """Read those that the last turn passed over; who is passed over again stands before the others."""
    cdef uint32_t i, count = plane.passed_conns.count
    cdef conn_t* conn
    for i in range(count):
        conn = <conn_t*>plane.passed_conns.items[i]
        conn.passed_over = 0
        if conn.state == CONN_OPEN:
            read_ready(plane, conn, work_max)
    plane.passed_conns.count -= count
    memmove(plane.passed_conns.items, plane.passed_conns.items + count, plane.passed_conns.count * sizeof(void*))


cdef int spin(plane_t* plane, epoll_event* events) noexcept nogil:
    """Poll for events for SPIN_NS without sleeping, unless polling has found none lately.

    A client that waits for an answer sends its next message 10 to 30 us after it. Other threads may run meanwhile.
    """
    cdef int n
    cdef int64_t until_ns
    if plane.spin_score == 0:
        plane.spin_skipped += 1
        if plane.spin_skipped < SPIN_PROBE:
            return 0
        plane.spin_skipped = 0
    until_ns = jr_mono_ns() + SPIN_NS
    while True:
        sched_yield()
        n = epoll_wait(plane.epfd, events, EVENTS_PER_TURN, 0)
        if n != 0:
            plane.spin_score = min(plane.spin_score + 2, SPIN_SCORE_MAX)
            return n
        if jr_mono_ns() >= until_ns:
            break
    if plane.spin_score:
        plane.spin_score -= 1
    return 0


cdef int wait_ready(plane_t* plane, epoll_event* events, int64_t timeout_ns) noexcept nogil:
    """Return the number of ready descriptors, after `timeout_ns` at most. ppoll waits: epoll_wait counts in ms."""
    cdef pollfd fds
    cdef timespec timeout
    cdef int n = epoll_wait(plane.epfd, events, EVENTS_PER_TURN, 0)
    if n != 0 or timeout_ns <= 0:
        return n
    n = spin(plane, events)
    if n != 0:
        return n
    fds.fd = plane.epfd
    fds.events = POLLIN
    timeout.tv_sec = timeout_ns // 1_000_000_000
    timeout.tv_nsec = timeout_ns % 1_000_000_000
    if ppoll(&fds, 1, &timeout, NULL) <= 0:
        return 0
    return epoll_wait(plane.epfd, events, EVENTS_PER_TURN, 0)


cdef int read_turn(plane_t* plane, int64_t timeout_ns) noexcept nogil:
    """Read every ready connection once; returns the number of ready descriptors, watched ones included.

    Not 0 either while subscriptions have to end: the next turn must not wait.
    """
    cdef epoll_event events[EVENTS_PER_TURN]
    cdef conn_t* conn
    cdef watch_t* watch
    cdef int i, n, passed, rested
    cdef uint64_t work_max
    cdef bint goes_on = plane.resting_conns.count != 0 or plane.passed_conns.count != 0 or has_ends(plane)
    n = wait_ready(plane, events, 0 if goes_on else timeout_ns)
    plane.now_ns = jr_mono_ns()
    plane.turns += 1
    plane.received = 0
    plane.turn_began = plane.work + plane.moved
    plane.work_end = plane.turn_began + plane.turn_work
    work_max = plane.work_end + plane.turn_work // 2
    if plane.paused_conns.count:
        resume_paused(plane)
    passed = <int>plane.passed_conns.count
    plane.work_late = max(plane.turn_work // 2 // (n + passed + 1), <uint64_t>WORK_AT_LEAST)
    if passed:
        read_passed(plane, work_max)
    for i in range(n):
        if <size_t>events[i].data.ptr & 1:
            watch = <watch_t*>(<size_t>events[i].data.ptr & ~<size_t>1)
            watch.ready = 1
            plane.ready_watches += 1
            continue
        conn = <conn_t*>events[i].data.ptr
        if conn.state != CONN_OPEN:
            continue
        if conn.tls != NULL and conn.tls.phase != TLS_OPEN:
            tls_event(plane, conn)
            continue
        if events[i].events & EPOLLOUT:
            conn_send(plane, conn)
        if conn.paused:
            if events[i].events & ~<uint32_t>(EPOLLOUT | EPOLLIN):
                conn_close(plane, conn, CLOSE_CLIENT)
        elif events[i].events & ~<uint32_t>EPOLLOUT or (conn.packed != NULL and conn.packed.backlog):
            read_ready(plane, conn, work_max)
    rested = resume_rested(plane) if plane.resting_conns.count else 0
    plane.work_end = UINT64_MAX         # between turns only what one connection may have is bounded
    return n + passed + rested + has_ends(plane)
