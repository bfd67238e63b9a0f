"""The subscriptions of one connection by their ids, in a table that grows by a bucket with each (_linear.pxd)."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from jetraft.api.plane._linear cimport one_bucket_more
from jetraft.api.plane._types cimport conn_t, sid_of, sub_t

cdef enum:
    SIDS_START = 8          # places for buckets, which double when they are taken


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
    cdef uint32_t added = conn.bucket_count
    cdef sub_t** link
    cdef sub_t* sub
    if not one_bucket_more(
        <void***>&conn.buckets, &conn.bucket_count, &conn.bucket_cap, &conn.bucket_mask, SIDS_START
    ):
        return False
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
