"""The queue groups of all subjects by node and name."""

from libc.stdint cimport uint64_t

from jetraft.api.plane._types cimport node_t, plane_t, queue_t

cdef queue_t* find_queue(plane_t* plane, node_t* node, const char* name, Py_ssize_t n) noexcept nogil
cdef queue_t* queue_of(plane_t* plane, node_t* node, const char* name, Py_ssize_t n) noexcept nogil
cdef void unlink_queue(plane_t* plane, queue_t* queue) noexcept nogil
