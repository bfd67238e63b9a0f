"""Inline helpers of the data plane: decimal numbers, tokens, the clock.

They are defined in this header, so that each extension module inlines its own copy.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <time.h>

    /* Decimal text of v at b, without a terminator; returns its length (at most 20). */
    static inline int jr_utoa(char *b, uint64_t v) {
        char t[20];
        int n = 0, i;
        do { t[n++] = (char)('0' + v % 10); v /= 10; } while (v);
        for (i = 0; i < n; i++) b[i] = t[n - 1 - i];
        return n;
    }

    static inline int jr_is_blank(char c) { return c == 32 || c == 9 || c == 13 || c == 10; }

    /* The first blank (space, tab, CR, LF) from p on, or end; eight bytes at a time while none of them is a control byte. */
    static inline const char *jr_blank(const char *p, const char *end) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const uint64_t ones = 0x0101010101010101ull;
        uint64_t v, low;
        while (end - p >= 8) {
            memcpy(&v, p, 8);
            low = (v - ones * 0x21) & ~v & ones * 0x80;     /* bytes below 0x21; the lowest one is exact */
            if (low) {
                p += __builtin_ctzll(low) >> 3;
                if (jr_is_blank(*p)) return p;
                p++;
            } else {
                p += 8;
            }
        }
    #endif
        while (p < end && !jr_is_blank(*p)) p++;
        return p;
    }

    static inline int64_t jr_mono_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    """
    int jr_utoa(char* b, uint64_t v) noexcept nogil
    const char* jr_blank(const char* p, const char* end) noexcept nogil
    int64_t jr_mono_ns() noexcept nogil


cdef inline bint is_blank(char c) noexcept nogil:
    """The bytes that separate arguments on a control line."""
    return c == c" " or c == c"\t" or c == c"\r" or c == c"\n"


cdef inline int64_t parse_size(const char* p, Py_ssize_t n) noexcept nogil:
    """A size of one to nine ASCII digits, or -1: nats-server's parseSize, which also refuses signs and longer numbers."""
    cdef int64_t value = 0
    cdef Py_ssize_t i
    if n < 1 or n > 9:
        return -1
    for i in range(n):
        if p[i] < c"0" or p[i] > c"9":
            return -1
        value = value * 10 + (p[i] - c"0")
    return value


cdef inline bint has_empty_token(const char* s, Py_ssize_t n) noexcept nogil:
    """True when a token of the subject is empty: nobody receives such a message. Branchless, for the compiler's vectors."""
    cdef Py_ssize_t i
    cdef char found = 0
    if n == 0 or s[0] == c"." or s[n - 1] == c".":
        return True
    for i in range(1, n):
        found |= <char>(s[i] == c".") & <char>(s[i - 1] == c".")
    return found


cdef inline bint valid_subject(const char* s, Py_ssize_t n) noexcept nogil:
    """True for a subscription subject: no empty token, no blank, `>` only as the last token."""
    cdef Py_ssize_t i, start = 0
    if n == 0:
        return False
    for i in range(n + 1):
        if i == n or s[i] == c".":
            if i == start:
                return False
            if i - start == 1 and s[start] == c">" and i != n:
                return False
            start = i + 1
        elif is_blank(s[i]) or s[i] == c"\f":
            return False
    return True


cdef inline bint is_literal(const char* s, Py_ssize_t n) noexcept nogil:
    """True when no token of the subject is `*` or `>`."""
    cdef Py_ssize_t i
    for i in range(n):
        if (s[i] == c"*" or s[i] == c">") and (i == 0 or s[i - 1] == c".") and (i + 1 == n or s[i + 1] == c"."):
            return False
    return True
