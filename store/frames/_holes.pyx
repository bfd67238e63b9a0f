# cython: language_level=3
"""Salvages the sound records of a damaged frame whose records have checksums: the result is a frame with holes.

The checksum of a record is the running checksum of the frame after it (store/frames/format.py, decision 51). A record
is sound if its bytes lead from the previous checksum to its own: then its bytes, length and place are the original
ones, whatever the damage around it. Any other record becomes a hole. The next record starts where the length of the
damaged record says, or this length with one bit flipped, if there is a sound record; otherwise the rest of the frame is
lost too. A wrong guess loses records but is never accepted, because the checksums do not match.

A hole is a record without a subject, which every message has, with the time of a neighbour and zeros as content. The
header must be sound, because it has the owner and the sequences of the frame. Types: _holes.pyi.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from jetraft.store.frames._frame cimport (
    FRAME_HEADER_BYTES, FRAME_HOLED, MARK_BYTES, RECORD_HEADER_BYTES, SUM_BYTES, FrameHeader, Record, crc32c_of,
    frame_is_sound, load_u16, load_u32, read_header, read_record, store_u16, store_u32, sum_records, sums_bytes,
    write_record_header,
)

cdef enum:
    RECORD_BYTES_MIN = 21       # a header and a subject of one byte
    LENGTH_BITS = 32


def salvage(const uint8_t[::1] data not None, *, Py_ssize_t offset, Py_ssize_t end, uint64_t incarnation,
            uint64_t index):
    """The frame of a damaged entry at `offset`, with holes for damaged records; None when no record is sound.

    The damage ends at `end` or before; if the frame ends there, its length may be damaged too.
    """
    if not 0 <= offset <= end <= data.shape[0] or end - offset < FRAME_HEADER_BYTES:
        return None
    cdef uint32_t stated = load_u32(&data[offset])
    for length in dict.fromkeys((stated, end - offset, end - offset - MARK_BYTES)):
        if FRAME_HEADER_BYTES <= length <= end - offset:
            frame = _of_length(&data[offset], length, incarnation, index)
            if frame is not None:
                return frame
    return None


def holes(const uint8_t[::1] frame not None):
    """The numbers, from 0, of the records of a frame that are holes, ascending. Raises ValueError when malformed."""
    cdef FrameHeader header
    cdef Record record
    cdef size_t at = FRAME_HEADER_BYTES
    cdef uint32_t i
    cdef list found = []
    if frame.shape[0] == 0 or not read_header(&frame[0], frame.shape[0], &header):
        raise ValueError("not a whole frame")
    if not header.flags & FRAME_HOLED:
        return found
    for i in range(header.count):
        at = read_record(&frame[0], header.length - sums_bytes(&header), at, &record)
        if at == 0:
            raise ValueError(f"record {i} of {header.count} does not fit its frame")
        if record.subject_len == 0:
            found.append(i)
    return found


cdef bytes _of_length(const uint8_t *data, size_t length, uint64_t incarnation, uint64_t index):
    """The frame of these bytes, if its header and some of its records are sound; otherwise None."""
    cdef FrameHeader header
    cdef size_t *places
    cdef size_t end, room
    cdef bytes found = PyBytes_FromStringAndSize(<const char *> data, length)
    cdef uint8_t *frame = <uint8_t *> PyBytes_AS_STRING(found)
    store_u32(frame, <uint32_t> length)
    if not read_header(frame, length, &header) or header.flags & ~FRAME_HOLED or not header.count:
        return None
    if header.incarnation != incarnation or header.log_index != index or not sums_bytes(&header):
        return None
    if frame_is_sound(frame, length):
        return found  # only its length was damaged
    room = length - FRAME_HEADER_BYTES
    if room < sums_bytes(&header) or (room - sums_bytes(&header)) // RECORD_BYTES_MIN < header.count:
        return None
    end = length - sums_bytes(&header)
    resummed = PyBytes_FromStringAndSize(<const char *> frame, length)
    if sum_records(<uint8_t *> PyBytes_AS_STRING(resummed), length):
        if resummed[4:8] == found[4:8] or resummed[end:] == found[end:]:
            return resummed  # all sums of records are right, or that of the frame is: only other sums were damaged
    if crc32c_of(frame + 8, FRAME_HEADER_BYTES - 8, 0) != load_u32(frame + end):
        return None
    places = <size_t *> calloc(<size_t> header.count + 1, sizeof(size_t))
    if places == NULL:
        raise MemoryError
    try:
        _find_sound(frame, end, header.count, places)
        if not _fill(frame, end, header.count, places):
            return None
    finally:
        free(places)
    store_u16(frame + 10, header.flags | FRAME_HOLED)
    return found if sum_records(frame, length) else None


cdef size_t _sound(const uint8_t *frame, size_t end, uint32_t number, size_t at) noexcept nogil:
    """Where the record after this one begins, if a sound record with this number begins at `at`; otherwise 0."""
    cdef Record record
    cdef size_t following = read_record(frame, end, at, &record)
    cdef const uint8_t *sums = frame + end + SUM_BYTES * <size_t> number
    if following == 0 or crc32c_of(frame + at, following - at, load_u32(sums)) != load_u32(sums + SUM_BYTES):
        return 0
    return following


cdef size_t _behind(const uint8_t *frame, size_t end, uint32_t count, uint32_t number, size_t at) noexcept nogil:
    """Where the record after a damaged one may begin; 0 when that is unknown."""
    cdef uint32_t stated, length
    cdef int bit
    if end - at < RECORD_BYTES_MIN:
        return 0
    stated = load_u32(frame + at)
    for bit in range(-1, LENGTH_BITS):
        length = stated if bit < 0 else stated ^ (<uint32_t> 1 << bit)
        if RECORD_BYTES_MIN <= length < end - at and number + 1 < count and _sound(frame, end, number + 1, at + length):
            return at + length
    return at + stated if RECORD_BYTES_MIN <= stated < end - at else 0


cdef void _find_sound(const uint8_t *frame, size_t end, uint32_t count, size_t *places) noexcept nogil:
    """Set `places` to the place of every sound record, and to 0 for the others."""
    cdef size_t at = FRAME_HEADER_BYTES, following
    cdef uint32_t i
    for i in range(count):
        following = _sound(frame, end, i, at)
        places[i] = at if following else 0
        at = following if following else _behind(frame, end, count, i, at)
        if at == 0 or at >= end:
            break


cdef bint _fill(uint8_t *frame, size_t end, uint32_t count, const size_t *places) noexcept nogil:
    """Write holes between the sound records; False when no record is sound, or the holes do not fit."""
    cdef Record record
    cdef size_t at = FRAME_HEADER_BYTES, room, size, stop
    cdef uint32_t i = 0, first, left, sound = 0
    cdef int64_t ts_ns = 0
    for i in range(count):
        if places[i]:
            sound += 1
            if sound == 1:
                read_record(frame, end, places[i], &record)
                ts_ns = record.ts_ns
    if sound == 0:
        return False
    i = 0
    while i < count:
        if places[i]:
            if places[i] != at:
                return False
            at = read_record(frame, end, at, &record)
            ts_ns = record.ts_ns
            i += 1
            continue
        first = i
        while i < count and places[i] == 0:
            i += 1
        stop = places[i] if i < count else end
        if stop < at or (stop - at) // RECORD_BYTES_MIN < i - first:
            return False
        memset(frame + at, 0, stop - at)
        for left in range(i - first, 0, -1):
            size = RECORD_BYTES_MIN if left > 1 else stop - at
            write_record_header(frame + at, 0, <uint32_t> (size - RECORD_HEADER_BYTES), 0, 0, ts_ns)
            at += size
    return at == end
