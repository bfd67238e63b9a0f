"""Connections on which nothing happens."""

from libc.stdint cimport int64_t

from jetraft.api.plane._types cimport conn_t, plane_t

cdef void look_after(
    plane_t* plane, conn_t* conn, int64_t ping_interval_ns, int ping_max, int64_t write_deadline_ns,
    int64_t leaf_deadline_ns,
) noexcept nogil
