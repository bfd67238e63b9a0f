"""The data plane with TLS."""

from jetraft.api.plane._plane cimport Plane

cdef class SecurePlane(Plane):
    pass
