"""Fetching ahead of the parser."""

from jetraft.api.wire._types cimport plane_t

cdef enum:
    FAR_SUBSCRIPTIONS = 2048    # with fewer everything stays near: half a megabyte with their answers

cdef Py_ssize_t look_ahead(plane_t* plane, const char* p, Py_ssize_t n) noexcept nogil
