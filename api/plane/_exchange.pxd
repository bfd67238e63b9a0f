"""What accounts give each other, and what is mapped within one."""

from jetraft.api.plane._leafs cimport Leafs
from jetraft.api.plane._types cimport conn_t, crossing_t, text_t

cdef class Exchange(Leafs):
    cdef object request_info        # what describes a requester, as JSON
    cdef bytes described            # the last of those that no connection keeps

    cdef bint _describe(self, conn_t* conn, crossing_t* crossing, text_t* text) except False
