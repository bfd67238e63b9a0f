"""The capture record: one message as the data plane hands it over, or takes it to be sent.

A batch is records back to back. Everything that writes or reads one does it through these declarations; all of them are
inline, so that each extension module compiles its own copy.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    CAPTURE_HEAD_BYTES = 20

cdef packed struct CaptureHead:       # little endian; subject, reply, hdr and payload follow
    uint32_t length                   # the whole capture record, bytes
    uint32_t hdr_len
    uint32_t payload_len
    uint16_t subject_len
    uint16_t reply_len
    uint32_t origin                   # client id, 0 = none: the message came from elsewhere

cdef struct Captured:                 # one capture record, taken apart; pointers into the batch
    const uint8_t *subject
    const uint8_t *reply
    const uint8_t *hdr
    const uint8_t *payload            # follows the headers without a gap
    size_t subject_len
    size_t reply_len
    size_t hdr_len
    size_t payload_len
    size_t length
    uint32_t origin

cdef class Capture:                   # the same for Python
    cdef bytes batch
    cdef const uint8_t *payload_at
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t end
    cdef readonly bytes subject
    cdef readonly bytes reply
    cdef readonly bytes hdr
    cdef readonly Py_ssize_t payload_len
    cdef readonly uint32_t origin


cdef inline bint read_capture(const uint8_t *data, size_t room, Captured *out) noexcept nogil:
    """Take the record at `data` apart; False when `room` bytes cannot hold it or its lengths do not add up."""
    cdef CaptureHead head
    if room < CAPTURE_HEAD_BYTES:
        return False
    memcpy(&head, data, CAPTURE_HEAD_BYTES)
    if head.length > room or head.length != (
        <uint64_t>CAPTURE_HEAD_BYTES + head.subject_len + head.reply_len + <uint64_t>head.hdr_len + head.payload_len
    ):
        return False
    out.length = head.length
    out.subject_len = head.subject_len
    out.reply_len = head.reply_len
    out.hdr_len = head.hdr_len
    out.payload_len = head.payload_len
    out.origin = head.origin
    out.subject = data + CAPTURE_HEAD_BYTES
    out.reply = out.subject + head.subject_len
    out.hdr = out.reply + head.reply_len
    out.payload = out.hdr + head.hdr_len
    return True


cdef inline int take_apart(const uint8_t *data, size_t room, Captured *out) except -1:
    """The same for a record that this server has made: anything wrong with it is a bug of ours."""
    if not read_capture(data, room, out):
        raise AssertionError("a capture record does not add up")
    return 0


cdef inline uint32_t capture_bytes(uint16_t subject_len, uint16_t reply_len, uint32_t data_len) noexcept nogil:
    """The length of a record with `data_len` bytes of headers and payload."""
    return CAPTURE_HEAD_BYTES + <uint32_t>subject_len + reply_len + data_len


cdef inline char *write_capture_head(
    void *out, uint16_t subject_len, uint16_t reply_len, uint32_t hdr_len, uint32_t payload_len, uint32_t origin
) noexcept nogil:
    """Write the head of a record; returns where the subject goes. Reply, headers and payload follow it."""
    cdef CaptureHead head
    head.length = capture_bytes(subject_len, reply_len, hdr_len + payload_len)
    head.hdr_len = hdr_len
    head.payload_len = payload_len
    head.subject_len = subject_len
    head.reply_len = reply_len
    head.origin = origin
    memcpy(out, &head, CAPTURE_HEAD_BYTES)
    return <char *>out + CAPTURE_HEAD_BYTES
