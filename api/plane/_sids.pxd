"""The subscriptions of one connection by their ids."""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.api.plane._types cimport conn_t, sub_t

cdef sub_t* find_sid(conn_t* conn, const char* sid, Py_ssize_t n, uint64_t h) noexcept nogil
cdef void add_sid(conn_t* conn, sub_t* sub, uint64_t h) noexcept nogil


cdef inline uint32_t bucket_of(conn_t* conn, uint32_t h) noexcept nogil:
    """The bucket of a hash, of which the low half is enough; there is at least one."""
    cdef uint32_t bucket = h & conn.bucket_mask
    return bucket if bucket < conn.bucket_count else h & (conn.bucket_mask >> 1)
