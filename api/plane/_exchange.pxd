"""What accounts give each other, and what is mapped within one."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._leafs cimport Leafs
from jetraft.api.plane._types cimport acct_t, conn_t, crossing_t, export_t, service_import_t, stream_import_t, text_t

cdef class Exchange(Leafs):
    cdef object request_info        # what describes a requester, as JSON
    cdef bytes described            # the last of those that no connection keeps

    cdef export_t* _export(self, uint32_t number) except NULL
    cdef void _end_service_import(self, service_import_t** link)
    cdef void _shade(self, acct_t* acct, stream_import_t* by, bint begins)
    cdef bint _describe(self, conn_t* conn, crossing_t* crossing, text_t* text) except False
