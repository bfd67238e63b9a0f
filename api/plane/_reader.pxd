"""Receiving: one turn over the ready sockets."""

from libc.stdint cimport int64_t

from jetraft.api.plane._types cimport plane_t

cdef enum:
    RECV_BYTES = 512 * 1024     # messages of 1 KiB: 64 and 128 KiB cost a third more than 256 KiB, 512 KiB a tenth less

cdef void resume_paused(plane_t* plane) noexcept nogil
cdef int read_turn(plane_t* plane, int64_t timeout_ns) noexcept nogil
