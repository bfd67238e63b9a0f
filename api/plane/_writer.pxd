"""Output buffers: encoding MSG and HMSG into them, and sending them."""

from jetraft.api.plane._types cimport CloseReason, buf_t, conn_t, msg_t, plane_t, ptrs_t, sub_t

cdef enum:
    COUNTED_WHOLE_BYTES = 64 * 1024     # smaller ones are many, and mostly of connections that read

cdef inline void count_unread(plane_t* plane, conn_t* conn) noexcept nogil:
    """Keep the sum of what buffers of what waits take; only where it has a limit.

    A large one counts as a whole: what was sent of it, and what it has to spare, is memory too.
    """
    cdef size_t waiting = conn.out.end - conn.out.start
    if waiting and conn.out.cap > COUNTED_WHOLE_BYTES:
        waiting = conn.out.cap
    waiting += conn.partial_len
    plane.unread += waiting - conn.counted
    conn.counted = waiting

cdef char* buf_reserve(buf_t* buf, size_t need) noexcept nogil
cdef void buf_free(buf_t* buf) noexcept nogil
cdef void push_ptr(ptrs_t* array, void* item) noexcept nogil
cdef void conn_wrote(plane_t* plane, conn_t* conn) noexcept nogil
cdef void emit_text(plane_t* plane, conn_t* conn, const char* text, size_t n) noexcept nogil
cdef void emit_message(plane_t* plane, sub_t* sub, msg_t* msg) noexcept nogil
cdef void conn_wake(plane_t* plane, conn_t* conn) noexcept nogil
cdef void conn_send(plane_t* plane, conn_t* conn) noexcept nogil
cdef void conn_close(plane_t* plane, conn_t* conn, CloseReason reason) noexcept nogil
cdef void conn_watch(plane_t* plane, conn_t* conn) noexcept nogil
cdef void drop_ptr(ptrs_t* array, void* item) noexcept nogil
