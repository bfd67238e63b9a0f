# cython: language_level=3
"""Thin frames: frames without the content of removed messages, in compacted blocks (decision 28).

A thin frame has FRAME_THIN in its flags. Its body states where the records were in the original frame, so that offsets
in it stay valid:

    u32 length of the original frame   u64 timestamp of its first record
    and then, until the end:           u32 removed records, u32 their bytes, u32 bytes kept, the bytes

`expand` restores the frame, with empty records of the right number and size in place of the removed ones: the subject
is a dot, which is not a valid subject, there are no headers, and the content is zeros. Only readers that know from a
checkpoint that these messages were removed read such a frame. The checksums of records (version 2) are left out, and
computed again. Types: _thin.pyi. Layout of frames and records: store/frames/format.py.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from jetraft.store.frames._frame cimport (
    FRAME_HEADER_BYTES, FRAME_HOLED, RECORD_HEADER_BYTES, FrameHeader, Record, crc32c_of, load_u32, load_u64,
    read_header, read_record, store_u16, store_u32, store_u64, sum_records, sums_bytes, write_record_header,
)

cdef enum:
    FRAME_THIN = 2              # format.FRAME_THIN
    MESSAGES = 3                # format.Kind.MESSAGES
    FRAME_BYTES_MAX = 1 << 28
    BODY_HEAD_BYTES = 12
    PIECE_HEAD_BYTES = 12
    GONE_BYTES = 21             # the shortest record: its header and a subject of one byte


cdef void _close(uint8_t *frame, uint32_t length, uint16_t flags) noexcept:
    store_u32(frame, length)
    store_u16(frame + 10, flags)
    store_u32(frame + 4, crc32c_of(frame + 8, length - 8, 0))


def thin(bytes frame not None, const uint8_t[::1] live not None):
    """The thin form of a frame; None when it would not be smaller. `live` has a byte for each record, 0 if removed.

    Raises ValueError when it is not an open MESSAGES frame of that many records.
    """
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(frame)
    cdef FrameHeader header
    cdef Record record
    cdef size_t at = FRAME_HEADER_BYTES, following, written, piece = 0
    cdef uint32_t i, gone = 0, gone_bytes = 0
    cdef bint in_kept = True
    if not read_header(data, len(frame), &header) or header.kind != MESSAGES or header.length != len(frame):
        raise ValueError("not a whole MESSAGES frame")
    if header.flags & ~FRAME_HOLED or header.length < FRAME_HEADER_BYTES + sums_bytes(&header):
        raise ValueError("not an open MESSAGES frame")
    cdef size_t end = header.length - sums_bytes(&header)
    if header.count != live.shape[0] or header.count == 0:
        raise ValueError(f"expected {header.count} flags, one for each record, found {live.shape[0]}")
    # At most one piece head for each record that is kept, and one at the end.
    cdef bytearray out = bytearray(header.length + BODY_HEAD_BYTES + PIECE_HEAD_BYTES * (<size_t> header.count + 1))
    cdef uint8_t *target = <uint8_t *> <char *> out
    memcpy(target, data, FRAME_HEADER_BYTES)
    store_u32(target + FRAME_HEADER_BYTES, header.length)
    written = FRAME_HEADER_BYTES + BODY_HEAD_BYTES
    for i in range(header.count):
        following = read_record(data, end, at, &record)
        if following == 0 or (record.subject_len == 0 and live[i]):
            raise ValueError(f"record {i} of {header.count} does not fit its frame")
        if i == 0:
            store_u64(target + FRAME_HEADER_BYTES + 4, <uint64_t> record.ts_ns)
        if live[i]:
            if not in_kept or piece == 0:
                piece = written
                store_u32(target + piece, gone)
                store_u32(target + piece + 4, gone_bytes)
                store_u32(target + piece + 8, 0)
                written += PIECE_HEAD_BYTES
                gone = gone_bytes = 0
            memcpy(target + written, data + at, following - at)
            written += following - at
            store_u32(target + piece + 8, load_u32(target + piece + 8) + <uint32_t> (following - at))
            in_kept = True
        else:
            gone += 1
            gone_bytes += <uint32_t> (following - at)
            in_kept = False
        at = following
    if at != end:
        raise ValueError("bytes after the last record")
    if gone:
        store_u32(target + written, gone)
        store_u32(target + written + 4, gone_bytes)
        store_u32(target + written + 8, 0)
        written += PIECE_HEAD_BYTES
    if written >= header.length:
        return None
    _close(target, <uint32_t> written, FRAME_THIN)
    return bytes(out[:written])


def expand(bytes frame not None):
    """The original of a thin frame, with empty records for the removed ones. Raises ValueError when it is malformed."""
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(frame)
    cdef FrameHeader header
    cdef size_t at = FRAME_HEADER_BYTES + BODY_HEAD_BYTES, written = FRAME_HEADER_BYTES
    cdef uint32_t length, gone, gone_bytes, kept, i, size
    cdef int64_t ts_ns
    if not read_header(data, len(frame), &header) or header.flags != FRAME_THIN or header.length != len(frame):
        raise ValueError("not a whole thin frame")
    if header.length < at:
        raise ValueError(f"a thin frame of {header.length} bytes has no head")
    length = load_u32(data + FRAME_HEADER_BYTES)
    ts_ns = <int64_t> load_u64(data + FRAME_HEADER_BYTES + 4)
    if not FRAME_HEADER_BYTES + sums_bytes(&header) <= length <= FRAME_BYTES_MAX:
        raise ValueError(f"a frame cannot have {length} bytes")
    cdef size_t end = length - sums_bytes(&header)
    whole = PyBytes_FromStringAndSize(NULL, length)
    cdef uint8_t *target = <uint8_t *> PyBytes_AS_STRING(whole)
    memset(target, 0, length)
    memcpy(target, data, FRAME_HEADER_BYTES)
    while at < header.length:
        if header.length - at < PIECE_HEAD_BYTES:
            raise ValueError("a piece without a head")
        gone, gone_bytes, kept = load_u32(data + at), load_u32(data + at + 4), load_u32(data + at + 8)
        at += PIECE_HEAD_BYTES
        if kept > header.length - at or <uint64_t> gone_bytes + kept > end - written:
            raise ValueError("a piece beyond the frame")
        if <uint64_t> gone * GONE_BYTES > gone_bytes or (gone == 0) != (gone_bytes == 0):
            raise ValueError(f"{gone} records in {gone_bytes} bytes")
        for i in range(gone):
            size = gone_bytes - GONE_BYTES * (gone - 1) if i + 1 == gone else GONE_BYTES
            write_record_header(target + written, 0, size - GONE_BYTES, 1, 0, ts_ns)
            target[written + RECORD_HEADER_BYTES] = b"."
            written += size
        memcpy(target + written, data + at, kept)
        written += kept
        at += kept
    if written != end:
        raise ValueError(f"expected {end} bytes, found {written}")
    store_u32(target, length)
    store_u16(target + 10, 0)
    if end == length:
        _close(target, length, 0)
    elif not sum_records(target, length):
        raise ValueError("the pieces are not records")
    return whole


def thin_like(bytes model not None, bytes frame not None):
    """The thin form of a frame, with the pieces of `model`, a thin form of it before content changed in place."""
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(frame)
    cdef bytearray out = bytearray(model)
    cdef uint8_t *target = <uint8_t *> <char *> out
    cdef size_t at = FRAME_HEADER_BYTES + BODY_HEAD_BYTES, source = FRAME_HEADER_BYTES
    cdef uint32_t kept
    if len(model) < at or load_u32(target) != len(model) or load_u32(target + FRAME_HEADER_BYTES) != len(frame):
        raise ValueError("not a thin form of this frame")
    while at < len(model):
        if len(model) - at < PIECE_HEAD_BYTES:
            raise ValueError("a piece without a head")
        source += load_u32(target + at + 4)
        kept = load_u32(target + at + 8)
        at += PIECE_HEAD_BYTES
        if kept > len(model) - at or source + kept > len(frame):
            raise ValueError("a piece beyond the frame")
        memcpy(target + at, data + source, kept)
        at += kept
        source += kept
    _close(target, <uint32_t> len(model), FRAME_THIN)
    return bytes(out)
