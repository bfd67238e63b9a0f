/* Load generator for NATS servers: one thread, raw protocol, a fixed number of messages in flight.
 *
 *   loadgen pub    port=N conns=1 msgs=N size=128              publish to nobody
 *   loadgen fan    port=N pubs=1 subs=1 msgs=N size=128        publish to subscribers; with subjects=N each of them
 *                                                             has N subscriptions, and a message goes to one of these
 *   loadgen req    port=N msgs=N size=16                       request and reply between two connections, one at a time
 *   loadgen jspub  port=N conns=1 window=1000 msgs=N size=128 subjects=1 replicas=1 chain=0; with streams=N connection i
 *                                                             publishes to stream i modulo N, one message ahead of time
 *   loadgen fast   port=N conns=1 batch=500 msgs=N size=128 replicas=1   one fast batch for each connection, an ack for
 *                                                             every `batch` messages at most, two of them waited for
 *   loadgen atomic port=N conns=1 batch=500 msgs=N size=128 replicas=1   atomic batches, one at a time for each connection:
 *                                                             the first message and the last are waited for
 *   loadgen fill   the same as jspub, to prepare a stream for the readers
 *   loadgen fetch  port=N batch=500 ack=explicit|none msgs=N   pull consumer over the filled stream
 *   loadgen get    port=N batch=500 msgs=N                     batches of direct gets over the filled stream, one at a time
 *   loadgen push   port=N msgs=N                               ordered push consumer with flow control
 *   loadgen idle   port=N conns=1000                           connect, print the result, wait for the end of input
 *
 * Growth: idle_subs=N (pub, fan) holds N subscriptions that match nothing; idle_consumers=N (jspub) makes N consumers
 * that nobody reads; keep=1 (jspub) publishes into the stream as it is instead of making it anew. With paced=1 it prints
 * "ready" when everything is prepared, and waits for a line before the measured part, and for another one before it ends.
 *
 * With kv=1 jspub puts into a key-value bucket.
 *
 * With tls=1 every connection is encrypted.
 *
 * Everything is checked: each publish ack must carry a sequence that no other ack has, and together they must be the
 * sequences 1..N; each delivered message must hold the next number of its publisher and the payload pattern. The first
 * wrong byte ends the run with status 1. Prints one JSON object: rate (messages/s), seconds, p50_us, p99_us, gen_cpu_s.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <openssl/ssl.h>

enum { READ_BYTES = 1 << 20, MAX_CONNS = 20000, STALL_MS = 20000, HISTOGRAM = 1 << 20 };

typedef struct {
    int fd, id;
    SSL *ssl;               /* tls=1 */
    char *in, *out;
    size_t in_len, in_cap, out_len, out_pos, out_cap;
    long sent, done;        /* messages published, and answered or received */
    uint64_t next;          /* number that the next delivered message must hold */
    double *sent_at;        /* ring of send times, by message number modulo window */
    char inbox[32];
} conn_t;

static const char *host = "127.0.0.1";
static long port = 4222, conns = 1, pubs = 1, subs = 1, msgs = 100000, size = 128, window = 1000, subjects = 1;
static long replicas = 1, batch = 500, chain = 0, batched = 0, atomic = 0, kv = 0, streams = 1;
static long idle_subs = 0, idle_consumers = 0, keep = 0, paced = 0, tls = 0;
static SSL_CTX *tls_context;
static int ack_explicit = 1;
static conn_t *all;
static uint32_t *latency_us;    /* histogram of microseconds; the last bucket takes the rest */
static long latency_count;

static void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void note_latency(double seconds) {
    long us = (long)(seconds * 1e6);
    latency_us[us < 0 ? 0 : us >= HISTOGRAM ? HISTOGRAM - 1 : us]++;
    latency_count++;
}

static long percentile(double share) {
    long seen = 0, i;
    for (i = 0; i < HISTOGRAM; i++)
        if ((seen += latency_us[i]) >= share * latency_count && seen) return i;
    return 0;
}

/* ---- connections */

static void reserve(conn_t *c, size_t more) {
    if (c->out_pos == c->out_len) c->out_pos = c->out_len = 0;
    if (c->out_len + more > c->out_cap) {
        c->out_cap = (c->out_len + more) * 2;
        c->out = realloc(c->out, c->out_cap);
    }
}

static void put(conn_t *c, const char *data, size_t n) {
    reserve(c, n);
    memcpy(c->out + c->out_len, data, n);
    c->out_len += n;
}

static void putf(conn_t *c, const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= (int)sizeof text) fail("text too long");
    put(c, text, n);
}

static void flush(conn_t *c) {
    while (c->ssl && c->out_pos < c->out_len) {
        size_t k = 0;
        if (SSL_write_ex(c->ssl, c->out + c->out_pos, c->out_len - c->out_pos, &k) != 1) {
            if (SSL_get_error(c->ssl, 0) == SSL_ERROR_WANT_WRITE) return;
            fail("SSL_write failed");
        }
        c->out_pos += k;
    }
    while (c->out_pos < c->out_len) {
        ssize_t k = send(c->fd, c->out + c->out_pos, c->out_len - c->out_pos, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0) {
            if (errno == EAGAIN) return;
            fail("send: %s", strerror(errno));
        }
        c->out_pos += k;
    }
}

/* Reads once without waiting; 0 when nothing was there. */
static ssize_t fill_in(conn_t *c) {
    if (c->in_cap - c->in_len < READ_BYTES) {
        c->in_cap = c->in_len + 2 * READ_BYTES;
        c->in = realloc(c->in, c->in_cap);
    }
    if (c->ssl) {
        size_t total = 0, got;
        while (total + 16384 <= READ_BYTES && SSL_read_ex(c->ssl, c->in + c->in_len, READ_BYTES - total, &got) == 1) {
            c->in_len += got;
            total += got;
        }
        if (total + 16384 <= READ_BYTES && SSL_get_error(c->ssl, 0) != SSL_ERROR_WANT_READ)
            fail("server closed the TLS connection: %.*s", (int)(c->in_len > 200 ? 200 : c->in_len), c->in);
        return (ssize_t)total;
    }
    ssize_t k = recv(c->fd, c->in + c->in_len, READ_BYTES, MSG_DONTWAIT);
    if (k == 0) fail("server closed the connection: %.*s", (int)(c->in_len > 200 ? 200 : c->in_len), c->in);
    if (k < 0) {
        if (errno == EAGAIN || errno == EINTR) return 0;
        fail("recv: %s", strerror(errno));
    }
    c->in_len += k;
    return k;
}

static void wait_any(conn_t **list, int n) {
    static struct pollfd fds[MAX_CONNS];
    int i;
    for (i = 0; i < n; i++)
        if (list[i]->ssl && SSL_has_pending(list[i]->ssl) && list[i]->out_pos == list[i]->out_len) return;
    for (i = 0; i < n; i++) {
        fds[i].fd = list[i]->fd;
        fds[i].events = POLLIN | (list[i]->out_pos < list[i]->out_len ? POLLOUT : 0);
    }
    int ready = poll(fds, n, STALL_MS);
    if (ready == 0) fail("nothing happened for %d s", STALL_MS / 1000);
    for (i = 0; i < n; i++)
        if (fds[i].revents & POLLOUT) flush(list[i]);
}

static void wait_one(conn_t *c) { wait_any(&c, 1); }

/* Waits until the text has come and drops everything up to its end. */
static void expect(conn_t *c, const char *text) {
    size_t n = strlen(text);
    for (;;) {
        char *at = memmem(c->in, c->in_len, text, n);
        char *error = memmem(c->in, c->in_len, "-ERR", 4);
        if (error && (!at || error < at)) fail("server says %.*s", 80, error);
        if (at) {
            size_t rest = c->in + c->in_len - (at + n);
            memmove(c->in, at + n, rest);
            c->in_len = rest;
            return;
        }
        flush(c);
        wait_one(c);
        fill_in(c);
    }
}

/* The handshake behind INFO; the server's certificate is not looked at. */
static void tls_open(conn_t *c) {
    expect(c, "\r\n");
    if (!tls_context) {
        tls_context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(tls_context, 1);
        SSL_CTX_set_default_read_buffer_len(tls_context, 1 << 18);
        SSL_CTX_set_ciphersuites(tls_context, "TLS_AES_128_GCM_SHA256");
    }
    SSL *ssl = SSL_new(tls_context);
    SSL_set_fd(ssl, c->fd);
    if (SSL_connect(ssl) != 1) fail("TLS handshake failed");
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    c->ssl = ssl;
}

static void conn_open(conn_t *c, int id) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    memset(c, 0, sizeof *c);
    c->id = id;
    inet_pton(AF_INET, host, &address.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (tls) tls_open(c);
    snprintf(c->inbox, sizeof c->inbox, "_INBOX.%x%05d", (unsigned)getpid(), id);
    putf(c, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"lang\":\"c\","
            "\"version\":\"1\",\"protocol\":0}\r\nPING\r\n");
    expect(c, "PONG\r\n");
}

static void open_all(long n) {
    if (n > MAX_CONNS) fail("at most %d connections", MAX_CONNS);
    all = calloc(n, sizeof *all);
    for (long i = 0; i < n; i++) conn_open(&all[i], (int)i);
}

/* One JetStream API request; returns the answer's JSON (static buffer). */
static char *api(conn_t *c, const char *subject, const char *body) {
    static char answer[65536];
    putf(c, "SUB %s.api 900\r\nUNSUB 900 1\r\nPUB %s %s.api %zu\r\n", c->inbox, subject, c->inbox, strlen(body));
    put(c, body, strlen(body));
    put(c, "\r\n", 2);
    for (;;) {
        char *at = memmem(c->in, c->in_len, "MSG ", 4), *line = at ? memchr(at, '\n', c->in + c->in_len - at) : NULL;
        if (line) {
            long n = 0;
            char *p = line - 2;
            while (p > at && *p != ' ') p--;
            n = atol(p + 1);
            if (c->in + c->in_len >= line + 1 + n + 2) {
                if (n >= (long)sizeof answer) fail("answer of %ld bytes", n);
                memcpy(answer, line + 1, n);
                answer[n] = 0;
                size_t rest = c->in + c->in_len - (line + 1 + n + 2);
                memmove(c->in, line + 1 + n + 2, rest);
                c->in_len = rest;
                return answer;
            }
        }
        flush(c);
        wait_one(c);
        fill_in(c);
    }
}

static void must(const char *what, char *answer) {
    if (strstr(answer, "\"error\"")) fail("%s: %s", what, answer);
}

/* ---- payloads: eight bytes of message number, then a pattern that depends on nothing */

static char pattern[1 << 21];

static void make_pattern(void) {
    for (size_t i = 0; i < sizeof pattern; i++) pattern[i] = (char)('a' + i % 23);
}

static void put_payload(conn_t *c, uint64_t number) {
    reserve(c, size + 2);
    char *w = c->out + c->out_len;
    if (size >= 8) {
        memcpy(w, &number, 8);
        memcpy(w + 8, pattern, size - 8);
    } else {
        memcpy(w, pattern, size);
    }
    memcpy(w + size, "\r\n", 2);
    c->out_len += size + 2;
}

static uint64_t check_payload(const char *p, long n) {
    uint64_t number = 0;
    if (n != size) fail("payload of %ld bytes instead of %ld", n, size);
    if (size < 8) return 0;
    memcpy(&number, p, 8);
    if (memcmp(p + 8, pattern, size - 8)) fail("payload of message %lu is not what was published", number);
    return number;
}

/* Calls handle for every complete MSG or HMSG: subject, reply (may be empty), headers length, data, data length. */
typedef void (*handler_t)(conn_t *, char *subject, int subject_len, char *reply, int reply_len, long hdr, char *data, long n);

/* A decimal number that ends before `end`. */
static long number_of(const char *p, const char *end) {
    long value = 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') fail("server says %.*s where a number belongs", (int)(end - p), p);
        value = value * 10 + (*p - '0');
    }
    return value;
}

static long consume(conn_t *c, handler_t handle) {
    char *p = c->in, *end = c->in + c->in_len;
    long count = 0;
    while (p < end) {
        char *line = memchr(p, '\n', end - p), *words[7], *w = p;
        int k = 0;
        if (!line) break;
        if (*p == 'P') {        /* PING or PONG */
            if (p[1] == 'I') put(c, "PONG\r\n", 6);
            else c->done = -1;
            p = line + 1;
            continue;
        }
        if (*p == 'I' || *p == '+') { p = line + 1; continue; }
        if (*p != 'M' && *p != 'H') fail("server says %.*s", (int)(line - p), p);
        /* The words are verb, subject, sid, perhaps a reply, and one or two sizes; words[k] is where the next would begin. */
        while (k < 7) {
            words[k++] = w;
            /* Subjects are long, other words are not. */
            if (k == 2 || k == 4) w = memchr(w, ' ', line - w);
            else
                while (w < line && *w != ' ') w++;
            if (!w || w == line) break;
            w++;
        }
        int header = *p == 'H', has_reply = k == (header ? 6 : 5);
        if (k != (header ? 5 : 4) && !has_reply) fail("server says %.*s", (int)(line - p), p);
        long n = number_of(words[k - 1], line - 1), hdr = header ? number_of(words[k - 2], words[k - 1] - 1) : 0;
        if (end - (line + 1) < n + 2) break;
        handle(c, words[1], (int)(words[2] - words[1] - 1), has_reply ? words[3] : NULL,
               has_reply ? (int)(words[4] - words[3] - 1) : 0, hdr, line + 1, n);
        count++;
        p = line + 1 + n + 2;
    }
    memmove(c->in, p, end - p);
    c->in_len = end - p;
    return count;
}

/* Decimal text without printf: the generator must not be what is measured. */
static int put_number(char *w, uint64_t v) {
    char t[20];
    int n = 0, i;
    do { t[n++] = (char)('0' + v % 10); v /= 10; } while (v);
    for (i = 0; i < n; i++) w[i] = t[n - 1 - i];
    return n;
}

/* Whoever measures the server looks at its clock now. */
static void wait_line(void) {
    char line[16];
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) fail("nobody says when to go on");
}

static double begin(double *cpu0) {
    if (paced) {
        printf("ready\n");
        wait_line();
    }
    *cpu0 = cpu();
    return now();
}

static void report(const char *mode, long n, double seconds, double cpu0) {
    printf("{\"mode\":\"%s\",\"msgs\":%ld,\"seconds\":%.6f,\"rate\":%.1f,\"gen_cpu_s\":%.4f", mode, n, seconds, n / seconds,
           cpu() - cpu0);
    if (latency_count) printf(",\"p50_us\":%ld,\"p99_us\":%ld", percentile(0.5), percentile(0.99));
    printf("}\n");
    if (paced) wait_line();
}

/* ---- core: pub and fan */

static void on_fan(conn_t *c, char *s, int sl, char *r, int rl, long hdr, char *data, long n) {
    (void)s, (void)sl, (void)r, (void)rl, (void)hdr;
    uint64_t number = check_payload(data, n);
    if (pubs == 1 && number != c->next) fail("subscriber %d got message %lu instead of %lu", c->id, number, c->next);
    c->next++;
    c->done++;
}

static void run_core(const char *mode, long subscribers) {
    long total = pubs + subscribers, i, per = msgs / pubs, ahead_max = 64 * 1024 * 1024 / 4 / (size + 64);
    conn_t *list[MAX_CONNS];
    char head[64], tail[32];
    uint64_t x = 88172645463325252ull;
    int tail_len = snprintf(tail, sizeof tail, " %ld\r\n", size);
    memcpy(head, "PUB bench.fan.out.", 18);
    open_all(total);
    for (i = pubs; i < total; i++) {
        for (long k = 0; k < subjects; k++) putf(&all[i], "SUB bench.fan.out.%ld %ld\r\n", k, k + 1);
        putf(&all[i], "PING\r\n");
        expect(&all[i], "PONG\r\n");
    }
    conn_t idle;
    if (idle_subs) {
        conn_open(&idle, MAX_CONNS);
        for (i = 0; i < idle_subs; i++) putf(&idle, "SUB bench.idle.%ld.x %ld\r\n", i, i + 1);
        putf(&idle, "PING\r\n");
        expect(&idle, "PONG\r\n");
    }
    double c0, t0 = begin(&c0);
    long left = 1;
    while (left) {
        long slowest = per * pubs, n = 0;
        int eager = 0;          /* the socket took everything and there is more: do not wait */
        left = 0;
        for (i = pubs; i < total; i++)
            if (all[i].done < slowest) slowest = all[i].done;
        for (i = 0; i < pubs; i++) {
            conn_t *c = &all[i];
            /* Subscribers may be behind by a bounded number, so that no server has to cut them. */
            while (c->sent < per && c->out_len - c->out_pos < 262144 && (!subscribers || c->sent - slowest / pubs < ahead_max)) {
                long key = 0;
                if (subjects > 1) {
                    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                    key = (long)(x % (uint64_t)subjects);
                }
                int head_len = 18 + put_number(head + 18, (uint64_t)key);
                memcpy(head + head_len, tail, tail_len);
                put(c, head, head_len + tail_len);
                put_payload(c, c->sent++);
                if (c->sent == per) put(c, "PING\r\n", 6);
            }
            flush(c);
            if (c->done != -1) left++;
            if (c->sent < per && c->out_pos == c->out_len && !subscribers) eager = 1;
            list[n++] = c;
        }
        for (i = pubs; i < total; i++) {
            if (all[i].done < per * pubs) left++;
            list[n++] = &all[i];
        }
        if (!left) break;
        if (!eager) wait_any(list, (int)n);
        for (i = 0; i < total; i++)
            if (fill_in(&all[i])) consume(&all[i], on_fan);
    }
    report(mode, per * pubs, now() - t0, c0);
}

/* ---- request and reply */

static int got;

static void on_any(conn_t *c, char *s, int sl, char *r, int rl, long hdr, char *data, long n) {
    (void)s, (void)sl, (void)hdr;
    if (r) {
        putf(c, "PUB %.*s %ld\r\n", rl, r, n);
        put(c, data, n);
        put(c, "\r\n", 2);
        flush(c);
    } else {
        check_payload(data, n);
        got = 1;
    }
}

static void run_req(void) {
    open_all(2);
    conn_t *both[2] = {&all[0], &all[1]};
    putf(&all[1], "SUB bench.service 1\r\nPING\r\n");
    expect(&all[1], "PONG\r\n");
    putf(&all[0], "SUB %s.* 1\r\nPING\r\n", all[0].inbox);
    expect(&all[0], "PONG\r\n");
    double c0, t0 = begin(&c0);
    for (long i = 0; i < msgs; i++) {
        double t = now();
        putf(&all[0], "PUB bench.service %s.%ld %ld\r\n", all[0].inbox, i, size);
        put_payload(&all[0], i);
        flush(&all[0]);
        for (got = 0; !got;) {
            wait_any(both, 2);
            for (int k = 0; k < 2; k++)
                if (fill_in(&all[k])) consume(&all[k], on_any);
        }
        note_latency(now() - t);
    }
    report("req", msgs, now() - t0, c0);
}

/* ---- JetStream publish */

static uint8_t *seen;           /* of each stream, one behind the other */
static long per_stream;         /* messages of the run */
static uint64_t *first_seq;     /* each stream's last sequence before the run */

static void on_ack(conn_t *c, char *s, int sl, char *r, int rl, long hdr, char *data, long n) {
    (void)r, (void)rl, (void)hdr;
    char *at = memmem(data, n, "\"seq\":", 6);
    if (!at || memmem(data, n, "\"error\"", 7)) fail("publish refused: %.*s", (int)n, data);
    char *digits = at + 6;
    while (*digits == ' ') digits++;
    uint64_t seq = 0;
    while (*digits >= '0' && *digits <= '9') seq = seq * 10 + (uint64_t)(*digits++ - '0');
    long stream = c->id % streams;
    seq -= first_seq[stream];
    if (seq < 1 || seq > (uint64_t)per_stream) fail("sequence %lu of %ld", seq, per_stream);
    uint8_t *mark = &seen[stream * per_stream + (long)seq - 1];
    if (*mark) fail("sequence %lu acknowledged twice", seq);
    *mark = 1;
    /* The reply subject ends with the message's number on its connection. */
    long number = 0, unit = 1;
    for (int i = sl - 1; i >= 0 && s[i] != '.'; i--, unit *= 10) number += (s[i] - '0') * unit;
    note_latency(now() - c->sent_at[number % window]);
    c->done++;
}

/* `prefix` is that of its subjects. */
static void make_stream(const char *name, const char *prefix) {
    char body[600], subject[100];
    if (keep) {
        snprintf(subject, sizeof subject, "$JS.API.STREAM.INFO.%s", name);
        char *at = strstr(api(&all[0], subject, ""), "\"last_seq\":");
        if (!at) fail("there is no stream to keep");
        *first_seq = strtoull(at + 11, NULL, 10);
        return;
    }
    snprintf(subject, sizeof subject, "$JS.API.STREAM.DELETE.%s", name);
    api(&all[0], subject, "");
    snprintf(body, sizeof body,
             "{\"name\":\"%s\",\"subjects\":[\"%s.>\"],\"retention\":\"limits\",\"storage\":\"file\",\"num_replicas\":%ld,"
             "\"max_consumers\":-1,\"max_msgs\":-1,\"max_bytes\":-1,\"discard\":\"%s\",\"allow_direct\":true%s%s}", name, prefix, replicas,
             kv ? "new" : "old",
             batched ? ",\"allow_batched\":true" : atomic ? ",\"allow_atomic\":true" :
             kv ? ",\"max_msgs_per_subject\":1,\"allow_rollup_hdrs\":true,\"deny_delete\":true" : "",
             chain ? ",\"deny_delete\":true,\"deny_purge\":true,\"metadata\":{\"jetraft.chain\":\"sha256\"}" : "");
    snprintf(subject, sizeof subject, "$JS.API.STREAM.CREATE.%s", name);
    must("create stream", api(&all[0], subject, body));
}

/* Streams in which the first message is stored already: it takes a file and directories, and the run is of what follows. */
enum { FIRST_TRIES = 500, FIRST_PAUSE_US = 20000 };

static void make_streams(void) {
    char name[40], prefix[40], subject[60];
    if (streams == 1) {
        make_stream("BENCH", kv ? "$KV.b" : "bench.js");
        return;
    }
    if (keep || streams < 1 || conns % streams) fail("%ld connections for %ld streams", conns, streams);
    for (long i = 0; i < streams; i++) {
        snprintf(name, sizeof name, "BENCH%ld", i);
        snprintf(prefix, sizeof prefix, "bench.js%ld", i);
        make_stream(name, prefix);
        snprintf(subject, sizeof subject, "%s.first", prefix);
        first_seq[i] = 1;
        char *answer = api(&all[0], subject, "first");
        for (int tries = 0; !strstr(answer, "\"seq\":") && tries < FIRST_TRIES; tries++) {
            usleep(FIRST_PAUSE_US);     /* it has no leader yet */
            answer = api(&all[0], subject, "first");
        }
        if (!strstr(answer, "\"seq\":1")) fail("the first message of %s: %s", name, answer);
    }
}

static void run_jspub(const char *mode) {
    long i, per = msgs / conns;
    conn_t *list[MAX_CONNS];
    char head[256];
    uint64_t x = 88172645463325252ull;
    size_t inbox_len;
    msgs = per * conns;
    per_stream = msgs / streams;
    seen = calloc(msgs + 1, 1);
    first_seq = calloc(streams, sizeof *first_seq);
    open_all(conns);
    inbox_len = strlen(all[0].inbox);      /* all have the same length */
    make_streams();
    for (i = 0; i < idle_consumers; i++) {
        char subject[100], body[300];
        snprintf(subject, sizeof subject, "$JS.API.CONSUMER.CREATE.BENCH.idle%ld", i);
        snprintf(body, sizeof body,
                 "{\"stream_name\":\"BENCH\",\"config\":{\"durable_name\":\"idle%ld\",\"ack_policy\":\"explicit\"}}", i);
        must("create idle consumer", api(&all[0], subject, body));
    }
    for (i = 0; i < conns; i++) {
        all[i].sent_at = calloc(window, sizeof(double));
        putf(&all[i], "SUB %s.* 1\r\nPING\r\n", all[i].inbox);
        expect(&all[i], "PONG\r\n");
        list[i] = &all[i];
    }
    double c0, t0 = begin(&c0);
    for (;;) {
        long done = 0;
        double t = now();
        for (i = 0; i < conns; i++) {
            conn_t *c = &all[i];
            done += c->done;
            while (c->sent < per && c->sent - c->done < window && c->out_len - c->out_pos < 1 << 20) {
                long key = 0;
                if (subjects > 1) {
                    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                    key = (long)(x % (uint64_t)subjects);
                }
                char *w = head;
                memcpy(w, kv ? "PUB $KV.b   " : "PUB bench.js", 12);
                w += kv ? 9 : 12;
                if (streams > 1) w += put_number(w, (uint64_t)(i % streams));
                *w++ = '.';
                w += put_number(w, (uint64_t)key);
                *w++ = ' ';
                memcpy(w, c->inbox, inbox_len);
                w += inbox_len;
                *w++ = '.';
                w += put_number(w, (uint64_t)c->sent);
                *w++ = ' ';
                w += put_number(w, (uint64_t)size);
                memcpy(w, "\r\n", 2);
                put(c, head, w + 2 - head);
                c->sent_at[c->sent % window] = t;
                put_payload(c, (uint64_t)(c->sent++));
            }
            flush(c);
        }
        if (done == msgs) break;
        wait_any(list, (int)conns);
        for (i = 0; i < conns; i++)
            if (fill_in(&all[i])) consume(&all[i], on_ack);
    }
    double seconds = now() - t0;
    for (i = 0; i < msgs; i++)
        if (!seen[i]) fail("sequence %ld was never acknowledged", i % per_stream + 1);
    report(mode, msgs, seconds, c0);
}

/* ---- fast batches: acks of the flow on the way, and one of the whole */

enum { FLOWS = 2 };             /* acks that a publisher is ahead of, as the official clients */

static long *flow, *counted;    /* of each connection: messages between two acks, and messages of an ended batch */

static long number_behind(const char *data, long n, const char *key) {
    const char *at = memmem(data, n, key, strlen(key));
    if (!at) fail("no %s in %.*s", key, (int)n, data);
    return atol(at + strlen(key));
}

static void on_flow(conn_t *c, char *s, int sl, char *r, int rl, long hdr, char *data, long n) {
    (void)s, (void)sl, (void)r, (void)rl, (void)hdr;
    if (memmem(data, n, "\"error\"", 7) || memmem(data, n, "\"gap\"", 5)) fail("batch refused: %.*s", (int)n, data);
    if (memmem(data, n, "\"ack\"", 5)) {
        flow[c->id] = number_behind(data, n, "\"msgs\":");
        c->done = number_behind(data, n, "\"seq\":");
    } else {
        counted[c->id] = number_behind(data, n, "\"count\":");
        c->done = counted[c->id];
    }
}

static void run_fast(void) {
    long i, per = msgs / conns;
    conn_t *list[MAX_CONNS];
    msgs = per * conns;
    batched = 1;
    first_seq = calloc(1, sizeof *first_seq);
    open_all(conns);
    make_stream("BENCH", "bench.js");
    flow = calloc(conns, sizeof *flow);
    counted = calloc(conns, sizeof *counted);
    for (i = 0; i < conns; i++) {
        putf(&all[i], "SUB %s.> 1\r\nPING\r\n", all[i].inbox);
        expect(&all[i], "PONG\r\n");
        list[i] = &all[i];
    }
    double c0, t0 = begin(&c0);
    for (;;) {
        long ended = 0;
        for (i = 0; i < conns; i++) {
            conn_t *c = &all[i];
            long ahead = flow[i] ? FLOWS * flow[i] : 1;
            ended += counted[i] != 0;
            while (c->sent < per && c->sent - c->done < ahead && c->out_len - c->out_pos < 1 << 20) {
                int op = c->sent == per - 1 ? 2 : c->sent != 0;
                putf(c, "PUB bench.js.0 %s.b%ld.%ld.fail.%ld.%d.$FI %ld\r\n", c->inbox, i, batch, c->sent + 1, op, size);
                put_payload(c, (uint64_t)(c->sent++));
            }
            flush(c);
        }
        if (ended == conns) break;
        wait_any(list, (int)conns);
        for (i = 0; i < conns; i++)
            if (fill_in(&all[i])) consume(&all[i], on_flow);
    }
    double seconds = now() - t0;
    for (i = 0; i < conns; i++)
        if (counted[i] != per) fail("%ld of %ld messages were counted", counted[i], per);
    char *info = api(&all[0], "$JS.API.STREAM.INFO.BENCH", "");
    if (number_behind(info, strlen(info), "\"messages\":") != msgs) fail("the stream has others: %s", info);
    report("fast", msgs, seconds, c0);
}

/* ---- atomic batches */

static void on_part(conn_t *c, char *s, int sl, char *r, int rl, long hdr, char *data, long n) {
    (void)s, (void)sl, (void)r, (void)rl, (void)hdr;
    if (memmem(data, n, "\"error\"", 7)) fail("batch refused: %.*s", (int)n, data);
    if (n) {                    /* the whole is stored */
        if (number_behind(data, n, "\"count\":") != c->sent - c->done) fail("another count: %.*s", (int)n, data);
        c->done = c->sent;
        note_latency(now() - c->sent_at[0]);
    }
    c->next = 1;
}

static void put_part(conn_t *c, long number, long count) {
    char head[200];
    int waits = number == 1 || number == count, n;
    n = snprintf(head, sizeof head, "NATS/1.0\r\nNats-Batch-Id: %s.%ld\r\nNats-Batch-Sequence: %ld\r\n%s\r\n", c->inbox + 1,
                 c->done, number, number == count ? "Nats-Batch-Commit: 1\r\n" : "");
    putf(c, "HPUB bench.js.0 %s%s%s%d %ld\r\n", waits ? c->inbox : "", waits ? ".a" : "", waits ? " " : "", n, n + size);
    put(c, head, n);
    put_payload(c, (uint64_t)(c->sent++));
}

static void run_atomic(void) {
    long i, per = msgs / conns / batch * batch;
    conn_t *list[MAX_CONNS];
    msgs = per * conns;
    if (!msgs || batch < 2) fail("%ld messages are no batch of %ld", msgs / conns, batch);
    atomic = 1;
    first_seq = calloc(1, sizeof *first_seq);
    open_all(conns);
    make_stream("BENCH", "bench.js");
    for (i = 0; i < conns; i++) {
        all[i].sent_at = calloc(1, sizeof(double));
        all[i].next = 1;
        putf(&all[i], "SUB %s.a 1\r\nPING\r\n", all[i].inbox);
        expect(&all[i], "PONG\r\n");
        list[i] = &all[i];
    }
    double c0, t0 = begin(&c0);
    for (;;) {
        long ended = 0;
        for (i = 0; i < conns; i++) {
            conn_t *c = &all[i];
            ended += c->done == per;
            if (c->next && c->done < per) {     /* what was waited for has come */
                c->next = 0;
                if (c->sent == c->done) {
                    c->sent_at[0] = now();
                    put_part(c, 1, batch);
                } else {
                    for (long number = 2; number <= batch; number++) put_part(c, number, batch);
                }
            }
            flush(c);
        }
        if (ended == conns) break;
        wait_any(list, (int)conns);
        for (i = 0; i < conns; i++)
            if (fill_in(&all[i])) consume(&all[i], on_part);
    }
    double seconds = now() - t0;
    char *info = api(&all[0], "$JS.API.STREAM.INFO.BENCH", "");
    if (number_behind(info, strlen(info), "\"messages\":") != msgs) fail("the stream has others: %s", info);
    report("atomic", msgs, seconds, c0);
}

/* ---- JetStream delivery */

static long received, status_replies;

static void on_delivery(conn_t *c, char *s, int sl, char *r, int rl, long hdr, char *data, long n) {
    (void)s, (void)sl;
    if (hdr && n == hdr) {      /* a status: heartbeat, flow control, end of a pull */
        if (memmem(data, n, "100 FlowControl", 15) && r) putf(c, "PUB %.*s 0\r\n\r\n", rl, r);
        else if (memmem(data, n, "100 Idle", 8)) {
            char *stalled = memmem(data, n, "Nats-Consumer-Stalled: ", 23);
            if (stalled) {
                char *e = memchr(stalled, '\r', data + n - stalled);
                putf(c, "PUB %.*s 0\r\n\r\n", (int)(e - stalled - 23), stalled + 23);
            }
        } else if (!memmem(data, n, "404", 3) && !memmem(data, n, "408", 3)) fail("status %.*s", (int)n, data);
        status_replies++;
        return;
    }
    uint64_t number = check_payload(data + hdr, n - hdr);
    if (number != (uint64_t)received) fail("message %lu delivered instead of %ld", number, received);
    received++;
    if (ack_explicit && r) {
        put(c, "PUB ", 4);
        put(c, r, rl);
        put(c, " 4\r\n+ACK\r\n", 10);
    }
}

static void run_fetch(void) {
    char body[600];
    open_all(1);
    conn_t *c = &all[0];
    putf(c, "SUB %s.f 1\r\nPING\r\n", c->inbox);
    expect(c, "PONG\r\n");
    snprintf(body, sizeof body,
             "{\"stream_name\":\"BENCH\",\"config\":{\"durable_name\":\"f%d\",\"ack_policy\":\"%s\",\"deliver_policy\":\"all\","
             "\"max_ack_pending\":20000,\"ack_wait\":30000000000}}", getpid(), ack_explicit ? "explicit" : "none");
    char subject[100];
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.CREATE.BENCH.f%d", getpid());
    must("create consumer", api(c, subject, body));
    double c0, t0 = begin(&c0);
    while (received < msgs) {
        long target = received + (msgs - received < batch ? msgs - received : batch);
        putf(c, "PUB $JS.API.CONSUMER.MSG.NEXT.BENCH.f%d %s.f ", getpid(), c->inbox);
        snprintf(body, sizeof body, "{\"batch\":%ld,\"expires\":10000000000}", target - received);
        putf(c, "%zu\r\n%s\r\n", strlen(body), body);
        while (received < target) {     /* the acks of a batch's end go with the next request */
            flush(c);
            wait_one(c);
            if (fill_in(c)) consume(c, on_delivery);
        }
    }
    if (ack_explicit) {         /* the run ends when the server has taken the acks in */
        putf(c, "PING\r\n");
        for (c->done = 0; c->done != -1;) {
            flush(c);
            wait_one(c);
            if (fill_in(c)) consume(c, on_delivery);
        }
    }
    report("fetch", msgs, now() - t0, c0);
}

static void on_got(conn_t *c, char *s, int sl, char *r, int rl, long hdr, char *data, long n) {
    if (hdr && n == hdr) {
        if (!memmem(data, n, " 204 ", 5)) fail("status %.*s", (int)n, data);
        c->done = received;     /* of the batch */
        return;
    }
    on_delivery(c, s, sl, r, rl, hdr, data, n);
}

static void run_get(void) {
    char body[100];
    open_all(1);
    conn_t *c = &all[0];
    ack_explicit = 0;
    putf(c, "SUB %s.g 1\r\nPING\r\n", c->inbox);
    expect(c, "PONG\r\n");
    double c0, t0 = begin(&c0);
    while (received < msgs) {
        long target = received + (msgs - received < batch ? msgs - received : batch);
        snprintf(body, sizeof body, "{\"seq\":%ld,\"batch\":%ld}", received + 1, target - received);
        putf(c, "PUB $JS.API.DIRECT.GET.BENCH %s.g %zu\r\n%s\r\n", c->inbox, strlen(body), body);
        while (c->done < target) {
            flush(c);
            wait_one(c);
            if (fill_in(c)) consume(c, on_got);
        }
    }
    report("get", msgs, now() - t0, c0);
}

static void run_push(void) {
    char body[800], subject[100];
    open_all(1);
    conn_t *c = &all[0];
    ack_explicit = 0;
    putf(c, "SUB %s.p 1\r\nPING\r\n", c->inbox);
    expect(c, "PONG\r\n");
    snprintf(body, sizeof body,
             "{\"stream_name\":\"BENCH\",\"config\":{\"deliver_policy\":\"all\",\"ack_policy\":\"none\",\"max_deliver\":1,"
             "\"deliver_subject\":\"%s.p\",\"flow_control\":true,\"idle_heartbeat\":5000000000,\"mem_storage\":true,"
             "\"num_replicas\":1,\"inactive_threshold\":5000000000}}", c->inbox);
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.CREATE.BENCH");
    double c0, t0 = begin(&c0);
    /* Deliveries may overtake the answer, so it is not waited for. */
    putf(c, "PUB %s none %zu\r\n", subject, strlen(body));
    put(c, body, strlen(body));
    put(c, "\r\n", 2);
    while (received < msgs) {
        flush(c);
        wait_one(c);
        if (fill_in(c)) consume(c, on_delivery);
    }
    report("push", msgs, now() - t0, c0);
}

static void run_idle(void) {
    double t0 = now(), c0 = cpu();
    open_all(conns);
    for (long i = 0; i < conns; i++) {
        free(all[i].in);
        free(all[i].out);
    }
    report("idle", conns, now() - t0, c0);
    wait_line();
}

static void parse_option(const char *word) {
    struct { const char *name; long *value; } numbers[] = {
        {"port", &port}, {"conns", &conns}, {"pubs", &pubs}, {"subs", &subs}, {"msgs", &msgs}, {"size", &size},
        {"window", &window}, {"subjects", &subjects}, {"replicas", &replicas}, {"chain", &chain}, {"batch", &batch},
        {"streams", &streams}, {"kv", &kv}, {"idle_subs", &idle_subs}, {"idle_consumers", &idle_consumers}, {"keep", &keep}, {"paced", &paced}, {"tls", &tls},
    };
    const char *equals = strchr(word, '=');
    if (!equals) fail("expected name=value, got %s", word);
    size_t n = equals - word;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].name) == n && !memcmp(word, numbers[i].name, n)) {
            *numbers[i].value = atol(equals + 1);
            return;
        }
    if (n == 3 && !memcmp(word, "ack", 3)) ack_explicit = !strcmp(equals + 1, "explicit");
    else fail("unknown option %s", word);
}

int main(int argc, char **argv) {
    if (argc < 2) fail("usage: loadgen pub|fan|req|jspub|fast|atomic|fill|fetch|get|push|idle name=value ...");
    for (int i = 2; i < argc; i++) parse_option(argv[i]);
    if (size > (long)sizeof pattern || size < 0) fail("size out of range");
    latency_us = calloc(HISTOGRAM, sizeof *latency_us);
    make_pattern();
    if (!strcmp(argv[1], "pub")) { pubs = conns; run_core("pub", 0); }
    else if (!strcmp(argv[1], "fan")) run_core("fan", subs);
    else if (!strcmp(argv[1], "req")) run_req();
    else if (!strcmp(argv[1], "jspub")) run_jspub("jspub");
    else if (!strcmp(argv[1], "fast")) run_fast();
    else if (!strcmp(argv[1], "atomic")) run_atomic();
    else if (!strcmp(argv[1], "fill")) { conns = 1; run_jspub("fill"); }
    else if (!strcmp(argv[1], "fetch")) run_fetch();
    else if (!strcmp(argv[1], "get")) run_get();
    else if (!strcmp(argv[1], "push")) run_push();
    else if (!strcmp(argv[1], "idle")) run_idle();
    else fail("unknown mode %s", argv[1]);
    return 0;
}
