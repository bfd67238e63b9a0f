"""Shadows of subscriptions in the accounts from which theirs imports streams."""

from jetraft.api.plane._types cimport msg_t, plane_t, stream_import_t, sub_t

cdef void add_shadows(plane_t* plane, sub_t* sub, const char* subject, Py_ssize_t n) noexcept nogil
cdef void add_shadows_of(plane_t* plane, sub_t* sub, stream_import_t* by, const char* subject, Py_ssize_t n) noexcept nogil
cdef void drop_shadows_of(plane_t* plane, sub_t* sub, stream_import_t* by) noexcept nogil
cdef bint shown_by(plane_t* plane, stream_import_t* by, msg_t* msg) noexcept nogil
cdef void stream_import_free(stream_import_t* imported) noexcept nogil
