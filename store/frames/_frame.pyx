"""Frame and record codec, and the scan that finds the frames of a block.

A frame is one Raft entry. The leader encodes it once; the same bytes are in every log, on every link and under every
message read. Each length is checked against the buffer before it is used. Layout: store/frames/format.py. Types:
_frame.pyi; other Cython modules cimport _frame.pxd.
"""

import sys
from array import array
from collections import namedtuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

cdef extern from "_crc32c.h" nogil:
    int jetraft_crc32c_in_hardware
    void jetraft_crc32c_prepare()
    uint32_t jetraft_crc32c(const uint8_t *data, size_t size, uint32_t value)
    uint32_t jetraft_crc32c_by_table(const uint8_t *data, size_t size, uint32_t value)

if sys.byteorder != "little":
    raise ImportError("jetraft stores little-endian integers by copying them; this machine is big-endian")
jetraft_crc32c_prepare()

cdef enum:
    FRAME_VERSION = 2           # the newest that is understood
    PLAIN_VERSION = 1           # of frames without checksums of records
    MESSAGES = 3                # format.Kind.MESSAGES
    BLOCK_HEAD_BYTES = 128
    MARK_SENTINEL = 0xFFFFFFFF  # in place of the length of a frame; no frame is that long
    SKIP_SENTINEL = 0xFFFFFFFE  # the same, for a skip
    FRAME_BYTES_MAX = 1 << 28

Header = namedtuple(
    "Header", "length crc version kind flags record_count incarnation log_index term first_stream_seq"
)
Scan = namedtuple("Scan", "offsets terms next_index term last_seq end stop damaged_marks indexes logical_offsets shift")

# Why a scan stopped; format.Stop gives the names.
cdef enum:
    STOP_END = 0
    STOP_ZERO = 1
    STOP_DAMAGED = 2
    STOP_ORDER = 3
    STOP_VERSION = 4


cdef uint32_t crc32c_of(const uint8_t *data, size_t size, uint32_t value) noexcept nogil:
    return jetraft_crc32c(data, size, value)


cdef bint read_header(const uint8_t *data, size_t size, FrameHeader *out) noexcept nogil:
    if size < FRAME_HEADER_BYTES:
        return False
    out.length = load_u32(data)
    out.crc = load_u32(data + 4)
    out.version = data[8]
    out.kind = data[9]
    out.flags = load_u16(data + 10)
    out.count = load_u32(data + 12)
    out.incarnation = load_u64(data + 16)
    out.log_index = load_u64(data + 24)
    out.term = load_u64(data + 32)
    out.first_stream_seq = load_u64(data + 40)
    return FRAME_HEADER_BYTES <= out.length <= FRAME_BYTES_MAX and out.length <= size


cdef bint frame_is_sound(const uint8_t *data, size_t size) noexcept nogil:
    cdef FrameHeader header
    if not read_header(data, size, &header):
        return False
    return jetraft_crc32c(data + 8, header.length - 8, 0) == header.crc


cdef bint frame_is(const uint8_t *data, size_t size, uint64_t index, uint64_t incarnation,
                   FrameHeader *out) noexcept nogil:
    if not read_header(data, size, out) or out.log_index != index or out.incarnation != incarnation:
        return False
    return jetraft_crc32c(data + 8, out.length - 8, 0) == out.crc


cdef size_t sums_bytes(const FrameHeader *header) noexcept nogil:
    if header.version != SUMMED_VERSION or header.kind != MESSAGES:
        return 0
    return SUM_BYTES * (<size_t> header.count + 1)


cdef bint sum_records(uint8_t *frame, size_t size) noexcept nogil:
    cdef FrameHeader header
    cdef Record record
    cdef size_t at = FRAME_HEADER_BYTES, following, end
    cdef uint32_t i, crc
    if not read_header(frame, size, &header) or header.length != size or header.kind != MESSAGES:
        return False
    frame[8] = header.version = SUMMED_VERSION
    if size < FRAME_HEADER_BYTES + sums_bytes(&header):
        return False
    end = size - sums_bytes(&header)
    crc = jetraft_crc32c(frame + 8, FRAME_HEADER_BYTES - 8, 0)
    store_u32(frame + end, crc)
    for i in range(header.count):
        following = read_record(frame, end, at, &record)
        if following == 0:
            return False
        crc = jetraft_crc32c(frame + at, following - at, crc)
        store_u32(frame + end + SUM_BYTES * (<size_t> i + 1), crc)
        at = following
    store_u32(frame + 4, jetraft_crc32c(frame + end, size - end, crc))
    return at == end


cdef size_t read_record(const uint8_t *frame, size_t size, size_t offset, Record *out) noexcept nogil:
    cdef uint64_t fixed
    if offset < FRAME_HEADER_BYTES or offset > size or size - offset < RECORD_HEADER_BYTES:
        return 0
    out.offset = offset
    out.length = load_u32(frame + offset)
    out.hdr_len = load_u32(frame + offset + 4)
    out.subject_len = load_u16(frame + offset + 8)
    out.flags = load_u16(frame + offset + 10)
    out.ts_ns = <int64_t> load_u64(frame + offset + 12)
    fixed = <uint64_t> RECORD_HEADER_BYTES + out.subject_len + out.hdr_len
    if out.length < fixed or out.length > size - offset:
        return 0
    out.payload_len = out.length - <uint32_t> fixed
    out.subject = frame + offset + RECORD_HEADER_BYTES
    out.hdr = out.subject + out.subject_len
    out.payload = out.hdr + out.hdr_len
    return offset + out.length


cdef void write_record_header(uint8_t *out, uint32_t hdr_len, uint32_t payload_len, uint16_t subject_len,
                              uint16_t flags, int64_t ts_ns) noexcept nogil:
    store_u32(out, RECORD_HEADER_BYTES + subject_len + hdr_len + payload_len)
    store_u32(out + 4, hdr_len)
    store_u16(out + 8, subject_len)
    store_u16(out + 10, flags)
    store_u64(out + 12, <uint64_t> ts_ns)


def crc32c(const uint8_t[::1] data not None, uint32_t value=0):
    """The CRC-32C of `data`, continuing from `value`."""
    if data.shape[0] == 0:
        return value
    return jetraft_crc32c(&data[0], data.shape[0], value)


def crc32c_by_table(const uint8_t[::1] data not None, uint32_t value=0):
    """The same without the CRC instruction, as on CPUs that lack it; callable on every CPU for tests."""
    if data.shape[0] == 0:
        return value
    return jetraft_crc32c_by_table(&data[0], data.shape[0], value)


def seal(int kind, *, uint64_t index, uint64_t term, uint64_t incarnation, body, uint64_t first_seq=0,
         uint32_t count=0, uint16_t flags=0, bint summed=False):
    """Encode one entry as a frame. `body` is bytes, or a list or tuple of bytes-like parts that are joined.

    `summed`: the body is `count` records, and the frame gets a checksum for each. Raises ValueError when the frame
    would be longer than FRAME_BYTES_MAX, or the body is not `count` records.
    """
    parts = body if isinstance(body, (list, tuple)) else (body,)
    cdef uint64_t length = FRAME_HEADER_BYTES
    for part in parts:
        length += memoryview(part).nbytes
    cdef uint64_t body_end = length
    if summed:
        length += SUM_BYTES * (<uint64_t> count + 1)
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame has at most {FRAME_BYTES_MAX} bytes, not {length}")
    frame = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> length)
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(frame)
    cdef uint64_t at = FRAME_HEADER_BYTES
    cdef Py_buffer view
    for part in parts:
        PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
        try:
            if at + <uint64_t> view.len > body_end:
                raise ValueError("a part of the body grew while the frame was encoded")
            memcpy(out + at, view.buf, view.len)
            at += view.len
        finally:
            PyBuffer_Release(&view)
    store_u32(out, <uint32_t> length)
    out[8] = PLAIN_VERSION
    out[9] = <uint8_t> kind
    store_u16(out + 10, flags)
    store_u32(out + 12, count)
    store_u64(out + 16, incarnation)
    store_u64(out + 24, index)
    store_u64(out + 32, term)
    store_u64(out + 40, first_seq)
    if not summed:
        store_u32(out + 4, jetraft_crc32c(out + 8, length - 8, 0))
    elif not sum_records(out, length):
        raise ValueError(f"the body does not contain {count} records")
    return frame


def resummed(const uint8_t[::1] frame not None):
    """A copy of a frame whose content was changed, with new checksums. Raises ValueError when it is not complete."""
    cdef FrameHeader header
    memset(&header, 0, sizeof(header))
    if frame.shape[0] == 0 or not read_header(&frame[0], frame.shape[0], &header) or header.length != frame.shape[0]:
        raise ValueError("not a whole frame")
    changed = PyBytes_FromStringAndSize(<const char *> &frame[0], frame.shape[0])
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(changed)
    if sums_bytes(&header) == 0:
        store_u32(out + 4, jetraft_crc32c(out + 8, header.length - 8, 0))
    elif not sum_records(out, header.length):
        raise ValueError(f"not a frame of {header.count} records")
    return changed


def parse_header(const uint8_t[::1] data not None, Py_ssize_t offset=0):
    """The Header of the frame at `offset`, not verified. Raises ValueError when the frame is not complete."""
    cdef FrameHeader header
    memset(&header, 0, sizeof(header))
    if offset < 0 or offset >= data.shape[0] or not read_header(&data[offset], data.shape[0] - offset, &header):
        raise ValueError(f"no whole frame at offset {offset}")
    return Header(header.length, header.crc, header.version, header.kind, header.flags, header.count,
                  header.incarnation, header.log_index, header.term, header.first_stream_seq)


def verify(const uint8_t[::1] data not None, Py_ssize_t offset=0):
    """Whether a complete frame with a right checksum starts at `offset`."""
    if offset < 0 or offset >= data.shape[0]:
        return False
    return frame_is_sound(&data[offset], data.shape[0] - offset)


def entry_frame(bytes data not None, Py_ssize_t offset, uint64_t index, uint64_t incarnation):
    """(frame, term, kind) of the entry whose frame starts at `offset`; None when it is damaged or another entry."""
    cdef FrameHeader header
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
    if offset < 0 or offset >= len(data) or not frame_is(start + offset, len(data) - offset, index, incarnation, &header):
        return None
    frame = PyBytes_FromStringAndSize(<const char *> start + offset, header.length)
    return frame, header.term, header.kind


def sound_entry(bytes frame not None, uint64_t index, uint64_t incarnation):
    """(term, kind, version) of a frame that is the entry of this index; None when it is damaged or another entry."""
    cdef FrameHeader header
    if not frame_is(<const uint8_t *> PyBytes_AS_STRING(frame), len(frame), index, incarnation, &header):
        return None
    return header.term, header.kind, header.version


def make_record(const uint8_t[::1] subject not None, const uint8_t[::1] hdr not None,
                const uint8_t[::1] payload not None, *, int64_t ts_ns, uint16_t flags=0):
    """Encode one message as a record of a MESSAGES body."""
    if subject.shape[0] > 0xFFFF:
        raise ValueError(f"a subject of {subject.shape[0]} bytes is longer than 65535")
    cdef Py_ssize_t length = RECORD_HEADER_BYTES + subject.shape[0] + hdr.shape[0] + payload.shape[0]
    if length > FRAME_BYTES_MAX - FRAME_HEADER_BYTES:
        raise ValueError(f"a record of {length} bytes is too long for a frame")
    record = PyBytes_FromStringAndSize(NULL, length)
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(record)
    write_record_header(out, hdr.shape[0], payload.shape[0], subject.shape[0], flags, ts_ns)
    out += RECORD_HEADER_BYTES
    if subject.shape[0]:
        memcpy(out, &subject[0], subject.shape[0])
    out += subject.shape[0]
    if hdr.shape[0]:
        memcpy(out, &hdr[0], hdr.shape[0])
    out += hdr.shape[0]
    if payload.shape[0]:
        memcpy(out, &payload[0], payload.shape[0])
    return record


cdef tuple _record_fields(Record *record):
    return (
        record.ts_ns,
        record.flags,
        PyBytes_FromStringAndSize(<const char *> record.subject, record.subject_len),
        PyBytes_FromStringAndSize(<const char *> record.hdr, record.hdr_len),
        PyBytes_FromStringAndSize(<const char *> record.payload, record.payload_len),
    )


def record_at(const uint8_t[::1] frame not None, Py_ssize_t offset):
    """(ts_ns, flags, subject, hdr, payload) of the record at `offset` from the frame's start.

    Raises ValueError when the record does not fit its frame.
    """
    cdef Record record
    memset(&record, 0, sizeof(record))
    if offset < 0 or frame.shape[0] == 0 or not read_record(&frame[0], frame.shape[0], offset, &record):
        raise ValueError(f"no whole record at offset {offset}")
    return _record_fields(&record)


def records(const uint8_t[::1] frame not None):
    """[(seq, ts_ns, subject, hdr, payload)] of a MESSAGES frame. Raises ValueError when its records are malformed."""
    cdef FrameHeader header
    cdef Record record
    cdef size_t offset = FRAME_HEADER_BYTES
    cdef uint32_t i
    memset(&header, 0, sizeof(header))
    if frame.shape[0] == 0 or not read_header(&frame[0], frame.shape[0], &header) or header.kind != MESSAGES:
        raise ValueError("not a whole MESSAGES frame")
    if header.length < FRAME_HEADER_BYTES + sums_bytes(&header):
        raise ValueError("the frame is too short for the checksums of its records")
    found = []
    for i in range(header.count):
        offset = read_record(&frame[0], header.length - sums_bytes(&header), offset, &record)
        if offset == 0:
            raise ValueError(f"record {i} of {header.count} does not fit its frame")
        ts_ns, _, subject, hdr, payload = _record_fields(&record)
        found.append((header.first_stream_seq + i, ts_ns, subject, hdr, payload))
    if offset != header.length - sums_bytes(&header):
        raise ValueError("bytes after the last record")
    return found


def make_mark(*, uint64_t incarnation, uint32_t offset, uint64_t next_index, uint32_t tag=0):
    """A mark at `offset` of a block: everything before it was on disk when the mark was written."""
    return _make(MARK_SENTINEL, incarnation, (<uint64_t> tag << 32) | offset, next_index, 0)


def make_skip(*, uint64_t incarnation, uint32_t place, uint32_t logical_offset, uint64_t next_index, uint32_t tag=0):
    """A skip at a place of a compacted block: the entries before `next_index` were dropped on purpose.

    `logical_offset` is that of the next frame, as if the frames before it still had their original lengths.
    """
    return _make(SKIP_SENTINEL, incarnation, (<uint64_t> tag << 32) | logical_offset, next_index, place)


cdef bytes _make(uint32_t sentinel, uint64_t incarnation, uint64_t offset, uint64_t next_index, uint32_t crc):
    mark = PyBytes_FromStringAndSize(NULL, MARK_BYTES)
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(mark)
    store_u32(out, sentinel)
    store_u64(out + 8, incarnation)
    store_u64(out + 16, offset)
    store_u64(out + 24, next_index)
    store_u32(out + 4, jetraft_crc32c(out + 8, MARK_BYTES - 8, crc))
    return mark


cdef bint _is_skip(const uint8_t *data, size_t size, size_t place, uint64_t incarnation) noexcept nogil:
    """The same for a skip, whose checksum starts from its place."""
    if size < MARK_BYTES or place > size - MARK_BYTES or load_u32(data + place) != SKIP_SENTINEL:
        return False
    if load_u64(data + place + 8) != incarnation:
        return False
    return jetraft_crc32c(data + place + 8, MARK_BYTES - 8, <uint32_t> place) == load_u32(data + place + 4)


cdef bint _is_mark(const uint8_t *data, size_t size, size_t offset, uint64_t incarnation) noexcept nogil:
    """Whether there is a sound mark of this incarnation at `offset`, written for this offset."""
    if size < MARK_BYTES or offset > size - MARK_BYTES or load_u32(data + offset) != MARK_SENTINEL:
        return False
    if load_u64(data + offset + 8) != incarnation or load_u32(data + offset + 16) != offset:
        return False
    return jetraft_crc32c(data + offset + 8, MARK_BYTES - 8, 0) == load_u32(data + offset + 4)


def find_mark(const uint8_t[::1] data not None, *, Py_ssize_t offset, uint64_t incarnation, bint skip=False,
              uint32_t tag=0):
    """The offset of the first sound mark (or skip) at or after `offset`, or -1. `data` is a block from its first byte.

    With a tag, the first one that has this tag; without, the first one with any tag.
    """
    cdef uint32_t sentinel = SKIP_SENTINEL if skip else MARK_SENTINEL
    cdef size_t at = offset
    cdef size_t size = data.shape[0]
    cdef const uint8_t *start
    cdef const uint8_t *found
    if size < MARK_BYTES or at > size - MARK_BYTES:
        return -1
    start = &data[0]
    with nogil:
        while at <= size - MARK_BYTES:
            found = <const uint8_t *> memchr(start + at, sentinel & 0xFF, size - at)
            at = size if found is NULL else <size_t> (found - start)
            if _is_skip(start, size, at, incarnation) if skip else _is_mark(start, size, at, incarnation):
                if tag == 0 or load_u32(start + at + 20) == tag:
                    break
            at += 1
    return <Py_ssize_t> at if at <= size - MARK_BYTES else -1


cdef int _judge(const uint8_t *data, size_t size, size_t at, uint64_t incarnation, uint64_t index, uint64_t term,
                bint check, FrameHeader *header) noexcept nogil:
    """STOP_END when the frame at `at` continues the log; otherwise the reason why it does not."""
    cdef int i
    if size - at >= 4 and load_u32(data + at) == 0:
        for i in range(<int> min(size - at, FRAME_HEADER_BYTES)):
            if data[at + i]:
                return STOP_DAMAGED
        return STOP_ZERO
    if not read_header(data + at, size - at, header):
        return STOP_DAMAGED
    if check and jetraft_crc32c(data + at + 8, header.length - 8, 0) != header.crc:
        return STOP_DAMAGED
    if header.version > FRAME_VERSION:
        return STOP_VERSION
    if header.incarnation != incarnation or header.log_index != index or header.term < term:
        return STOP_ORDER
    return STOP_END


def scan(const uint8_t[::1] data not None, *, Py_ssize_t offset, uint64_t incarnation, uint64_t next_index,
         uint64_t term, uint64_t last_index=0xFFFFFFFFFFFFFFFF, bint check=True, int64_t shift=0, uint64_t lift=0):
    """Walk the frames of a block from `offset` and stop at the first that does not continue the log.

    `data` is the block from its first byte; `next_index` and `term` are what the first frame must have (at least, for
    the term). The scan ends after `last_index`. `check=False` reads headers only, for blocks whose frames are
    verified when they are read. A damaged mark is passed over if a frame that continues the log follows it, but not
    where it may have been a skip, which has the logical offset of that frame: in a compacted block, or in front of the
    first frame of any. After a skip the log continues at the index in it, and the logical offsets of frames differ from
    their places: `indexes` and `logical_offsets` then have both for each frame; otherwise they are None. `shift` is the
    logical offset minus the place; `lift` is added to the offsets in skips, for a walk that continues after damage.
    """
    cdef size_t at = offset
    cdef size_t size = data.shape[0]
    cdef FrameHeader header
    cdef int stop = STOP_END
    cdef uint64_t last_seq = 0
    cdef uint64_t damaged_marks = 0
    cdef uint64_t skip_to
    offsets = array("I")
    terms = []
    indexes = logical_offsets = None
    cdef uint64_t known, known_end = 0
    while at < size and next_index <= last_index:
        if _is_mark(&data[0], size, at, incarnation):
            at += MARK_BYTES
            continue
        if _is_skip(&data[0], size, at, incarnation):
            skip_to = load_u64(&data[0] + at + 24)
            known = load_u32(&data[0] + at + 16) + lift
            if skip_to < next_index or skip_to - 1 > last_index or known < known_end or known > 0xFFFFFFFF:
                stop = STOP_ORDER
                break
            if indexes is None:
                indexes = array("Q", range(next_index - len(offsets), next_index))
                logical_offsets = array("I", [place + shift for place in offsets])
            next_index = skip_to
            at += MARK_BYTES
            shift = <int64_t> known - <int64_t> at
            continue
        stop = _judge(&data[0], size, at, incarnation, next_index, term, check, &header)
        if stop != STOP_END:
            if indexes is not None or shift or at == BLOCK_HEAD_BYTES:
                break
            if size - at <= MARK_BYTES or _judge(
                &data[0], size, at + MARK_BYTES, incarnation, next_index, term, True, &header
            ) != STOP_END:
                break
            stop = STOP_END
            damaged_marks += 1
            at += MARK_BYTES
        offsets.append(at)
        if indexes is not None or shift:
            if indexes is None:
                indexes, logical_offsets = array("Q"), array("I")
            known = <uint64_t> (<int64_t> at + shift)
            if known > 0xFFFFFFFF:
                stop = STOP_DAMAGED
                offsets.pop()
                break
            indexes.append(next_index)
            logical_offsets.append(known)
            known_end = known + header.length
        if header.term != term or not terms:
            terms.append((header.log_index, header.term))
            term = header.term
        if header.kind == MESSAGES and header.count:
            last_seq = max(last_seq, header.first_stream_seq + header.count - 1)
        next_index += 1
        at += header.length
    return Scan(offsets, terms, next_index, term, last_seq, at, stop, damaged_marks, indexes, logical_offsets, shift)
