"""What the permissions of routes let this node tell, believe and send."""

from jetraft.api.plane._types cimport msg_t, plane_t

cdef bint may_import(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil
cdef bint may_export(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil
cdef bint is_kept_back(plane_t* plane, msg_t* msg) noexcept nogil
