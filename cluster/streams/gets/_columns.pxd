"""The messages of an answer in columns, as C sees them. See _columns.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from jetraft.cluster.streams.gets._column_headers cimport HeaderColumns
from jetraft.cluster.streams.gets._column_subjects cimport Dictionary
from jetraft.store.frames._frame cimport Record
from jetraft.store.stream._records cimport RecordReader
from jetraft.store.stream._runs cimport Runs

cdef enum:
    HEAD_BYTES = 128
    HAS_TIMES = 1
    HAS_SUBJECTS = 2
    HAS_HEADERS = 4
    HAS_DATA = 8

cdef enum Outcome:
    FAILED = -1
    FULL = 0
    ADDED = 1
    ROW = 2                         # the next message has to be sent as a row

cdef struct Cell:                   # one message; pointers into its frame
    uint64_t seq
    int64_t ts_ns
    const uint8_t *subject
    const uint8_t *payload
    uint32_t payload_len
    uint32_t names                  # headers of this message and those before it
    uint16_t subject_len
    uint8_t subject_number
    uint8_t has_headers

cdef class Columns:
    cdef Cell *cells
    cdef size_t rows
    cdef size_t capacity
    cdef size_t subject_bytes       # of all rows
    cdef size_t data_bytes
    cdef size_t room                # what is left of it
    cdef uint64_t content           # subjects, headers and payloads: what max_bytes counts
    cdef size_t frame_bytes
    cdef list frames                # which the cells point into
    cdef bytes frame                # the last of them
    cdef int wanted
    cdef HeaderColumns headers
    cdef Dictionary dictionary

    # Collect messages up to `to_seq` until the answer is full; `looked` becomes the last sequence looked at.
    cdef Outcome gather(self, RecordReader reader, Runs seqs, uint64_t to_seq, uint64_t content_max,
                        uint64_t *looked) except FAILED
    cdef bint hold(self, bytes frame) except -1
    cdef Outcome add(self, uint64_t seq, const Record *record) except FAILED
    cdef int grow(self) except -1
