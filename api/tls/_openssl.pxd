"""What is used of OpenSSL 3: its public C API, by its own names."""

from libc.stdint cimport uint64_t

cdef extern from "<openssl/bio.h>" nogil:
    ctypedef struct BIO:
        pass
    ctypedef struct BIO_METHOD:
        pass
    BIO_METHOD* BIO_meth_new(int kind, const char* name)
    int BIO_meth_set_read_ex(BIO_METHOD* method, int (*read)(BIO*, char*, size_t, size_t*) noexcept nogil)
    int BIO_meth_set_write_ex(BIO_METHOD* method, int (*write)(BIO*, const char*, size_t, size_t*) noexcept nogil)
    int BIO_meth_set_ctrl(BIO_METHOD* method, long (*ctrl)(BIO*, int, long, void*) noexcept nogil)
    BIO* BIO_new(const BIO_METHOD* method)
    int BIO_free(BIO* bio)
    void BIO_set_data(BIO* bio, void* data)
    void* BIO_get_data(BIO* bio)
    void BIO_set_init(BIO* bio, int init)
    void BIO_set_retry_read(BIO* bio)
    void BIO_clear_retry_flags(BIO* bio)
    int BIO_get_new_index()
    int BIO_TYPE_SOURCE_SINK
    int BIO_CTRL_FLUSH

cdef extern from "<openssl/err.h>" nogil:
    void ERR_clear_error()
    unsigned long ERR_peek_error()
    int ERR_GET_REASON(unsigned long code)
    int ERR_GET_LIB(unsigned long code)
    int ERR_LIB_SSL
    const char* ERR_reason_error_string(unsigned long code)

cdef extern from "<openssl/x509.h>" nogil:
    ctypedef struct X509:
        pass
    ctypedef struct X509_STORE:
        pass
    ctypedef struct X509_STORE_CTX:
        pass
    ctypedef struct EVP_PKEY:
        pass
    ctypedef struct stack_x509 "STACK_OF(X509)":
        pass
    X509* d2i_X509(X509** into, const unsigned char** data, long n)
    int i2d_X509(X509* cert, unsigned char** into)
    void X509_free(X509* cert)
    int X509_up_ref(X509* cert)
    EVP_PKEY* d2i_AutoPrivateKey(EVP_PKEY** into, const unsigned char** data, long n)
    void EVP_PKEY_free(EVP_PKEY* key)
    stack_x509* sk_X509_new_null()
    int sk_X509_push(stack_x509* chain, X509* cert)
    int sk_X509_num(const stack_x509* chain)
    X509* sk_X509_value(const stack_x509* chain, int i)
    void sk_X509_free(stack_x509* chain)

cdef extern from "<openssl/x509v3.h>" nogil:
    int X509_check_host(X509* cert, const char* name, size_t n, unsigned int flags, char** peer)
    unsigned int X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
    unsigned int X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS

cdef extern from "<openssl/x509_vfy.h>" nogil:
    ctypedef struct X509_VERIFY_PARAM:
        pass
    int X509_VERIFY_PARAM_set1_host(X509_VERIFY_PARAM* param, const char* name, size_t n)
    int X509_VERIFY_PARAM_set1_ip_asc(X509_VERIFY_PARAM* param, const char* address)
    void X509_VERIFY_PARAM_set_hostflags(X509_VERIFY_PARAM* param, unsigned int flags)
    int X509_STORE_add_cert(X509_STORE* store, X509* cert)
    int X509_verify_cert(X509_STORE_CTX* ctx)
    void* X509_STORE_CTX_get_ex_data(X509_STORE_CTX* ctx, int i)
    stack_x509* X509_STORE_CTX_get0_untrusted(X509_STORE_CTX* ctx)
    int X509_STORE_CTX_get_error(X509_STORE_CTX* ctx)
    void X509_STORE_CTX_set_error(X509_STORE_CTX* ctx, int error)
    int X509_V_ERR_CERT_SIGNATURE_FAILURE
    int X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY

cdef extern from "<openssl/ssl.h>" nogil:
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL:
        pass
    ctypedef struct SSL_METHOD:
        pass
    ctypedef struct SSL_CIPHER:
        pass
    const SSL_METHOD* TLS_server_method()
    const SSL_METHOD* TLS_client_method()
    SSL_CTX* SSL_CTX_new(const SSL_METHOD* method)
    void SSL_CTX_free(SSL_CTX* ctx)
    uint64_t SSL_CTX_set_options(SSL_CTX* ctx, uint64_t options)
    long SSL_CTX_set_mode(SSL_CTX* ctx, long mode)
    long SSL_CTX_clear_mode(SSL_CTX* ctx, long mode)
    long SSL_CTX_set_session_cache_mode(SSL_CTX* ctx, long mode)
    int SSL_CTX_set_session_id_context(SSL_CTX* ctx, const unsigned char* name, unsigned int n)
    int SSL_CTX_set_num_tickets(SSL_CTX* ctx, size_t n)
    int SSL_CTX_set_min_proto_version(SSL_CTX* ctx, int version)
    int SSL_CTX_set_cipher_list(SSL_CTX* ctx, const char* names)
    int SSL_CTX_set_ciphersuites(SSL_CTX* ctx, const char* names)
    int SSL_CTX_set1_groups_list(SSL_CTX* ctx, const char* names)
    int SSL_CTX_set_default_verify_paths(SSL_CTX* ctx)
    X509_STORE* SSL_CTX_get_cert_store(SSL_CTX* ctx)
    int SSL_CTX_add_client_CA(SSL_CTX* ctx, X509* cert)
    int SSL_CTX_use_cert_and_key(SSL_CTX* ctx, X509* cert, EVP_PKEY* key, stack_x509* chain, int override)
    int SSL_use_cert_and_key(SSL* ssl, X509* cert, EVP_PKEY* key, stack_x509* chain, int override)
    void SSL_certs_clear(SSL* ssl)
    void SSL_CTX_set_cert_cb(SSL_CTX* ctx, int (*callback)(SSL*, void*) noexcept nogil, void* arg)
    void SSL_CTX_set_verify(SSL_CTX* ctx, int mode, void* callback)
    void SSL_CTX_set_cert_verify_callback(SSL_CTX* ctx, int (*callback)(X509_STORE_CTX*, void*) noexcept nogil, void* arg)
    int SSL_get_ex_data_X509_STORE_CTX_idx()
    SSL* SSL_new(SSL_CTX* ctx)
    void SSL_free(SSL* ssl)
    void SSL_set_bio(SSL* ssl, BIO* reads, BIO* writes)
    BIO* SSL_get_rbio(SSL* ssl)
    void SSL_set_accept_state(SSL* ssl)
    void SSL_set_connect_state(SSL* ssl)
    int SSL_is_server(const SSL* ssl)
    long SSL_set_tlsext_host_name(SSL* ssl, const char* name)
    int SSL_CTX_set_app_data(SSL_CTX* ctx, void* data)
    void* SSL_CTX_get_app_data(SSL_CTX* ctx)
    X509_VERIFY_PARAM* SSL_CTX_get0_param(SSL_CTX* ctx)
    int SSL_do_handshake(SSL* ssl)
    int SSL_read_ex(SSL* ssl, void* data, size_t n, size_t* got)
    int SSL_write_ex(SSL* ssl, const void* data, size_t n, size_t* written)
    int SSL_shutdown(SSL* ssl)
    int SSL_get_error(SSL* ssl, int result)
    const char* SSL_get_version(SSL* ssl)
    const SSL_CIPHER* SSL_get_current_cipher(SSL* ssl)
    const char* SSL_CIPHER_standard_name(const SSL_CIPHER* cipher)
    const char* SSL_get_servername(SSL* ssl, int kind)
    long SSL_get_verify_result(SSL* ssl)
    uint64_t SSL_OP_NO_COMPRESSION
    uint64_t SSL_OP_NO_RENEGOTIATION
    uint64_t SSL_OP_NO_TICKET
    uint64_t SSL_OP_CIPHER_SERVER_PREFERENCE
    uint64_t SSL_OP_PRIORITIZE_CHACHA
    long SSL_MODE_RELEASE_BUFFERS
    long SSL_MODE_AUTO_RETRY
    long SSL_SESS_CACHE_OFF
    int SSL_VERIFY_NONE
    int SSL_VERIFY_PEER
    int SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    int SSL_ERROR_WANT_READ
    int SSL_ERROR_ZERO_RETURN
    int TLSEXT_NAMETYPE_host_name
    int TLS1_2_VERSION
    int TLS1_3_VERSION

cdef extern from "<openssl/crypto.h>" nogil:
    const char* OpenSSL_version(int kind)
    int OPENSSL_VERSION
