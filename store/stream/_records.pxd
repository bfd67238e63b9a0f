"""Reading the records of live messages without Python objects. See _records.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jetraft.store.frames._frame cimport Record
from jetraft.store.stream._index cimport Index

cdef class StoredMessage:
    cdef readonly uint64_t seq
    cdef readonly int64_t ts_ns
    cdef readonly bytes subject
    cdef readonly bytes hdr
    cdef readonly bytes payload

cdef class RecordReader:
    cdef Index index
    cdef object log
    cdef bytes frame               # the last one read; what `fetch` points into
    cdef uint32_t frame_offset     # of it, in its block
    cdef uint64_t first_seq        # its messages are first_seq..end_seq-1
    cdef uint64_t end_seq

    # Unpack the record of a message: 1 when it is live, 0 when not. The pointers are valid until the next call.
    cdef int fetch(self, uint64_t seq, Record *out) except -1
