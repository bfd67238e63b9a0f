"""Records: from bytes of the socket to bytes of the protocol and back."""

from jetraft.api.tls._state cimport tls_t

cdef tls_t* tls_new(void* context, void* pool, int fd) noexcept nogil
cdef bint tls_prepare(tls_t* tls) noexcept nogil
cdef bint tls_release(tls_t* tls) noexcept nogil
cdef void tls_free(tls_t* tls) noexcept nogil
cdef ssize_t tls_read(tls_t* tls, char* data, size_t room, bint* ended) noexcept nogil
cdef ssize_t tls_write(tls_t* tls, const char* data, size_t n) noexcept nogil
cdef int tls_flush(tls_t* tls) noexcept nogil
