"""The class of connections to leaf nodes and hubs."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._sinks cimport Sinks
from jetraft.api.plane._types cimport conn_t, leaf_t, sub_t


cdef class Telling:
    """An announcement of all interest to one that came: where it goes on in the next turn."""
    cdef object cid             # of the connection to a leaf node or hub; None: the link of a peer
    cdef object route_id        # of that
    cdef bint others            # a peer is told of the accounts other than `$G`
    cdef bint retelling         # and what it must not be told any more is taken back
    cdef uint32_t number        # plane_t.announcement
    cdef list cids              # of connections that were there when it began; those that came since tell by themselves
    cdef Py_ssize_t at
    cdef uint32_t bucket        # of that connection
    cdef list routes            # ids of those whose interest a leaf node is told
    cdef Py_ssize_t route_at
    cdef bint inside            # plane_t.told_next is in that route


cdef class Leafs(Sinks):
    cdef object leaf_handler
    cdef list tellings          # the first one goes on

    cdef void _tell_all(self, leaf_t* leaf)
    cdef void _begin_telling(self, Telling telling)
    cdef void _go_on(self, Telling telling)
    cdef bint _tell_more(self, Telling telling, uint32_t* share)
    cdef bint _is_told(self, Telling telling)
    cdef uint32_t _tell_of(self, Telling telling, sub_t* sub)
    cdef void _leaf_text(self, conn_t* conn, int kind, const char* p, Py_ssize_t n)
