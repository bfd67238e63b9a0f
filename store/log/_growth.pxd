# The frames of a log that wait for the writer, as C sees them. See _growth.pyx.

from libc.stdint cimport int64_t

from jetraft.store.blocks._growing cimport GrowingBlock, KeptFrames, PlacedEntries


cdef class HeldFrames:
    cdef public KeptFrames cache
    cdef public object _log                 # the first part of this log's keys in the cache
    cdef public dict _unwritten             # by (block, offset): no file has them yet

    cpdef buffer(self, GrowingBlock block, int64_t offset, bytes frame)
    cpdef release(self, GrowingBlock block, int64_t offset)


cdef class Segment:
    cdef public GrowingBlock block
    cdef public object file                 # BlockFile
    cdef public bint create
    cdef public int64_t offset
    cdef public int64_t first_index
    cdef public int64_t end                 # after the last frame
    cdef public int64_t reserved_bytes      # the length of a file that is created
    cdef public list frames


cdef class WriteQueue:
    cdef public list facts                  # ledger records that precede all others
    cdef public object hard_state
    cdef public object founding             # the first checkpoint, which has no file
    cdef public tuple begun                 # the frames of a log that has no block: the ledger takes them, no file
    cdef public list segments
    cdef public list retired                # (block, file) of blocks that no longer grow
    cdef public dict rewrites               # Rewriting by (block, offset)
    cdef public bint drops_copies           # what is kept of damaged bytes goes, as something was erased
    cdef public object checkpoint
    cdef public object dropped
    cdef public list unlink
    cdef public list close                  # descriptors of blocks that were removed
    cdef public list new_directories        # whose directory entries are not durable yet
    cdef public list empty_directories      # the same of a log without files: synced with its first file

    cpdef int64_t frame_bytes(self) except -1
    cdef bint grows_only(self) except -1


cdef class Appending:
    cdef public object _state               # LogState
    cdef public PlacedEntries _blocks
    cdef public HeldFrames _reader
    cdef public object _seal                # of an encrypted log: seals a frame for its place
