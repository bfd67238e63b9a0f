"""The subject tree: subscriptions by subject, and the bounded cache of match results."""

from jetraft.api.wire._types cimport match_t, node_t, plane_t, queue_t, route_t, sub_t

cdef int sublist_init(plane_t* plane) except -1
cdef void sublist_free(plane_t* plane) noexcept
cdef bint sublist_add(plane_t* plane, sub_t* sub, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn) noexcept nogil
cdef void sublist_remove(plane_t* plane, sub_t* sub) noexcept nogil
cdef match_t* sublist_match(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil
cdef match_t* sublist_match_once(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil
cdef Py_ssize_t node_subject(plane_t* plane, node_t* node, char* out, Py_ssize_t cap) noexcept nogil
cdef bint match_is_current(plane_t* plane, match_t* match) noexcept nogil
cdef sub_t* sublist_find_route(plane_t* plane, route_t* route, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn) noexcept nogil
