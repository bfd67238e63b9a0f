"""The data plane's class, for compiled encoders of other modules."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from jetraft.api.wire._types cimport conn_t, plane_t, route_t, sub_t

cdef class Plane:
    cdef plane_t p
    cdef dict conns         # cid -> address of its conn_t
    cdef dict sinks         # sink id -> handler
    cdef dict sink_ptrs     # sink id -> address
    cdef dict routes        # route id -> address
    cdef uint64_t next_cid
    cdef uint32_t next_id
    cdef object connect_handler
    cdef object first_ping_handler
    cdef list closed
    cdef int64_t next_housekeeping_ns

    cdef conn_t* _conn(self, cid) except? NULL
    cdef void _forget(self, conn_t* conn)
    cdef void _connect(self, conn_t* conn, const char* p, Py_ssize_t n)
    cdef void _first_ping(self, conn_t* conn)
    cdef void _tell_all(self, route_t* route)
    cdef void _tell_sub(self, route_t* route, sub_t* sub)
    cdef void _reap(self)
