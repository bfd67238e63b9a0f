"""Records of TLS connections: one receive gives OpenSSL many, one send takes many from it.

OpenSSL reads from and writes to memory through a BIO of our own, so a system call moves up to CIPHER_BYTES instead of one
record of 16 KiB. All that was received in a turn is decrypted in it: no decrypted byte waits inside of OpenSSL, where
epoll would not see it. What the socket does not take waits in the connection (`unsent`), and nothing more is encrypted
until it has left. The trio thread alone reads and writes records, so the two buffers are shared by all connections;
handshakes, which run in worker threads (_handshakes.pyx), go to the socket directly.
"""

from libc.errno cimport EAGAIN, EINTR, EPIPE, EPROTO, errno
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

from jetraft.api.tls._openssl cimport (
    BIO,
    BIO_CTRL_FLUSH,
    BIO_METHOD,
    BIO_TYPE_SOURCE_SINK,
    BIO_clear_retry_flags,
    BIO_free,
    BIO_get_data,
    BIO_get_new_index,
    BIO_meth_new,
    BIO_meth_set_ctrl,
    BIO_meth_set_read_ex,
    BIO_meth_set_write_ex,
    BIO_new,
    BIO_set_data,
    BIO_set_init,
    BIO_set_retry_read,
    ERR_clear_error,
    SSL,
    SSL_CTX,
    SSL_CTX_get_app_data,
    SSL_ERROR_WANT_READ,
    SSL_free,
    SSL_get_error,
    SSL_is_server,
    SSL_new,
    SSL_read_ex,
    SSL_set_accept_state,
    SSL_set_bio,
    SSL_set_connect_state,
    SSL_set_tlsext_host_name,
    SSL_shutdown,
    SSL_write_ex,
)
from jetraft.api.tls._state cimport RECORD_BYTES, TLS_OPEN, USELESS_RECORDS_MAX, tls_t, tls_unsent

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t n, int flags)
    ssize_t c_send "send"(int fd, const void* data, size_t n, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    CIPHER_BYTES = 256 * 1024       # of one receive and of one send
    UNSENT_MAX = 2 * CIPHER_BYTES   # a batch that the socket refused, and answers to a peer that never reads them

cdef BIO_METHOD* method = NULL
cdef char* received = NULL          # ciphertext of one receive; of the trio thread
cdef char* batch = NULL             # ciphertext of one send; of the trio thread
cdef size_t batch_len = 0
cdef size_t batch_cap = 0


cdef int bio_read(BIO* bio, char* data, size_t n, size_t* got) noexcept nogil:
    """Give OpenSSL what was received, or in a handshake exactly what it asks for from the socket."""
    cdef tls_t* tls = <tls_t*>BIO_get_data(bio)
    cdef ssize_t k
    BIO_clear_retry_flags(bio)
    if tls.phase == TLS_OPEN:
        if tls.feed_len == 0:
            BIO_set_retry_read(bio)
            return 0
        if n > tls.feed_len:
            n = tls.feed_len
        memcpy(data, tls.feed, n)
        tls.feed += n
        tls.feed_len -= n
        got[0] = n
        return 1
    k = c_recv(tls.fd, data, n, MSG_DONTWAIT)
    while k < 0 and errno == EINTR:
        k = c_recv(tls.fd, data, n, MSG_DONTWAIT)
    if k > 0:
        if not tls.has_first:
            tls.has_first = 1
            tls.first = <uint8_t>data[0]
        got[0] = k
        return 1
    if k == 0:
        tls.eof = 1
    elif errno == EAGAIN:
        BIO_set_retry_read(bio)
    else:
        tls.error = errno
    return 0


cdef int keep_unsent(tls_t* tls, const char* data, size_t n) noexcept nogil:
    """Keep records until the socket takes them; 0 when that would be more than a connection may have."""
    cdef size_t used = tls.unsent_end - tls.unsent_start
    cdef char* grown
    if used + n > UNSENT_MAX:
        return 0
    if tls.unsent_end + n > tls.unsent_cap:
        if tls.unsent_start:
            memmove(tls.unsent, tls.unsent + tls.unsent_start, used)
            tls.unsent_start = 0
            tls.unsent_end = used
        if used + n > tls.unsent_cap:
            grown = <char*>realloc(tls.unsent, used + n)
            if grown == NULL:
                return 0
            tls.unsent = grown
            tls.unsent_cap = used + n
    memcpy(tls.unsent + tls.unsent_end, data, n)
    tls.unsent_end += n
    return 1


cdef int bio_write(BIO* bio, const char* data, size_t n, size_t* written) noexcept nogil:
    """Take a record; the socket sees it when the batch, or the step of the handshake, is complete."""
    global batch, batch_len, batch_cap
    cdef tls_t* tls = <tls_t*>BIO_get_data(bio)
    cdef char* grown
    BIO_clear_retry_flags(bio)
    written[0] = n
    if tls.phase != TLS_OPEN:
        return keep_unsent(tls, data, n)
    if batch_len + n > batch_cap:
        grown = <char*>realloc(batch, batch_len + n + CIPHER_BYTES)
        if grown == NULL:
            return 0
        batch = grown
        batch_cap = batch_len + n + CIPHER_BYTES
    memcpy(batch + batch_len, data, n)
    batch_len += n
    return 1


cdef long bio_ctrl(BIO* bio, int command, long number, void* pointer) noexcept nogil:
    return 1 if command == BIO_CTRL_FLUSH else 0


cdef tls_t* tls_new(void* context, void* pool, int fd) noexcept nogil:
    """A connection in its first phase; NULL when there is no memory."""
    cdef tls_t* tls = <tls_t*>calloc(1, sizeof(tls_t))
    if tls != NULL:
        tls.context = context
        tls.pool = pool
        tls.fd = fd
    return tls


cdef bint tls_prepare(tls_t* tls) noexcept nogil:
    """Make OpenSSL's objects, before the first step of the handshake; False when there is no memory."""
    cdef SSL* ssl = SSL_new(<SSL_CTX*>tls.context)
    cdef BIO* bio = BIO_new(method)
    cdef const char* name
    if ssl == NULL or bio == NULL:
        SSL_free(ssl)
        BIO_free(bio)
        return False
    BIO_set_data(bio, tls)
    BIO_set_init(bio, 1)
    SSL_set_bio(ssl, bio, bio)
    if SSL_is_server(ssl):
        SSL_set_accept_state(ssl)
    else:
        SSL_set_connect_state(ssl)
        name = <const char*>SSL_CTX_get_app_data(<SSL_CTX*>tls.context)
        if name != NULL:
            SSL_set_tlsext_host_name(ssl, name)
    tls.ssl = ssl
    return True


cdef void tls_free(tls_t* tls) noexcept nogil:
    SSL_free(<SSL*>tls.ssl)
    free(tls.unsent)
    free(tls.certs)
    free(tls)


cdef bint tls_release(tls_t* tls) noexcept nogil:
    """The connection ends: say so to the peer if that is possible now. False: a worker holds it, and the descriptor."""
    if tls.busy:
        tls.orphan = 1
        tls.conn = NULL
        return False
    if tls.phase == TLS_OPEN and not tls.broken and not tls_unsent(tls):
        ERR_clear_error()
        SSL_shutdown(<SSL*>tls.ssl)
        send_batch(tls)
    tls_free(tls)
    return True


cdef int tls_flush(tls_t* tls) noexcept nogil:
    """Send what waits: 0 when all has left, else the errno."""
    cdef ssize_t k
    while tls_unsent(tls):
        k = c_send(tls.fd, tls.unsent + tls.unsent_start, tls.unsent_end - tls.unsent_start, MSG_DONTWAIT | MSG_NOSIGNAL)
        if k < 0:
            if errno == EINTR:
                continue
            return errno
        tls.unsent_start += k
    if tls.unsent != NULL:
        free(tls.unsent)
        tls.unsent = NULL
        tls.unsent_start = tls.unsent_end = tls.unsent_cap = 0
    return 0


cdef int send_batch(tls_t* tls) noexcept nogil:
    """Send the records that OpenSSL has made, behind those that wait. 0, or the errno of a connection that has ended."""
    global batch_len
    cdef size_t sent = 0
    cdef ssize_t k
    cdef int error = 0
    if not tls_unsent(tls):
        while sent < batch_len:
            k = c_send(tls.fd, batch + sent, batch_len - sent, MSG_DONTWAIT | MSG_NOSIGNAL)
            if k < 0:
                if errno == EINTR:
                    continue
                if errno != EAGAIN:
                    error = errno
                break
            sent += k
    if error == 0 and sent < batch_len and not keep_unsent(tls, batch + sent, batch_len - sent):
        error = EPIPE
    batch_len = 0
    if error:
        tls.broken = 1
    return error


cdef ssize_t tls_write(tls_t* tls, const char* data, size_t n) noexcept nogil:
    """Encrypt and send: how many of the bytes were taken, or minus the errno. Taken bytes may wait in `unsent`."""
    cdef size_t written = 0, waited = tls.unsent_start
    cdef int error
    if tls.broken:
        return -EPIPE
    error = tls_flush(tls)
    if error == EAGAIN and tls.unsent_start > waited:
        return 0            # progress, from which the write deadline is counted; the next call says that it is blocked
    if error or n == 0:
        return -error
    if n > CIPHER_BYTES:
        n = CIPHER_BYTES
    ERR_clear_error()
    if SSL_write_ex(<SSL*>tls.ssl, data, n, &written) != 1:
        tls.broken = 1
        send_batch(tls)
        return -EPIPE
    error = send_batch(tls)
    return -error if error else <ssize_t>written


cdef ssize_t tls_read(tls_t* tls, char* data, size_t room, bint* ended) noexcept nogil:
    """Receive once and decrypt all of it: how many bytes came out, or minus the errno.

    `ended` says that nothing more will come: the peer has closed, or has broken the protocol.
    """
    cdef SSL* ssl = <SSL*>tls.ssl
    cdef size_t total = 0, got = 0
    cdef ssize_t k
    ended[0] = False
    if room <= 2 * RECORD_BYTES:
        return -EPROTO
    # What comes out is less than what came in and the part of a record that OpenSSL has kept, so it always fits.
    k = c_recv(tls.fd, received, min(<size_t>CIPHER_BYTES, room - RECORD_BYTES), MSG_DONTWAIT)
    if k < 0:
        return -errno
    if k == 0:
        ended[0] = True
        return 0
    tls.feed = received
    tls.feed_len = k
    while total < room:
        ERR_clear_error()
        if SSL_read_ex(ssl, data + total, room - total, &got) == 1:
            total += got
            tls.useless = 0
            continue
        if SSL_get_error(ssl, 0) == SSL_ERROR_WANT_READ:
            if tls.feed_len == 0:
                break
            tls.useless += 1
            if tls.useless <= USELESS_RECORDS_MAX:
                continue
        ended[0] = True
        break
    if tls.feed_len:
        ended[0] = True
    tls.feed = NULL
    tls.feed_len = 0
    if batch_len and send_batch(tls):
        ended[0] = True
    return total


def prepare():
    """Make the method and the buffers, once, before the first connection. Raises MemoryError."""
    global method, received
    if method != NULL:
        return
    received = <char*>malloc(CIPHER_BYTES)
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, b"jetraft")
    if received == NULL or method == NULL:
        raise MemoryError
    BIO_meth_set_read_ex(method, bio_read)
    BIO_meth_set_write_ex(method, bio_write)
    BIO_meth_set_ctrl(method, bio_ctrl)
