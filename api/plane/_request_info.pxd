"""The header `Nats-Request-Info`, which tells an exporter who asks."""

from libc.string cimport memchr, memcmp, memcpy

cdef extern from "strings.h" nogil:
    int strncasecmp(const char* one, const char* other, size_t n)

cdef enum:
    INFO_NAME = 18      # bytes of the name and its colon


cdef inline bint is_request_info(const char* line, Py_ssize_t n) noexcept nogil:
    return n >= INFO_NAME and memcmp(line, b"Nats-Request-Info:", INFO_NAME) == 0


cdef inline void disable_trace(char* line, Py_ssize_t n) noexcept nogil:
    """A trace ends where its account does: another account's nodes do not read this header, as with nats-server."""
    if n > 16 and (memcmp(line, b"Nats-Trace-Dest:", 16) == 0 or strncasecmp(line, b"traceparent:", 12) == 0):
        line[0] = c"X"


cdef inline Py_ssize_t copy_without_info(const char* hdr, Py_ssize_t n, char* out, bint crossing) noexcept nogil:
    """Copy headers but for this one, and return their length; 0 when no other is left. `out` has room for all.

    `crossing`: they leave their account.
    """
    cdef const char* end = hdr + n
    cdef const char* line = hdr
    cdef const char* stop
    cdef char* w = out
    cdef Py_ssize_t kept = 0        # lines that are not empty; the first is the version
    while line < end:
        stop = <const char*>memchr(line, c"\n", end - line)
        stop = end if stop == NULL else stop + 1
        if not is_request_info(line, stop - line):
            memcpy(w, line, stop - line)
            if crossing:
                disable_trace(w, stop - line)
            w += stop - line
            kept += stop - line > 2
        line = stop
    return w - out if kept > 1 else 0
