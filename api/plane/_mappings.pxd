"""Subject mappings of accounts."""

from jetraft.api.plane._types cimport acct_t, mapping_t, msg_t, plane_t

cdef mapping_t* mapping_new(bytes source, choices) except NULL
cdef void mapping_free(mapping_t* mapping) noexcept nogil
cdef Py_ssize_t map_subject(plane_t* plane, acct_t* acct, const char* s, Py_ssize_t n, char* out) noexcept nogil
cdef bint map_published(plane_t* plane, acct_t* acct, msg_t* msg) noexcept nogil
