"""Accounts: made, told to peers, freed."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport acct_t, plane_t, route_t

cdef acct_t* acct_new(plane_t* plane, const char* name, Py_ssize_t n) except NULL
cdef void acct_free(plane_t* plane, acct_t* acct) noexcept
cdef void tell_account(plane_t* plane, route_t* route, acct_t* acct) noexcept nogil
cdef void end_account(plane_t* plane, acct_t* acct) noexcept nogil
cdef int hear_account(plane_t* plane, route_t* route, uint32_t number, acct_t* acct) noexcept nogil
cdef void free_route_accounts(plane_t* plane, route_t* route) noexcept nogil


cdef inline acct_t* heard_account(route_t* route, uint32_t number) noexcept nogil:
    """The account that a peer means by its number, or NULL."""
    return route.heard[number] if number < route.heard_cap else NULL


cdef inline bint is_in_use(acct_t* acct) noexcept nogil:
    """Whether anybody at this node has to do with the account."""
    return acct.id == 0 or acct.handles != 0 or acct.conn_count != 0 or acct.own_subs != 0


cdef class Account:
    cdef object face        # the plane, which outlives its accounts
    cdef plane_t* plane
    cdef acct_t* acct

    @staticmethod
    cdef Account of(object face, plane_t* plane, acct_t* acct)

    cdef acct_t* within(self, plane_t* plane) except NULL
