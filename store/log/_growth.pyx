# cython: language_level=3
"""How a log grows in memory: frames take their places, wait for the writer, and are released when they are in their file.

What every entry and every batch of a busy log takes is here; whatever else happens to a log (a new block, a cut, an
erasure, a checkpoint) is in the modules that use these classes, and in Python. Nothing here reads or writes a file.
tests/store/log/test_growth.py compares each step with the same in Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from jetraft.store.blocks._growing cimport GrowingBlock, KeptFrames, PlacedEntries
from jetraft.store.frames._frame cimport FRAME_HEADER_BYTES, MARK_BYTES

from jetraft.store.frames._frame import make_mark
from jetraft.store.frames.cipher import SEAL_BYTES as _SEAL_BYTES
from jetraft.store.frames.format import Kind

cdef enum:
    FRAME_KIND_AT = 9           # format.FRAME_KIND_AT
    NEWEST_MAX = 4096           # a thousand idle logs keep at most 4 MB by it

cdef int _MESSAGES = int(Kind.MESSAGES)
cdef int _CONSUMER_OP = int(Kind.CONSUMER_OP)
cdef int _META = int(Kind.META)
cdef int64_t SEAL_BYTES = _SEAL_BYTES

NEWEST_BYTES_MAX = NEWEST_MAX


cdef inline bint _is_cached(int kind) noexcept:
    """Whether frames of this kind are kept for readers; others are few and seldom read."""
    return kind == _MESSAGES or kind == _CONSUMER_OP or kind == _META


cdef class HeldFrames:
    """The frames of one log that no file has yet, and the cache."""

    def __init__(self, KeptFrames cache not None, log):
        self.cache = cache
        self._log = log
        self._unwritten = {}

    cpdef buffer(self, GrowingBlock block, int64_t offset, bytes frame):
        """Buffer a frame until `release`: it is about to be written."""
        number, at = block.number, offset
        self._unwritten[number, at] = frame
        if PyBytes_GET_SIZE(frame) < FRAME_HEADER_BYTES:
            raise ValueError("the frame is shorter than its header")
        if _is_cached((<const uint8_t *> PyBytes_AS_STRING(frame))[FRAME_KIND_AT]):
            self.cache.put((self._log, number, at), frame)

    cpdef release(self, GrowingBlock block, int64_t offset):
        """Drop a frame that is in its file now, or was cut."""
        self._unwritten.pop((block.number, offset), None)


cdef class Segment:
    """Consecutive frames of one block, written together."""

    def __init__(self, *, GrowingBlock block not None, file, bint create, int64_t offset, int64_t first_index,
                 int64_t end):
        self.block = block
        self.file = file
        self.create = create
        self.offset = offset
        self.first_index = first_index
        self.end = end
        self.reserved_bytes = 0
        self.frames = []

    def on_reserved(self, int64_t size):
        """Note the length with which the file was created."""
        self.reserved_bytes = size
        self.block.shrink(size)

    def cut_from(self, int64_t index):
        """Remove the frames from `index` on."""
        del self.frames[max(0, index - self.first_index):]
        self.end = self.offset + sum(map(len, self.frames))


cdef class WriteQueue:
    """Changes that wait for the next batch."""

    def __init__(self):
        self.facts = []
        self.hard_state = None
        self.founding = None
        self.begun = ()
        self.segments = []
        self.retired = []
        self.rewrites = {}
        self.drops_copies = False
        self.checkpoint = None
        self.dropped = None
        self.unlink = []
        self.close = []
        self.new_directories = []
        self.empty_directories = []

    cdef bint grows_only(self) except -1:
        cdef Segment segment
        if self.hard_state is not None or self.checkpoint is not None or self.dropped is not None:
            return False
        if self.founding is not None or self.facts or self.begun or self.retired or self.rewrites:
            return False
        if self.drops_copies or self.unlink or self.close or self.new_directories or not self.segments:
            return False
        for segment in self.segments:
            if segment.create:
                return False
        return True

    @property
    def only_grows(self):
        """Whether it only adds frames to blocks that exist. Such a batch may follow one that is in flight."""
        return self.grows_only()

    @property
    def makes_files(self):
        """Whether it creates files, whose names must be found after a crash."""
        cdef Segment segment
        if self.checkpoint is not None:
            return True
        for segment in self.segments:
            if segment.create:
                return True
        return False

    cpdef int64_t frame_bytes(self) except -1:
        """The bytes of the frames in it."""
        cdef Segment segment
        cdef int64_t size = 0
        for segment in self.segments:
            size += segment.end - segment.offset
        return size


cdef class Appending:
    """The end of a log, where entries are appended. `roll` of the class that goes on from this one starts a block."""

    def __init__(self, state, PlacedEntries blocks not None, HeldFrames reader not None, seal):
        self._state = state
        self._blocks = blocks
        self._reader = reader
        self._seal = seal

    def append(self, entries):
        """See GroupLog."""
        cdef GrowingBlock block
        cdef Segment segment
        cdef WriteQueue queue
        cdef list segments
        cdef bytes frame
        cdef int64_t size, offset
        cdef int64_t overhead_bytes = 0 if self._seal is None else SEAL_BYTES
        state = self._state
        if state.failed is not None or state.is_closed:
            state.check_usable()
        newest = None
        for entry in entries:
            newest = entry
            block, frame = state.growing, entry.frame
            size = PyBytes_GET_SIZE(frame) + overhead_bytes
            if block is None or (block.used + size + MARK_BYTES > block.size and len(block.offsets)):
                block = self.roll(entry.index, size)
            elif block.used + size + MARK_BYTES > block.size:
                block.size = block.used + size + MARK_BYTES  # the first frame of a block always fits
            queue = state.write_queue
            segments = queue.segments
            segment = segments[len(segments) - 1] if segments else None
            if segment is None or segment.block is not block:
                segment = self._begin_segment(block)
            offset = self._blocks.place(entry, overhead_bytes)
            segment.frames.append(frame if self._seal is None else self._seal(segment.file.head.serial, offset, frame))
            segment.end += size
            self._reader.buffer(block, offset, frame)
        if newest is not None:
            is_kept = _is_cached(newest.kind) and len(newest.frame) <= NEWEST_MAX
            state.newest = newest if is_kept else None  # other kinds are few, and would stay while the log is idle
        state.token += 1

    def _begin_segment(self, GrowingBlock block not None, *, bint create=False):
        """The part of the write queue to which the next frames of `block` are added."""
        cdef Segment segment
        cdef WriteQueue queue = self._state.write_queue
        segment = Segment.__new__(Segment)
        segment.block = block
        segment.file = self._reader.files[block.number]
        segment.create = create
        segment.offset = segment.end = block.used
        segment.first_index = self._blocks.terms.last_index + 1
        segment.reserved_bytes = 0
        segment.frames = []
        queue.segments.append(segment)
        return segment


def add_growing(batch, Segment segment not None, incarnation):
    """Write the frames of a segment to its file, which exists, and have them synced; then the mark.

    The mark says that what precedes it is durable. It goes out with the next fsync.
    """
    cdef GrowingBlock block = segment.block
    cdef int64_t used = segment.end + MARK_BYTES
    file = segment.file
    fd, frames = file.fd, segment.frames
    batch.write(fd, frames, segment.offset)
    batch.sync_data(fd)
    mark = make_mark(incarnation=incarnation, offset=segment.end, next_index=segment.first_index + len(frames),
                     tag=file.head.tag)
    batch.write(fd, [mark], segment.end)
    if block.used < used:
        block.used = used


def release_written(segments, HeldFrames reader not None):
    """The frames of these segments are in their files: they are not held for readers any more.

    Returns the lowest first index of those whose file was created; None where none was.
    """
    cdef Segment segment
    cdef int64_t offset
    cdef bytes frame
    lowest = None
    for segment in segments:
        if segment.create and (lowest is None or segment.first_index < lowest):
            lowest = segment.first_index
        segment.file.written = segment.end
        offset = segment.offset
        for frame in segment.frames:
            reader.release(segment.block, offset)
            offset += PyBytes_GET_SIZE(frame)
    return lowest
