"""The class of client connections."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from jetraft.api.plane._tenants cimport Tenants
from jetraft.api.plane._types cimport conn_t

cdef class Connections(Tenants):
    cdef uint64_t next_cid
    cdef uint32_t next_id   # of sinks and routes
    cdef object connect_handler
    cdef object first_ping_handler
    cdef object violation_handler
    cdef object trace_handler
    cdef object protocol_handler
    cdef list traces        # of this turn, sent when its messages are handled
    cdef bytes trace_data   # headers and payload of the message in work, where a trace has changed them
    cdef dict trace_streams # sink id -> the stream whose leader it is
    cdef dict route_names   # route id -> the name of the peer
    cdef dict granted       # cid -> the UserPermissions that its conn_t points into
    cdef list closed
    cdef uint32_t leaf_count

    cdef void _forget(self, conn_t* conn)
    cdef void _connect(self, conn_t* conn, const char* p, Py_ssize_t n)
    cdef void _accept(self, conn_t* conn, options)
    cdef void _first_ping(self, conn_t* conn)
    cdef void _reap(self)
    cdef void _reap_connections(self, uint32_t* share)
    cdef void _end_some(self, uint32_t* share)
    cdef void _review_some(self, uint32_t* share)
    cdef void _begin_again(self, conn_t* conn, options)
    cdef void _tell_some(self)
