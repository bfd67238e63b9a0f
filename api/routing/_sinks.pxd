"""Receivers in Python, as the plane sees them."""

from jetraft.api.routing._connections cimport Connections

cdef class Sinks(Connections):
    cdef dict sinks         # sink id -> handler
    cdef dict sink_ptrs     # sink id -> address
