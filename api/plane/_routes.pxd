"""Parses the records that peers send."""

from jetraft.api.plane._types cimport plane_t, route_t

cdef Py_ssize_t route_record(plane_t* plane, route_t* route, const char* p, Py_ssize_t n) noexcept
