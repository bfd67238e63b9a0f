# What an appended entry changes in the tables of a log, as C sees it. See _growing.pyx.

from libc.stdint cimport int64_t


cdef class GrowingBlock:
    cdef readonly int64_t number            # unique in this process
    cdef public int64_t first_index
    cdef public int64_t boundary_term       # of the entry before first_index
    cdef public int64_t size                # capacity in bytes
    cdef public int64_t used                # bytes from the start of the block to the end of the last frame
    cdef public object offsets              # array("I"): where each frame begins
    cdef public object last_seq             # highest stream sequence of a message in it, 0 when it has none
    cdef public object indexes              # array of those that compaction kept; None: not compacted
    cdef public object stored               # array of places in the file; None: at the offsets
    cdef public int64_t sealed_last_index   # what the last index was before compaction

    cpdef int64_t place(self, entry, int64_t overhead_bytes=*) except -1


cdef class LastTerms:
    cdef public list _starts                # the first index of each run of equal terms
    cdef public list _terms
    cdef public int64_t last_index

    cpdef append(self, int64_t index, int64_t term)


cdef class PlacedEntries:
    cdef public list _blocks
    cdef public LastTerms terms

    cpdef int64_t place(self, entry, int64_t overhead_bytes=*) except -1
    cpdef locate(self, int64_t index)


cdef class KeptFrames:
    cdef public int64_t _bytes_max
    cdef public int64_t _bytes_held         # by frames
    cdef public object ahead                # ReadAhead: it takes a part of the same bytes
    cdef public object _frames              # OrderedDict of (log, block, offset)

    cpdef put(self, tuple key, bytes frame)
