"""Received bytes of WebSocket connections."""

from jetraft.api.plane._types cimport conn_t, plane_t

cdef void read_web(plane_t* plane, conn_t* conn, char* data, size_t n, bint ended) noexcept nogil
