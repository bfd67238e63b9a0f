"""Accounts: spaces of subjects that no message leaves.

An account begins when somebody names it: a CONNECT, Python, a peer. It is freed when nothing of it is left, at this node
and with its peers: no connection, no subscription, no handle, no number that a peer has given it. `$G` stays.

Between two nodes an account has a number, which its sender chooses and tells before its first use. So nodes need not
have the same accounts: what a peer tells of one that is unknown here is kept until it is known.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from jetraft.api.plane._route_record cimport ROUTE_ACCOUNT, ROUTE_HEAD_BYTES, RouteHead
from jetraft.api.plane._types cimport (
    ACCOUNT_IDS_MAX,
    ACCOUNT_NAME_MAX,
    ACCOUNTS_MAX,
    acct_t,
    plane_t,
    route_t,
)
from jetraft.api.plane._writer cimport buf_reserve, push_ptr

cdef enum:
    NUMBERS_START = 16      # that a link has room for at first


cdef acct_t* acct_new(plane_t* plane, const char* name, Py_ssize_t n) except NULL:
    """An account of this name. Raises ValueError for a name that is none, OverflowError, MemoryError."""
    cdef acct_t* acct
    cdef Py_ssize_t i
    cdef uint32_t slot = 0
    if n == 0 or n > ACCOUNT_NAME_MAX:
        raise ValueError(f"an account name of {n} bytes")
    for i in range(n):
        if <uint8_t>name[i] <= 0x20 or <uint8_t>name[i] == 0x7F:
            raise ValueError("an account name with blanks or control characters")
    while slot < plane.accts.count and plane.accts.items[slot] != NULL:
        slot += 1
    if slot == ACCOUNTS_MAX or plane.next_acct_id == ACCOUNT_IDS_MAX:
        raise OverflowError("too many accounts")
    acct = <acct_t*>calloc(1, sizeof(acct_t))
    if acct == NULL:
        raise MemoryError
    acct.id = plane.next_acct_id
    acct.max_connections = acct.max_subscriptions = acct.max_payload = -1
    plane.next_acct_id += 1
    acct.salt = <uint64_t>acct.id * 0x9E3779B97F4A7C15u
    memcpy(acct.name, name, n)
    acct.name_len = <unsigned short>n
    acct.slot = slot
    if slot == plane.accts.count:
        push_ptr(&plane.accts, acct)
    else:
        plane.accts.items[slot] = acct
    return acct


cdef void acct_free(plane_t* plane, acct_t* acct) noexcept:
    plane.accts.items[acct.slot] = NULL
    free(acct)


# -- what peers know

cdef void write_account(plane_t* plane, route_t* route, acct_t* acct, Py_ssize_t name_len) noexcept nogil:
    cdef RouteHead head
    cdef uint32_t length = ROUTE_HEAD_BYTES + <uint32_t>name_len
    cdef char* w = buf_reserve(&route.buf, length)
    memset(&head, 0, sizeof(head))
    head.length = length
    head.kind = ROUTE_ACCOUNT
    head.hdr_len = acct.slot
    head.subject_len = <unsigned short>name_len
    memcpy(w, &head, ROUTE_HEAD_BYTES)
    memcpy(w + ROUTE_HEAD_BYTES, acct.name, name_len)
    route.buf.end += length
    if not route.dirty:
        route.dirty = 1
        push_ptr(&plane.dirty_routes, route)


cdef void tell_account(plane_t* plane, route_t* route, acct_t* acct) noexcept nogil:
    """See to it that the peer knows the account's number; the caller's record follows."""
    cdef uint32_t cap
    if acct.slot >= route.told_cap:
        cap = route.told_cap * 2 if route.told_cap else NUMBERS_START
        while cap <= acct.slot:
            cap *= 2
        route.told_ids = <uint32_t*>realloc(route.told_ids, cap * sizeof(uint32_t))
        memset(route.told_ids + route.told_cap, 0, (cap - route.told_cap) * sizeof(uint32_t))
        route.told_cap = cap
    if route.told_ids[acct.slot] != acct.id:
        route.told_ids[acct.slot] = acct.id
        write_account(plane, route, acct, acct.name_len)


cdef void end_account(plane_t* plane, acct_t* acct) noexcept nogil:
    """The account has nothing left here: peers forget its number, until it is told again."""
    cdef uint32_t i
    cdef route_t* route
    for i in range(plane.routes.count):
        route = <route_t*>plane.routes.items[i]
        if acct.slot < route.told_cap and route.told_ids[acct.slot] == acct.id:
            route.told_ids[acct.slot] = 0
            write_account(plane, route, acct, 0)


cdef int hear_account(plane_t* plane, route_t* route, uint32_t number, acct_t* acct) noexcept nogil:
    """A peer gives an account a number, or takes it away (NULL). The number is below ACCOUNTS_MAX."""
    cdef uint32_t cap
    if number >= route.heard_cap:
        if acct == NULL:
            return 0
        cap = route.heard_cap * 2 if route.heard_cap else NUMBERS_START
        while cap <= number:
            cap *= 2
        route.heard = <acct_t**>realloc(route.heard, cap * sizeof(acct_t*))
        memset(route.heard + route.heard_cap, 0, (cap - route.heard_cap) * sizeof(acct_t*))
        route.heard_cap = cap
    if route.heard[number] != NULL:
        route.heard[number].peer_names -= 1
        plane.accts_idle = 1
    route.heard[number] = acct
    if acct != NULL:
        acct.peer_names += 1
    return 0


cdef void free_route_accounts(plane_t* plane, route_t* route) noexcept nogil:
    """The link has ended, and with it the numbers of both ends."""
    cdef uint32_t i
    for i in range(route.heard_cap):
        if route.heard[i] != NULL:
            route.heard[i].peer_names -= 1
            plane.accts_idle = 1
    free(route.heard)
    free(route.told_ids)


# -- the face

@cython.no_gc_clear
cdef class Account:
    """An account of a plane, which stays as long as this object does. See _accounts.pyi for the typed face."""

    def __init__(self):
        raise TypeError("accounts are made by Plane.account")

    @staticmethod
    cdef Account of(object face, plane_t* plane, acct_t* acct):
        cdef Account self = Account.__new__(Account)
        self.face = face
        self.plane = plane
        self.acct = acct
        acct.handles += 1
        return self

    def __dealloc__(self):
        if self.acct != NULL:
            self.acct.handles -= 1
            self.plane.accts_idle = 1

    cdef acct_t* within(self, plane_t* plane) except NULL:
        """The account itself. Raises ValueError when it is one of another plane."""
        if self.plane != plane:
            raise ValueError("an account of another plane")
        return self.acct

    @property
    def id(self):
        """A number that no other account of this plane has or had; 0: `$G`."""
        return self.acct.id

    @property
    def name(self):
        """The account's name."""
        return self.acct.name[:self.acct.name_len].decode()

    def statistics(self):
        """Counters since the account began, and what it has now."""
        return {
            "connections": self.acct.conn_count, "subscriptions": self.acct.own_subs,
            "peer_subscriptions": self.acct.peer_subs, "in_msgs": self.acct.in_msgs, "in_bytes": self.acct.in_bytes,
            "out_msgs": self.acct.out_msgs, "out_bytes": self.acct.out_bytes, "inserts": self.acct.inserts,
            "slow_consumers": self.acct.slow_consumers, "routed_in_msgs": self.acct.routed_in_msgs,
            "routed_in_bytes": self.acct.routed_in_bytes, "routed_out_msgs": self.acct.routed_out_msgs,
            "routed_out_bytes": self.acct.routed_out_bytes,
        }

    def __repr__(self):
        return f"Account({self.name!r})"
