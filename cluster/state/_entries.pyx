"""What the state machine reads of a committed MESSAGES entry, without an object for a message that says nothing to it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t

from jetraft.store.frames._frame cimport FRAME_HEADER_BYTES, FrameHeader, Record, read_header, read_record


def flagged_records(bytes frame not None):
    """The records of a MESSAGES frame whose flags are not zero, as (index, flags, ts_ns, subject, hdr)."""
    cdef Record record
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(frame)
    cdef size_t offset = FRAME_HEADER_BYTES, end = len(frame)
    cdef FrameHeader header
    cdef uint32_t index
    cdef list found = []
    assert read_header(data, end, &header)
    for index in range(header.count):
        offset = read_record(data, end, offset, &record)
        assert offset != 0, "a committed MESSAGES frame holds a malformed record"
        if record.flags:
            found.append((
                index, record.flags, record.ts_ns,
                PyBytes_FromStringAndSize(<char *>record.subject, record.subject_len),
                PyBytes_FromStringAndSize(<char *>record.hdr, record.hdr_len),
            ))
    return found


def subjects_of(bytes frame not None):
    """The subjects of all records of a MESSAGES frame, in order; of a hole in it, an empty one."""
    cdef FrameHeader header
    cdef Record record
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(frame)
    cdef size_t offset = FRAME_HEADER_BYTES, end = len(frame)
    cdef list found = []
    assert read_header(data, end, &header)
    for _ in range(header.count):
        offset = read_record(data, end, offset, &record)
        assert offset != 0, "a committed MESSAGES frame holds a malformed record"
        found.append(PyBytes_FromStringAndSize(<char *>record.subject, record.subject_len))
    return found
