/* A client that misuses TLS against a server on loopback: misuse PORT keyupdates|renegotiate.
 *
 * keyupdates   changes its keys 100,000 times without sending a byte of the application
 * renegotiate  asks for a new handshake inside of TLS 1.2
 *
 * Prints "ended after N", N being how often it could do so, or "survived N".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TIMES = 100000 };

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int renegotiate = !strcmp(argv[2], "renegotiate");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    struct timeval wait = {.tv_sec = 30};
    char byte = 0, text[4096];
    signal(SIGPIPE, SIG_IGN);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) return 3;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    while (byte != '\n')
        if (recv(fd, &byte, 1, 0) != 1) return 4;
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (renegotiate) SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) != 1) return 5;
    const char *hello = "CONNECT {\"verbose\":false}\r\nPING\r\n";
    SSL_write(ssl, hello, (int)strlen(hello));
    if (SSL_read(ssl, text, sizeof text) <= 0) return 6;
    long i;
    for (i = 0; i < TIMES; i++) {
        if (renegotiate) {
            if (SSL_renegotiate(ssl) != 1 || SSL_do_handshake(ssl) != 1) break;
        } else if (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1) {
            break;
        }
    }
    printf("%s %ld\n", i < TIMES ? "ended after" : "survived", i);
    return 0;
}
