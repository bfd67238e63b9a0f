"""The subscriptions of one connection by their ids."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from jetraft.api.plane._types cimport conn_t, sid_of, sub_t

cdef enum:
    SIDS_START = 8


cdef sub_t* find_sid(conn_t* conn, const char* sid, Py_ssize_t n, uint64_t h) noexcept nogil:
    cdef sub_t* sub
    if conn.bucket_count == 0:
        return NULL
    sub = conn.buckets[h & (conn.bucket_count - 1)]
    while sub != NULL:
        if sub.sid_hash == <uint32_t>h and sub.sid_len == n and memcmp(sid_of(sub), sid, n) == 0:
            return sub
        sub = sub.next_in_bucket
    return NULL


cdef void grow_sids(conn_t* conn) noexcept nogil:
    cdef uint32_t i, size = conn.bucket_count * 2 if conn.bucket_count else SIDS_START
    cdef sub_t** buckets = <sub_t**>calloc(size, sizeof(sub_t*))
    cdef sub_t* sub
    cdef sub_t* following
    for i in range(conn.bucket_count):
        sub = conn.buckets[i]
        while sub != NULL:
            following = sub.next_in_bucket
            sub.next_in_bucket = buckets[sub.sid_hash & (size - 1)]
            buckets[sub.sid_hash & (size - 1)] = sub
            sub = following
    free(conn.buckets)
    conn.buckets = buckets
    conn.bucket_count = size
