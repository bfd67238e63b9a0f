"""Prefetching for the parser."""

from jetraft.api.plane._types cimport acct_t, plane_t

cdef enum:
    FAR_SUBSCRIPTIONS = 2048    # fewer fit into the processor's cache: half a megabyte with their answers

cdef Py_ssize_t look_ahead(plane_t* plane, acct_t* acct, const char* p, Py_ssize_t n) noexcept nogil
