"""Whether the headers of a message may ask for a trace: all that the path of other messages pays for traces."""

from libc.string cimport memchr

from jetraft.api.plane._types cimport msg_t, plane_t

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t haystack_len, const void* needle, size_t needle_len)

cdef extern from "strings.h" nogil:
    int strncasecmp(const char* one, const char* other, size_t n)


cdef inline bint names_traceparent(msg_t* msg) noexcept nogil:
    """Whether a header has this name, in any case."""
    cdef const char* p = msg.data
    cdef const char* end = msg.data + msg.hdr_len
    while True:
        p = <const char*>memchr(p, c"\n", end - p)
        if p == NULL or end - p < 14:
            return False
        p += 1
        if strncasecmp(p, b"traceparent:", 12) == 0:
            return True


cdef inline bint asks_for_trace(plane_t* plane, msg_t* msg) noexcept nogil:
    """Whether somebody has to read the headers (api/traces/tracing.py)."""
    if memmem(msg.data, msg.hdr_len, b"\nNats-Trace-Dest:", 17) != NULL:
        return True
    return plane.external_traces and names_traceparent(msg)
