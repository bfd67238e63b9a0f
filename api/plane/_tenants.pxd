"""Accounts by name, and which connection is in which."""

from libc.stdint cimport int64_t

from jetraft.api.plane._types cimport acct_t, conn_t, plane_t

cdef class Tenants:
    cdef plane_t p
    cdef dict conns         # cid -> address of its conn_t
    cdef dict accounts      # name -> address of its acct_t
    cdef dict reviews       # cid -> who is told what a review of its subscriptions ended
    cdef dict judged        # cid -> the options of another CONNECT, which waits for the end of its subscriptions

    cdef acct_t* _account(self, bytes name) except NULL
    cdef void _judge_otherwise(self, cid, dict changed)
    cdef void _enter(self, conn_t* conn, acct_t* acct)
    cdef bint _is_full(self, conn_t* conn, acct_t* acct)
    cdef void _leave(self, conn_t* conn)
    cdef void _reap_accounts(self)
    cdef conn_t* _conn(self, cid) except? NULL
    cdef void _limit(self, conn_t* conn, int64_t max_payload, int64_t max_subs)
