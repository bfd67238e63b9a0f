"""Client connections, as the layers above see them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from jetraft.api.wire._types cimport conn_t, plane_t, ptrs_t

cdef void drop_ptr(ptrs_t* array, void* item) noexcept nogil

cdef class Connections:
    cdef plane_t p
    cdef dict conns         # cid -> address of its conn_t
    cdef uint64_t next_cid
    cdef uint32_t next_id   # of sinks and routes
    cdef object connect_handler
    cdef object first_ping_handler
    cdef list closed

    cdef conn_t* _conn(self, cid) except? NULL
    cdef void _forget(self, conn_t* conn)
    cdef void _connect(self, conn_t* conn, const char* p, Py_ssize_t n)
    cdef void _first_ping(self, conn_t* conn)
    cdef void _reap(self)
