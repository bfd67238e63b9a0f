"""A piece of a block that was read at once, ahead of a reader who takes its frames one behind the other.

It is a copy of the file's bytes with its own part of the block's table, and nothing in it is believed: each frame is
verified when it is taken (checksum, log index, incarnation). Who changes the file drops its windows (read_ahead.py).
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jetraft.store.frames._frame cimport FrameHeader, frame_is, read_header

cdef enum:
    TABLE_BYTES = 16            # of a frame at most: its offset, place and index
    OVERHEAD_BYTES = 768        # this object, its arrays and dictionary, measured on CPython 3.11


cdef class Window:
    """Frames of one block. `opened` has those that are stored in another form than readers get, by offset."""

    cdef bytes data
    cdef uint64_t start             # of the data in the file
    cdef array.array offsets        # u32: by which the process knows the frames
    cdef array.array places         # u32: of the frames in the file
    cdef array.array indexes        # u64 or None: consecutive from `first_index`
    cdef uint64_t first_index
    cdef uint64_t incarnation
    cdef Py_ssize_t next            # the frame that is likely to be taken next
    cdef readonly dict opened
    cdef readonly Py_ssize_t bytes_held

    def __init__(self, bytes data not None, *, uint64_t start, array.array offsets not None,
                 array.array places not None, uint64_t first_index, array.array indexes, uint64_t incarnation):
        assert len(offsets) == len(places)
        assert offsets.itemsize == 4 and places.itemsize == 4
        assert indexes is None or (indexes.itemsize == 8 and len(indexes) == len(offsets))
        self.data = data
        self.start = start
        self.offsets = offsets
        self.places = places
        self.indexes = indexes
        self.first_index = first_index
        self.incarnation = incarnation
        self.opened = {}
        self.bytes_held = len(data) + len(offsets) * TABLE_BYTES + OVERHEAD_BYTES

    def take(self, uint32_t offset):
        """The frame at an offset of the block, as it was opened, else as its file has it; None when it is not here.

        A frame that is damaged is not here: who reads it alone finds out whether it is the file or this copy.
        """
        cdef FrameHeader header
        cdef Py_ssize_t number = self.number_of(offset)
        cdef uint64_t at
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(self.data)
        if number < 0:
            return None
        self.next = number + 1
        if self.opened:
            found = self.opened.get(offset)
            if found is not None:
                return found
        at = self.places.data.as_uints[number] - self.start
        if at >= <uint64_t>PyBytes_GET_SIZE(self.data):
            return None
        if not frame_is(data + at, PyBytes_GET_SIZE(self.data) - at, self.index_of(number), self.incarnation, &header):
            return None
        return PyBytes_FromStringAndSize(<const char *>data + at, header.length)

    def place_of(self, uint32_t offset):
        """Where the frame at an offset is in the file. Raises KeyError."""
        cdef Py_ssize_t number = self.number_of(offset)
        if number < 0:
            raise KeyError(offset)
        return self.places.data.as_uints[number]

    cdef uint64_t index_of(self, Py_ssize_t number) noexcept:
        return self.first_index + number if self.indexes is None else self.indexes.data.as_ulonglongs[number]

    cdef Py_ssize_t number_of(self, uint32_t offset) noexcept:
        """The number of the frame at an offset in this window; -1 when none starts there."""
        cdef const unsigned int *offsets = self.offsets.data.as_uints
        cdef Py_ssize_t low = 0, high = len(self.offsets), middle
        if self.next < high and offsets[self.next] == offset:
            return self.next
        while low < high:
            middle = (low + high) >> 1
            if offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self.offsets) and offsets[low] == offset else -1
