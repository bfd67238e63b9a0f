"""The data plane's class, for compiled encoders of other modules."""

from jetraft.api.routing._sinks cimport Sinks
from jetraft.api.wire._types cimport route_t, sub_t

cdef class Plane(Sinks):
    cdef dict routes        # route id -> address

    cdef void _tell_all(self, route_t* route)
    cdef void _tell_sub(self, route_t* route, sub_t* sub)
