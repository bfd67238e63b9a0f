"""What subscriptions there are, for monitoring."""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.api.plane._types cimport acct_t, conn_t, plane_t, sub_t

cdef tuple row_of(sub_t* sub)
cdef list rows_of(conn_t* conn, uint32_t most)
cdef int add_bucket(list rows, conn_t* conn, uint32_t bucket) except -1
cdef tuple rows_matching(plane_t* plane, acct_t* acct, bytes subject, uint64_t offset, uint64_t most)
cdef tuple rows_from(plane_t* plane, acct_t* acct, uint64_t offset, uint64_t most)
cdef tuple cached_answers(plane_t* plane, acct_t* acct)
