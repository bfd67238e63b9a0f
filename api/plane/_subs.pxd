"""Places for subscriptions."""

from libc.stdint cimport uint8_t

from jetraft.api.plane._types cimport plane_t, sub_t

cdef sub_t* sub_new(plane_t* plane, uint8_t kind, const char* sid, Py_ssize_t n) noexcept nogil
cdef void sub_free(plane_t* plane, sub_t* sub) noexcept nogil
