"""Accounts by name, which connection is in which, and how much it may do. What begins one is in _accounts.pyx."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free

from attrs import evolve

from jetraft.api.plane._accounts cimport Account, acct_free, acct_new, end_account, is_in_use
from jetraft.api.plane._permissions cimport may_always, may_publish_all
from jetraft.api.plane._types cimport CLOSE_MAX_ACCOUNT_CONNECTIONS, acct_t, conn_t, leaf_t
from jetraft.api.plane._writer cimport conn_close, emit_text

cdef const char* TOO_MANY = b"-ERR 'maximum account active connections exceeded'\r\n"

cdef enum:
    TOO_MANY_BYTES = 52


cdef inline int64_t least(int64_t one, int64_t other) noexcept nogil:
    """The stricter of two limits; a negative one is none."""
    return other if one < 0 or 0 <= other < one else one


cdef inline bint has_room(conn_t* conn, acct_t* acct) noexcept nogil:
    return acct.max_connections < 0 or acct == conn.acct or acct.conn_count < acct.max_connections


cdef void unlink_leaf(conn_t* conn) noexcept nogil:
    """Take a connection out of the list of leaf nodes of its account, if it is there."""
    cdef leaf_t** link = &conn.acct.leafs
    while link[0] != NULL and link[0] != conn.leaf:
        link = &link[0].next
    if link[0] != NULL:
        link[0] = conn.leaf.next


cdef class Tenants:
    """The accounts of a plane. `$G` is there from the beginning."""

    def __cinit__(self, **_options):
        self.accounts = {}
        self.conns = {}
        self.judged, self.reviews = {}, {}
        self.p.global_acct = self._account(b"$G")

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.p.accts.count):
            free(self.p.accts.items[i])
        free(self.p.accts.items)

    cdef acct_t* _account(self, bytes name) except NULL:
        """The account of this name, made when it is missing. Raises ValueError, OverflowError, MemoryError."""
        cdef acct_t* acct
        address = self.accounts.get(name)
        if address is not None:
            return <acct_t*><size_t>address
        name.decode()
        acct = acct_new(&self.p, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        self.accounts[name] = <size_t>acct
        return acct

    def account(self, str name not None):
        """A handle of the account of this name, which lives as long as the handle. Raises ValueError, OverflowError."""
        return Account.of(self, &self.p, self._account(name.encode()))

    def account_names(self):
        """The accounts that anything here or at a peer has to do with."""
        return sorted([name.decode() for name in self.accounts])

    cdef conn_t* _conn(self, cid) except? NULL:
        address = self.conns.get(cid)
        return NULL if address is None else <conn_t*><size_t>address

    cdef void _limit(self, conn_t* conn, int64_t max_payload, int64_t max_subs):
        """Bound what a connection may send and subscribe to, beside the server's and its account's limits.

        Negative: by nothing else.
        """
        cdef int64_t subs = self.p.max_subscriptions if self.p.max_subscriptions else -1
        conn.max_payload = least(least(self.p.max_payload, conn.acct.max_payload), max_payload)
        conn.max_subs = least(least(subs, conn.acct.max_subscriptions), max_subs)

    def limit_connection(self, cid, *, int64_t max_payload, int64_t max_subs):
        """Change the limits of a connection that is open. Negative: the server's alone."""
        cdef conn_t* conn = self._conn(cid)
        if conn != NULL:
            self._limit(conn, max_payload, max_subs)
            self._judge_otherwise(cid, {"max_payload": max_payload, "max_subs": max_subs})

    cdef void _judge_otherwise(self, cid, dict changed):
        """The rights of a client have changed; if it waits for the end of its subscriptions, they hold after it too."""
        if cid in self.judged:
            self.judged[cid] = evolve(self.judged[cid], **changed)

    cdef void _enter(self, conn_t* conn, acct_t* acct):
        """Put a connection into an account, when nothing is left of what it had subscribed to in another one."""
        if conn.acct == acct:
            return
        if conn.acct != NULL:
            self._leave(conn)
        conn.acct = acct
        acct.conn_count += 1

    def is_full(self, cid, str account not None):
        """Whether an account has as many connections as it may, and this is none of them."""
        cdef conn_t* conn = self._conn(cid)
        address = self.accounts.get(account.encode())
        return conn != NULL and address is not None and not has_room(conn, <acct_t*><size_t>address)

    def may_send(self, cid, str account not None, bytes subject not None):
        """Whether the lists of a connection's user let it publish to a subject of this account; no, when it is gone.

        One of another account came through an import: what that leads to is the exporter's word.
        """
        cdef conn_t* conn = self._conn(cid)
        address = self.accounts.get(account.encode())
        if conn == NULL or conn.acct == NULL or address is None:
            return False
        if conn.acct != <acct_t*><size_t>address or conn.perms == NULL:
            return True
        return may_always(&self.p, conn.perms, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def may_write(self, cid, str account not None, bytes pattern not None):
        """Whether a connection's user may publish to all subjects of a pattern in an account; no, where it is of another.

        What an import leads to is the exporter's word, and what a request of the importer writes there is not in it.
        """
        cdef conn_t* conn = self._conn(cid)
        address = self.accounts.get(account.encode())
        if conn == NULL or conn.acct == NULL or address is None or conn.acct != <acct_t*><size_t>address:
            return False
        return conn.perms == NULL or may_publish_all(conn.perms, PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern))

    cdef bint _is_full(self, conn_t* conn, acct_t* acct):
        """Tell a connection that its account has as many as it may, and close it; False: there is room."""
        if has_room(conn, acct):
            return False
        emit_text(&self.p, conn, TOO_MANY, TOO_MANY_BYTES)
        conn_close(&self.p, conn, CLOSE_MAX_ACCOUNT_CONNECTIONS)
        return True

    cdef void _leave(self, conn_t* conn):
        """A connection is of no account any more."""
        conn.acct.conn_count -= 1
        if conn.leaf != NULL:
            unlink_leaf(conn)
        if conn.acct.conn_count == 0 and conn.acct.id != 0:
            self.p.accts_idle = 1

    cdef void _reap_accounts(self):
        """Free the accounts of which nothing is left; peers forget those that have nothing here."""
        cdef uint32_t i
        cdef acct_t* acct
        self.p.accts_idle = 0
        for i in range(self.p.accts.count):
            acct = <acct_t*>self.p.accts.items[i]
            if acct == NULL or is_in_use(acct):
                continue
            end_account(&self.p, acct)
            if acct.peer_subs == 0 and acct.peer_names == 0:
                del self.accounts[acct.name[:acct.name_len]]
                acct_free(&self.p, acct)
