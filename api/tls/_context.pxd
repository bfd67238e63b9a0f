"""What all connections of a listener share, as the plane sees it."""

cdef class TlsContext:
    cdef void* ctx              # SSL_CTX*
    cdef void* choice           # choice_t*: several certificates, from which each connection gets its own

    cdef _take(self, chain, bytes key)
    cdef _verify(self, authorities, bint system_authorities)
