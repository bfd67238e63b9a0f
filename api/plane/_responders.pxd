"""The status of requests that nobody receives."""

from jetraft.api.plane._types cimport conn_t, msg_t, plane_t

cdef bint answer_no_responders(plane_t* plane, conn_t* conn, msg_t* msg) noexcept nogil
