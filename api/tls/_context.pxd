"""What all connections of a listener share, as the plane sees it."""

cdef class TlsContext:
    cdef void* ctx              # SSL_CTX*
    cdef void* choice           # choice_t*: several certificates, from which each connection gets its own
    cdef bytes name             # of the server that connections are made to, which OpenSSL's objects point at

    cdef _take(self, chain, bytes key)
    cdef _expect(self, bytes name, bint is_address, bint verify)
    cdef _trust(self, authorities, bint system_authorities, bint names_them)
