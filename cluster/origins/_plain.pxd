"""Deliveries of an origin's consumer that say nothing to JetStream."""

from libc.stdint cimport uint8_t, uint64_t

from jetraft.cluster.capture._capture cimport Captured

cdef enum:
    NUMBERS = 4             # of an ack subject: stream sequence, consumer sequence, time, pending
    NUMBER_BITS = 62        # of each; deliveries.py: NUMBER_MAX

cdef class SourceRun:
    cdef bytes before       # of the value of Nats-Stream-Source: what stands before the sequence,
    cdef bytes between      # between it and the subject,
    cdef bytes after        # and behind that
    cdef object change      # of a subject into the one that it is stored under; None: it stays
    cdef readonly uint64_t consumer_seq
    cdef readonly uint64_t last_seq
    cdef readonly uint64_t num_pending

cdef bint read_numbers(const uint8_t *reply, size_t length, uint64_t *numbers) noexcept nogil
cdef bint is_plain(Captured *message) noexcept nogil
