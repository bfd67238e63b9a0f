"""The data plane with WebSocket."""

from jetraft.api.plane._secure cimport SecurePlane
from jetraft.api.plane._types cimport conn_t

cdef class WebPlane(SecurePlane):
    cdef list commons

    cdef void _upgrade(self, conn_t* conn, const char* p, Py_ssize_t n)
