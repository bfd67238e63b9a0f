"""Events of connections whose handshake is not complete. Nothing that they send is read here, let alone parsed.

Such a connection is watched for one event at a time (EPOLLONESHOT), because the thread that takes the next step of its
handshake is the only one that may read it, and an end of the peer must not wake every turn meanwhile.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport CLOSE_CLIENT, conn_t, plane_t
from jetraft.api.plane._writer cimport conn_close, conn_watch
from jetraft.api.tls._handshakes cimport submit
from jetraft.api.tls._records cimport tls_release
from jetraft.api.tls._state cimport TLS_DETECT, TLS_HANDSHAKE, TLS_WAIT, tls_t

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t n, int flags)
    int MSG_DONTWAIT
    int MSG_PEEK

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int EPOLLIN
    int EPOLLOUT
    int EPOLLONESHOT
    int EPOLL_CTL_MOD

cdef enum:
    HANDSHAKE_RECORD = 0x16


cdef void tls_watch(plane_t* plane, conn_t* conn, bint writing) noexcept nogil:
    """Wait for the next event of a handshake, once."""
    cdef epoll_event event
    event.events = (EPOLLOUT if writing else EPOLLIN) | EPOLLONESHOT
    event.data.ptr = conn
    epoll_ctl(plane.epfd, EPOLL_CTL_MOD, conn.fd, &event)


cdef void tls_event(plane_t* plane, conn_t* conn) noexcept nogil:
    """Something has happened to a connection that does not exchange records yet."""
    cdef tls_t* tls = conn.tls
    cdef char first = 0
    cdef ssize_t k
    if tls.busy:
        return
    if tls.phase == TLS_DETECT:
        k = c_recv(conn.fd, &first, 1, MSG_DONTWAIT | MSG_PEEK)
        if k < 0 and (errno == EAGAIN or errno == EINTR):
            tls_watch(plane, conn, False)
            return
        if k <= 0:
            conn_close(plane, conn, CLOSE_CLIENT)
            return
        if first != HANDSHAKE_RECORD:
            conn.tls = NULL
            tls_release(tls)
            conn_watch(plane, conn)     # the bytes are still there, and the next turn reads them
            return
        tls.phase = TLS_HANDSHAKE
    elif tls.phase == TLS_WAIT:
        tls.phase = TLS_HANDSHAKE
    if tls.phase == TLS_HANDSHAKE:
        submit(tls)
