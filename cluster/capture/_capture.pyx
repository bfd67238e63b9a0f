"""Capture records for Python: an object for each message of a batch, and a record made of its parts."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    NAME_BYTES_MAX = 0xFFFF           # a subject or a reply: 16 bits say how long it is
    DATA_BYTES_MAX = 0x7FFFFFFF       # headers and payload of one record: its whole length has 32 bits


cdef class Capture:
    """One captured message of a batch. The payload is copied only when it is asked for, so the batch is kept alive."""

    @property
    def payload(self):
        """The payload, a copy."""
        return PyBytes_FromStringAndSize(<const char *>self.payload_at, self.payload_len)

    @property
    def record(self):
        """The whole capture record, a copy; records can be joined into a batch."""
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.batch) + self.start, self.end - self.start)


cdef class Captures:
    """The messages of a batch, in order."""
    cdef bytes batch
    cdef Py_ssize_t position

    def __iter__(self):
        return self

    def __next__(self):
        cdef Capture found
        if self.position >= PyBytes_GET_SIZE(self.batch):
            raise StopIteration
        found = capture_at(self.batch, self.position)
        self.position = found.end
        return found


cpdef Capture capture_at(bytes batch, Py_ssize_t start):
    """The message that starts at an offset of a batch."""
    cdef Captured message
    cdef Capture found
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(batch) + start
    assert 0 <= start <= PyBytes_GET_SIZE(batch)
    take_apart(data, PyBytes_GET_SIZE(batch) - start, &message)
    found = Capture.__new__(Capture)
    found.batch = batch
    found.start = start
    found.end = start + <Py_ssize_t>message.length
    found.subject = PyBytes_FromStringAndSize(<const char *>message.subject, message.subject_len)
    found.reply = PyBytes_FromStringAndSize(<const char *>message.reply, message.reply_len)
    found.hdr = PyBytes_FromStringAndSize(<const char *>message.hdr, message.hdr_len)
    found.payload_at = message.payload
    found.payload_len = message.payload_len
    found.origin = message.origin
    return found


def captures(bytes batch not None):
    """Iterate over the messages of a batch. Raises AssertionError where a record does not add up."""
    cdef Captures found = Captures.__new__(Captures)
    found.batch = batch
    return found


def encode_capture(bytes subject not None, bytes reply not None=b"", bytes hdr not None=b"", bytes payload not None=b"",
                   uint32_t origin=0):
    """One capture record. Raises ValueError when a part is longer than a record can say."""
    cdef size_t subject_len = len(subject), reply_len = len(reply), hdr_len = len(hdr), payload_len = len(payload)
    cdef bytes record
    cdef char *out
    if subject_len > NAME_BYTES_MAX or reply_len > NAME_BYTES_MAX:
        raise ValueError(f"a subject of {subject_len} bytes and a reply of {reply_len}: the limit is {NAME_BYTES_MAX}")
    if hdr_len + payload_len > DATA_BYTES_MAX:
        raise ValueError(f"a message of {hdr_len + payload_len} bytes: the limit is {DATA_BYTES_MAX}")
    record = PyBytes_FromStringAndSize(NULL, capture_bytes(subject_len, reply_len, hdr_len + payload_len))
    out = write_capture_head(PyBytes_AS_STRING(record), subject_len, reply_len, hdr_len, payload_len, origin)
    memcpy(out, PyBytes_AS_STRING(subject), subject_len)
    memcpy(out + subject_len, PyBytes_AS_STRING(reply), reply_len)
    memcpy(out + subject_len + reply_len, PyBytes_AS_STRING(hdr), hdr_len)
    memcpy(out + subject_len + reply_len + hdr_len, PyBytes_AS_STRING(payload), payload_len)
    return record
