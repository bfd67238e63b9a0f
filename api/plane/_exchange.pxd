"""What accounts give each other, and what is mapped within one."""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.api.plane._leafs cimport Leafs
from jetraft.api.plane._types cimport Measure, acct_t, conn_t, crossing_t, export_t, msg_t, service_import_t, stream_import_t, text_t

cdef class Exchange(Leafs):
    cdef object request_info        # what describes a requester, as JSON
    cdef object latencies           # what is told of requests that are measured
    cdef bytes described            # the last of those that no connection keeps

    cdef export_t* _export(self, uint32_t number) except NULL
    cdef void _end_service_import(self, service_import_t** link)
    cdef void _shade(self, acct_t* acct, stream_import_t* by, bint begins)
    cdef void _measure_service(self, export_t* service, measured)
    cdef bint _measure(self, Measure what, uint64_t number, conn_t* conn, service_import_t* service, msg_t* msg) except -1
    cdef bint _describe(self, conn_t* conn, crossing_t* crossing, text_t* text) except False
