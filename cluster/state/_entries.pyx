"""What the state machine reads of a committed MESSAGES entry, without an object for a message that says nothing to it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, strlen

from jetraft.store.frames._frame cimport FRAME_HEADER_BYTES, FrameHeader, Record, read_header, read_record

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t haystacklen, const void *needle, size_t needlelen)

cdef enum:
    SOURCED = 16                    # format.RECORD_IS_SOURCED
    KEY_PARTS = 4                   # of the value of Nats-Stream-Source: origin, sequence, filters, destinations

cdef const char *NAME_AT = "\nNats-Stream-Source: "
cdef size_t NAME_BYTES = strlen(NAME_AT)

cdef struct SourceKey:              # what a copy's header says of its source
    const uint8_t *name
    size_t name_len
    const uint8_t *rest             # filters and destinations
    size_t rest_len


cdef bint read_key(const Record *record, SourceKey *out) noexcept nogil:
    """The key in a header; False when it has none of the expected form."""
    cdef const uint8_t *at = <const uint8_t *>memmem(record.hdr, record.hdr_len, NAME_AT, NAME_BYTES)
    cdef const uint8_t *end = record.hdr + record.hdr_len
    cdef int parts = 0
    out.name = out.rest = NULL
    out.name_len = out.rest_len = 0
    if at == NULL:
        return False
    at += NAME_BYTES
    out.name = at
    while at < end and at[0] != c"\r":
        if at[0] == c" ":
            parts += 1
            if parts == 1:
                out.name_len = at - out.name
            elif parts == 2:
                out.rest = at
            elif parts == KEY_PARTS:
                out.rest_len = at - out.rest
                return True
        at += 1
    return False


cdef bint is_same(const SourceKey *one, const SourceKey *other) noexcept nogil:
    return (
        one.name_len == other.name_len and one.rest_len == other.rest_len
        and memcmp(one.name, other.name, one.name_len) == 0 and memcmp(one.rest, other.rest, one.rest_len) == 0
    )


def flagged_records(bytes frame not None):
    """The records of a MESSAGES frame whose flags are not zero, as (index, flags, ts_ns, subject, hdr).

    Of copies of one source in a row that say nothing else, the last one: only how far the source was read counts.
    """
    cdef Record record, copy
    cdef SourceKey key, copied
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(frame)
    cdef size_t offset = FRAME_HEADER_BYTES, end = len(frame)
    cdef FrameHeader header
    cdef uint32_t index, place = 0
    cdef bint is_held = False       # `copy`, of the source `copied`: the next one may be of the same
    cdef list found = []
    copied.name = copied.rest = NULL
    copied.name_len = copied.rest_len = 0
    assert read_header(data, end, &header)
    for index in range(header.count):
        offset = read_record(data, end, offset, &record)
        assert offset != 0, "a committed MESSAGES frame holds a malformed record"
        if record.flags == SOURCED and read_key(&record, &key):
            if is_held and not is_same(&key, &copied):
                found.append(flagged(place, &copy))
            is_held, place, copy, copied = True, index, record, key
            continue
        if is_held:
            found.append(flagged(place, &copy))
            is_held = False
        if record.flags:
            found.append(flagged(index, &record))
    if is_held:
        found.append(flagged(place, &copy))
    return found


cdef tuple flagged(uint32_t index, const Record *record):
    return (
        index, record.flags, record.ts_ns,
        PyBytes_FromStringAndSize(<const char *>record.subject, record.subject_len),
        PyBytes_FromStringAndSize(<const char *>record.hdr, record.hdr_len),
    )


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
