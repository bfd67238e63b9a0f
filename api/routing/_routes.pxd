"""What peers send: records of messages and of interest."""

from jetraft.api.wire._types cimport plane_t, route_t

cdef Py_ssize_t route_record(plane_t* plane, route_t* route, const char* p, Py_ssize_t n) noexcept
