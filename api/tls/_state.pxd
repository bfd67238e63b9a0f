"""The data dictionary of a TLS connection: what the plane, the records and the handshakes share. No OpenSSL in here."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum TlsPhase:
    TLS_WAIT = 0        # handshake first, with a delay: the first byte starts the handshake, the delay sends INFO
    TLS_DETECT = 1      # clients without TLS are allowed: the first byte decides
    TLS_HANDSHAKE = 2
    TLS_JUDGED = 3      # the handshake is complete; Python has not admitted the connection yet
    TLS_OPEN = 4        # records

cdef enum TlsStep:      # what a worker's step of a handshake came to
    STEP_NONE = 0
    STEP_READ = 1       # waits for bytes of the peer
    STEP_WRITE = 2      # waits for room in the socket
    STEP_DONE = 3
    STEP_FAILED = 4

cdef enum:
    RECORD_BYTES = 17 * 1024        # more than one record on the wire: 16 KiB, its head, and what encryption adds
    USELESS_RECORDS_MAX = 16        # in a row, without a byte of the application, as crypto/tls of Go bounds them

cdef struct tls_t:
    void* ssl           # SSL*, NULL until the first step of the handshake: who says nothing costs nothing
    void* context       # SSL_CTX*
    void* pool          # pool_t*: who takes its handshakes
    void* conn          # conn_t* of the plane; not to be followed when `orphan` is set
    int fd
    uint64_t cid
    uint8_t phase       # TlsPhase
    uint8_t step        # TlsStep
    uint8_t busy        # in a worker's hands: nobody else may touch `ssl`, `unsent` and what follows
    uint8_t orphan      # the plane has let go of it; whoever takes it back from the worker closes and frees
    uint8_t broken      # nothing can be written any more
    uint8_t eof         # the peer has ended while the handshake was going on
    uint8_t has_first   # a byte has arrived
    uint8_t first       # and this one was the first
    uint8_t useless     # records in a row without a byte of the application
    int error           # errno of the socket, 0: none
    unsigned long reason    # OpenSSL's error, 0: none
    long verified       # X509_V_ERR_..., of the peer's certificates
    const char* feed    # received and not yet taken by OpenSSL, while records are read
    size_t feed_len
    char* unsent        # records that the socket did not take
    size_t unsent_start
    size_t unsent_end
    size_t unsent_cap
    char* certs         # what the peer has shown: u32 length, DER, from its own on
    size_t certs_len
    tls_t* next         # in a pool's queue

cdef inline bint tls_unsent(tls_t* tls) noexcept nogil:
    """True when records wait for the socket."""
    return tls.unsent_end > tls.unsent_start
