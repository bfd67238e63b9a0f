"""What all connections of a listener share: certificates, authorities, ciphers. DER in, so OpenSSL asks for no password.

Clients that show certificates get no session tickets: a session taken up again would not look at the certificate again,
nor show the chain. No peer may renegotiate, compress, or send data before the handshake is complete.

With a `server_name` the context is for connections that this server makes: what the other end shows has to be for that
name, or address, and nothing else of the certificate is taken for one.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strlen

from jetraft.api.tls._openssl cimport (
    EVP_PKEY,
    OPENSSL_VERSION,
    SSL,
    SSL_CTX,
    SSL_MODE_AUTO_RETRY,
    SSL_MODE_RELEASE_BUFFERS,
    SSL_OP_CIPHER_SERVER_PREFERENCE,
    SSL_OP_NO_COMPRESSION,
    SSL_OP_NO_RENEGOTIATION,
    SSL_OP_NO_TICKET,
    SSL_OP_PRIORITIZE_CHACHA,
    SSL_SESS_CACHE_OFF,
    SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
    SSL_VERIFY_NONE,
    SSL_VERIFY_PEER,
    TLS1_2_VERSION,
    TLS1_3_VERSION,
    TLSEXT_NAMETYPE_host_name,
    X509,
    X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS,
    X509_STORE_CTX,
    X509_VERIFY_PARAM,
    BIO_get_data,
    ERR_clear_error,
    EVP_PKEY_free,
    OpenSSL_version,
    SSL_CTX_add_client_CA,
    SSL_CTX_clear_mode,
    SSL_CTX_free,
    SSL_CTX_get0_param,
    SSL_CTX_get_cert_store,
    SSL_CTX_new,
    SSL_CTX_set1_groups_list,
    SSL_CTX_set_app_data,
    SSL_CTX_set_cert_cb,
    SSL_CTX_set_cert_verify_callback,
    SSL_CTX_set_cipher_list,
    SSL_CTX_set_ciphersuites,
    SSL_CTX_set_default_verify_paths,
    SSL_CTX_set_min_proto_version,
    SSL_CTX_set_mode,
    SSL_CTX_set_num_tickets,
    SSL_CTX_set_options,
    SSL_CTX_set_session_cache_mode,
    SSL_CTX_set_session_id_context,
    SSL_CTX_set_verify,
    SSL_CTX_use_cert_and_key,
    SSL_certs_clear,
    SSL_get_ex_data_X509_STORE_CTX_idx,
    SSL_get_rbio,
    SSL_get_servername,
    SSL_use_cert_and_key,
    TLS_client_method,
    TLS_server_method,
    X509_STORE_CTX_get0_untrusted,
    X509_STORE_CTX_get_error,
    X509_STORE_CTX_get_ex_data,
    X509_STORE_CTX_set_error,
    X509_V_ERR_CERT_SIGNATURE_FAILURE,
    X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
    X509_STORE_add_cert,
    X509_VERIFY_PARAM_set1_host,
    X509_VERIFY_PARAM_set1_ip_asc,
    X509_VERIFY_PARAM_set_hostflags,
    X509_check_host,
    X509_free,
    X509_verify_cert,
    d2i_AutoPrivateKey,
    d2i_X509,
    i2d_X509,
    sk_X509_free,
    sk_X509_new_null,
    sk_X509_num,
    sk_X509_push,
    sk_X509_value,
    stack_x509,
)
from jetraft.api.tls._state cimport tls_t

OPENSSL = OpenSSL_version(OPENSSL_VERSION).decode()
# The server's order: AES-128 first, as crypto/tls of Go prefers it; ChaCha20 for clients that put it first.
cdef const char* SUITES_13 = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

cdef struct pair_t:             # a certificate with its chain and key
    X509* cert
    EVP_PKEY* key
    stack_x509* chain

cdef struct choice_t:
    pair_t* pairs
    uint32_t count


class ContextError(ValueError):
    """OpenSSL does not take what it was given; the text says what."""


cdef void free_pair(pair_t* pair) noexcept:
    cdef int i
    X509_free(pair.cert)
    EVP_PKEY_free(pair.key)
    if pair.chain != NULL:
        for i in range(sk_X509_num(pair.chain)):
            X509_free(sk_X509_value(pair.chain, i))
        sk_X509_free(pair.chain)


cdef X509* read_cert(bytes der) except NULL:
    cdef const unsigned char* at = der
    cdef X509* cert = d2i_X509(NULL, &at, len(der))
    if cert == NULL:
        raise ContextError("a certificate that OpenSSL cannot read")
    return cert


cdef int choose(SSL* ssl, void* arg) noexcept nogil:
    """Give a connection the certificates that are for the name it asks for; of each kind of key the first one."""
    cdef choice_t* choice = <choice_t*>arg
    cdef const char* name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name)
    cdef uint32_t i, taken = 0
    cdef pair_t* pair
    SSL_certs_clear(ssl)
    if name != NULL:
        for i in range(choice.count):
            pair = &choice.pairs[i]
            if X509_check_host(pair.cert, name, strlen(name), 0, NULL) == 1:
                taken += SSL_use_cert_and_key(ssl, pair.cert, pair.key, pair.chain, 0) == 1
    if taken == 0:
        for i in range(choice.count):
            pair = &choice.pairs[i]
            SSL_use_cert_and_key(ssl, pair.cert, pair.key, pair.chain, 0)
    ERR_clear_error()           # a second one of the same kind is refused
    return 1


cdef int check(X509_STORE_CTX* ctx, void* arg) noexcept nogil:
    """Verify as OpenSSL does, and keep what the peer has shown, for its name and for the line that says why not."""
    cdef SSL* ssl = <SSL*>X509_STORE_CTX_get_ex_data(ctx, SSL_get_ex_data_X509_STORE_CTX_idx())
    cdef tls_t* tls = <tls_t*>BIO_get_data(SSL_get_rbio(ssl))
    cdef stack_x509* shown = X509_STORE_CTX_get0_untrusted(ctx)
    cdef size_t total = 0
    cdef int i, n, good
    cdef unsigned char* at
    cdef uint32_t size
    for i in range(sk_X509_num(shown)):
        total += 4 + i2d_X509(sk_X509_value(shown, i), NULL)
    free(tls.certs)
    tls.certs = <char*>malloc(total)
    tls.certs_len = 0
    if tls.certs != NULL:
        for i in range(sk_X509_num(shown)):
            at = <unsigned char*>tls.certs + tls.certs_len + 4
            n = i2d_X509(sk_X509_value(shown, i), &at)
            size = n
            memcpy(tls.certs + tls.certs_len, &size, 4)
            tls.certs_len += 4 + n
    good = X509_verify_cert(ctx)
    tls.verified = X509_STORE_CTX_get_error(ctx)
    if good != 1 and tls.verified == X509_V_ERR_CERT_SIGNATURE_FAILURE:
        # An authority that has no more than the name of a trusted one is unknown, as to crypto/tls of Go. OpenSSL's
        # alert would be of decryption.
        X509_STORE_CTX_set_error(ctx, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY)
    if good != 1:
        ERR_clear_error()       # what a signature failed with is not what the handshake failed with
    return 1 if good == 1 else 0


cdef SSL_CTX* new_ctx(bint connects=False) except NULL:
    cdef SSL_CTX* ctx = SSL_CTX_new(TLS_client_method() if connects else TLS_server_method())
    if ctx == NULL:
        raise MemoryError
    return ctx


cdef class TlsContext:
    """One SSL_CTX. Raises ContextError for what OpenSSL refuses."""

    def __cinit__(self, *, certificates, authorities, bint system_authorities, bint verify, bint tls13_only,
                  bytes ciphers, bytes groups, bytes server_name=None, bint is_address=False):
        cdef SSL_CTX* ctx = new_ctx(server_name is not None)
        cdef choice_t* choice
        self.ctx = ctx
        SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION)
        SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA)
        SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS)
        SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY)    # the caller counts records without a byte of the application
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF)
        SSL_CTX_set_session_id_context(ctx, <const unsigned char*>b"jetraft", 7)
        SSL_CTX_set_num_tickets(ctx, 0 if verify else 1)
        SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION if tls13_only else TLS1_2_VERSION)
        SSL_CTX_set_ciphersuites(ctx, SUITES_13)
        if ciphers and not SSL_CTX_set_cipher_list(ctx, ciphers):
            raise ContextError(f"OpenSSL offers none of the ciphers {ciphers.decode()}")
        if groups and not SSL_CTX_set1_groups_list(ctx, groups):
            raise ContextError(f"OpenSSL offers none of the curves {groups.decode()}")
        choice = <choice_t*>calloc(1, sizeof(choice_t))
        if choice == NULL:
            raise MemoryError
        self.choice = choice
        choice.pairs = <pair_t*>calloc(max(1, len(certificates)), sizeof(pair_t))
        for chain, key in certificates:
            self._take(chain, key)
        if choice.count == 1:
            if SSL_CTX_use_cert_and_key(ctx, choice.pairs[0].cert, choice.pairs[0].key, choice.pairs[0].chain, 1) != 1:
                raise ContextError("the certificate and its key do not belong together, or are too weak for OpenSSL")
        elif choice.count > 1:
            SSL_CTX_set_cert_cb(ctx, choose, choice)
        if server_name is not None:
            self._expect(server_name, is_address, verify)
        if verify:
            self._trust(authorities, system_authorities, server_name is None)
        if verify and server_name is None:
            SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL)
            SSL_CTX_set_cert_verify_callback(ctx, check, NULL)

    cdef _take(self, chain, bytes key):
        cdef choice_t* choice = <choice_t*>self.choice
        cdef pair_t* pair = &choice.pairs[choice.count]
        cdef const unsigned char* at = key
        pair.cert = read_cert(chain[0])
        choice.count += 1
        pair.chain = sk_X509_new_null()
        for der in chain[1:]:
            sk_X509_push(pair.chain, read_cert(der))
        pair.key = d2i_AutoPrivateKey(NULL, &at, len(key))
        if pair.key == NULL:
            raise ContextError("a private key that OpenSSL cannot read")

    cdef _expect(self, bytes name, bint is_address, bint verify):
        """The other end has to be of this name. What it shows is kept in any case, as its key may be compared."""
        cdef SSL_CTX* ctx = <SSL_CTX*>self.ctx
        cdef X509_VERIFY_PARAM* param = SSL_CTX_get0_param(ctx)
        if not name or b"\0" in name:
            raise ContextError("a server without a name")
        self.name = name
        X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS)
        if is_address:
            if X509_VERIFY_PARAM_set1_ip_asc(param, name) != 1:
                raise ContextError("a server whose address OpenSSL cannot read")
        else:
            if X509_VERIFY_PARAM_set1_host(param, name, len(name)) != 1:
                raise ContextError("a server whose name OpenSSL cannot use")
            SSL_CTX_set_app_data(ctx, <char*>self.name)
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER if verify else SSL_VERIFY_NONE, NULL)
        SSL_CTX_set_cert_verify_callback(ctx, check, NULL)

    cdef _trust(self, authorities, bint system_authorities, bint names_them):
        cdef SSL_CTX* ctx = <SSL_CTX*>self.ctx
        cdef X509* cert
        if system_authorities:
            SSL_CTX_set_default_verify_paths(ctx)
        for der in authorities:
            cert = read_cert(der)
            X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert)
            if names_them:
                SSL_CTX_add_client_CA(ctx, cert)
            X509_free(cert)
        SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET)

    def __dealloc__(self):
        cdef choice_t* choice = <choice_t*>self.choice
        cdef uint32_t i
        if choice != NULL:
            for i in range(choice.count):
                free_pair(&choice.pairs[i])
            free(choice.pairs)
            free(choice)
        if self.ctx != NULL:
            SSL_CTX_free(<SSL_CTX*>self.ctx)


def offers_cipher(bytes name):
    """True when this OpenSSL knows a cipher of TLS 1.2 by its own name, and its security level admits it."""
    cdef SSL_CTX* ctx = new_ctx()
    good = SSL_CTX_set_cipher_list(ctx, name) == 1
    SSL_CTX_free(ctx)
    ERR_clear_error()
    return good


def offers_group(bytes name):
    """True when this OpenSSL knows a group for the key exchange."""
    cdef SSL_CTX* ctx = new_ctx()
    good = SSL_CTX_set1_groups_list(ctx, name) == 1
    SSL_CTX_free(ctx)
    ERR_clear_error()
    return good
