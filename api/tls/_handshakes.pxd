"""Handshakes in threads of their own, as the plane sees them."""

from jetraft.api.tls._state cimport tls_t

cdef void submit(tls_t* tls) noexcept nogil

cdef class HandshakePool:
    cdef void* pool             # pool_t*
    cdef public object context  # must outlive the threads, which make connections from it
    cdef readonly int event_fd
    cdef tls_t* take(self) noexcept
