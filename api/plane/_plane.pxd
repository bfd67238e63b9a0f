"""The class of the data plane, for compiled encoders in other modules."""

from libc.stdint cimport int64_t, uint32_t

from jetraft.api.plane._exchange cimport Exchange
from jetraft.api.plane._types cimport route_t, sub_t

cdef class Plane(Exchange):
    cdef dict routes        # route id -> address
    cdef object route_permissions   # the object that plane_t.route_perms points into

    cdef void _announce_all(self, route_t* route, bint others, bint retelling=*)
    cdef uint32_t _announce_with_shadows(self, route_t* route, sub_t* sub, bint others)
    cdef void _announce_sub(self, route_t* route, sub_t* sub, bint others)
    cdef void _hold(self, route_t* route, int64_t pause_ns)
