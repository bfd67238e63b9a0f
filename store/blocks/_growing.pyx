# cython: language_level=3
"""What an appended entry changes in the tables of a log: its block, the terms, and the cache of frames.

Here are the fields and the one step that every entry takes; what else blocks, terms and the cache can do is in the
classes that go on from these (block.py, terms.py, cache.py). A publish that is alone appends one entry, and as Python
these steps cost more than writing it. tests/store/log/test_growth.py compares them with the same in Python.
"""

from array import array
from collections import OrderedDict

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jetraft.store.frames._frame cimport FRAME_HEADER_BYTES, load_u32, load_u64

from jetraft.store.frames.format import Kind

cdef enum:
    FRAME_COUNT_AT = 12         # format.FRAME_COUNT_AND_FIRST_SEQ
    FRAME_FIRST_SEQ_AT = 40
    FRAME_OVERHEAD = 256        # the bytes object, its key and the dictionary's node, measured on CPython 3.11

cdef int _MESSAGES = int(Kind.MESSAGES)

FRAME_OVERHEAD_BYTES = FRAME_OVERHEAD


cdef class GrowingBlock:
    """A run of consecutive entries, to which the next one may be added."""

    def __init__(self, *, int64_t number, int64_t first_index, int64_t boundary_term, int64_t size, int64_t used,
                 offsets=None, last_seq=0, indexes=None, stored=None, int64_t sealed_last_index=0):
        self.number = number
        self.first_index = first_index
        self.boundary_term = boundary_term
        self.size = size
        self.used = used
        self.offsets = array("I") if offsets is None else offsets
        self.last_seq = last_seq
        self.indexes = indexes
        self.stored = stored
        self.sealed_last_index = sealed_last_index

    cpdef int64_t place(self, entry, int64_t overhead_bytes=0) except -1:
        """Add the next entry at the end and return its offset; `overhead_bytes` is what its seal adds to the frame."""
        cdef bytes frame = entry.frame
        cdef int64_t offset = self.used
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(frame)
        cdef uint32_t count
        assert self.indexes is None
        assert <int64_t> entry.index == self.first_index + <int64_t> len(self.offsets)
        self.offsets.append(offset)
        self.used = offset + PyBytes_GET_SIZE(frame) + overhead_bytes
        if <int> entry.kind == _MESSAGES:
            if PyBytes_GET_SIZE(frame) < FRAME_HEADER_BYTES:
                raise ValueError("the frame is shorter than its header")
            count = load_u32(data + FRAME_COUNT_AT)
            if count:
                last_seq = load_u64(data + FRAME_FIRST_SEQ_AT) + <object> count - 1
                if last_seq > self.last_seq:
                    self.last_seq = last_seq
        return offset


cdef class LastTerms:
    """The runs of equal terms of a log, to the last one of which the next index is added."""

    def __init__(self, int64_t boundary_index, int64_t boundary_term):
        self._starts = [boundary_index]
        self._terms = [boundary_term]
        self.last_index = boundary_index

    cpdef append(self, int64_t index, int64_t term):
        """Add the next index."""
        cdef int64_t last_term = self._terms[len(self._terms) - 1]
        assert index == self.last_index + 1, (index, self.last_index)
        assert term >= last_term, (term, last_term)
        if term != last_term:
            self._starts.append(index)
            self._terms.append(term)
        self.last_index = index


cdef class PlacedEntries:
    """The blocks of a log and the terms of its entries."""

    def __init__(self, list blocks not None, LastTerms terms not None):
        self._blocks = blocks
        self.terms = terms

    cpdef int64_t place(self, entry, int64_t overhead_bytes=0) except -1:
        """Add the next entry to the newest block and return its offset there."""
        self.terms.append(entry.index, entry.term)
        return (<GrowingBlock?> self._blocks[len(self._blocks) - 1]).place(entry, overhead_bytes)

    cpdef locate(self, int64_t index):
        """(number of its block, offset) of the frame of `index`; None when no block has it."""
        cdef Py_ssize_t count = len(self._blocks)
        cdef GrowingBlock newest
        cdef int64_t number
        if count:
            newest = self._blocks[count - 1]
            number = index - newest.first_index
            if newest.indexes is None and 0 <= number < <int64_t> len(newest.offsets):  # nearly always
                return newest.number, newest.offsets[number]
        return self.locate_older(index)


cdef class KeptFrames:
    """Frames in the order in which they were used, bounded in bytes together with what is read ahead."""

    def __init__(self, int64_t bytes_max, ahead):
        self._bytes_max = bytes_max
        self._bytes_held = 0
        self.ahead = ahead
        self._frames = OrderedDict()

    cpdef put(self, tuple key, bytes frame):
        """Add a verified frame, and evict the least recently used ones. Does not change a frame that is cached."""
        if key in self._frames:
            return
        self._frames[key] = frame
        self._bytes_held += PyBytes_GET_SIZE(frame) + FRAME_OVERHEAD
        if self._bytes_held > self._bytes_max - <int64_t> self.ahead.bytes_held:
            self.make_room()
