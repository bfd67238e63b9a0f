"""Requests and answers on their way to another account."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport conn_t, msg_t, plane_t, service_import_t

cdef uint32_t cross(plane_t* plane, conn_t* origin, msg_t* msg, uint32_t first) noexcept nogil
cdef void rooms_free(plane_t* plane) noexcept nogil
cdef void service_import_free(service_import_t* service) noexcept nogil
