"""Shadows of subscriptions in the accounts from which theirs imports streams."""

from jetraft.api.plane._types cimport plane_t, stream_import_t, sub_t

cdef void add_shadows(plane_t* plane, sub_t* sub, const char* subject, Py_ssize_t n) noexcept nogil
cdef void add_shadows_of(plane_t* plane, sub_t* sub, stream_import_t* by, const char* subject, Py_ssize_t n) noexcept nogil
cdef void drop_shadows_of(plane_t* plane, sub_t* sub, stream_import_t* by) noexcept nogil
cdef void stream_import_free(stream_import_t* imported) noexcept nogil
