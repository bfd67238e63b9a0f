"""The class of receivers in Python."""

from jetraft.api.plane._connections cimport Connections

cdef class Sinks(Connections):
    cdef dict sinks         # sink id -> handler
    cdef dict sink_ptrs     # sink id -> address

    cdef void _send_traces(self)
