"""The class of connections to leaf nodes and hubs."""

from jetraft.api.plane._sinks cimport Sinks
from jetraft.api.plane._types cimport conn_t, leaf_t, sub_t

cdef class Leafs(Sinks):
    cdef object leaf_handler

    cdef void _tell_all(self, leaf_t* leaf)
    cdef void _leaf_text(self, conn_t* conn, int kind, const char* p, Py_ssize_t n)
