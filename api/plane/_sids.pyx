"""The subscriptions of one connection by their ids: linear hashing, which grows by a bucket with each subscription.

To distribute a million over twice as many buckets at once would take 50 ms, since each of them has to be read.
Source: W. Litwin, Linear hashing: a new tool for file and table addressing, VLDB 1980.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp

from jetraft.api.plane._types cimport conn_t, sid_of, sub_t

cdef enum:
    SIDS_START = 8          # places for buckets, which double when they are taken: the kernel moves large ones


cdef sub_t* find_sid(conn_t* conn, const char* sid, Py_ssize_t n, uint64_t h) noexcept nogil:
    cdef sub_t* sub
    if conn.bucket_count == 0:
        return NULL
    sub = conn.buckets[bucket_of(conn, <uint32_t>h)]
    while sub != NULL:
        if sub.sid_hash == <uint32_t>h and sub.sid_len == n and memcmp(sid_of(sub), sid, n) == 0:
            return sub
        sub = sub.next_in_bucket
    return NULL


cdef bint add_bucket(conn_t* conn) noexcept nogil:
    """One bucket more, with its part of what is in another one; False: no memory."""
    cdef uint32_t added = conn.bucket_count, cap
    cdef sub_t** buckets
    cdef sub_t** link
    cdef sub_t* sub
    if added == conn.bucket_cap:
        cap = conn.bucket_cap * 2 if conn.bucket_cap else SIDS_START
        buckets = <sub_t**>realloc(conn.buckets, cap * sizeof(sub_t*))
        if buckets == NULL:
            return False
        conn.buckets = buckets
        conn.bucket_cap = cap
    conn.buckets[added] = NULL
    conn.bucket_count = added + 1
    if added > conn.bucket_mask:
        conn.bucket_mask = conn.bucket_mask * 2 + 1
    if added == 0:
        return True
    link = &conn.buckets[added & (conn.bucket_mask >> 1)]
    while link[0] != NULL:
        sub = link[0]
        if bucket_of(conn, sub.sid_hash) == added:
            link[0] = sub.next_in_bucket
            sub.next_in_bucket = conn.buckets[added]
            conn.buckets[added] = sub
        else:
            link = &sub.next_in_bucket
    return True


cdef void add_sid(conn_t* conn, sub_t* sub, uint64_t h) noexcept nogil:
    """Add a subscription whose id is new."""
    cdef uint32_t bucket
    if conn.sub_count >= conn.bucket_count:
        add_bucket(conn)
    sub.sid_hash = <uint32_t>h
    bucket = bucket_of(conn, sub.sid_hash)
    sub.next_in_bucket = conn.buckets[bucket]
    conn.buckets[bucket] = sub
    conn.sub_count += 1
