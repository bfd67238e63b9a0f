"""The data plane with WebSocket."""

from jetraft.api.plane._secure cimport SecurePlane
from jetraft.api.plane._types cimport conn_t
from jetraft.api.websocket._common cimport WebSocketCommon

cdef class WebPlane(SecurePlane):
    cdef WebSocketCommon common
    cdef object upgrade_handler

    cdef void _upgrade(self, conn_t* conn, const char* p, Py_ssize_t n)
