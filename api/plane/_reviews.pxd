"""Subscriptions that are asked again after a change of rights, a share of them in each turn."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport conn_t, plane_t

cdef enum:
    REMOVAL_COST = 10       # of the share of ends: for each one a line to the client and one to the log are made in Python

cdef bint review_subscriptions(plane_t* plane, conn_t* conn, uint32_t* share, list removed)
