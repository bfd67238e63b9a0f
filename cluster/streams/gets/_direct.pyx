"""The answers of direct gets: a stored message with its origin in headers, as a capture record on its way to a reader.

A bulk reader takes hundreds of thousands of these, so a record is written in one pass and the text of its second is kept.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.string cimport memcpy

from jetraft.cluster.capture._capture cimport capture_bytes, write_capture_head

cdef extern from "stdio.h" nogil:
    int snprintf(char *buffer, size_t size, const char *format, ...)

cdef enum:
    FIXED_MAX = 256             # header names, numbers and the time of one record, in bytes
    SECOND_CHARS = 19           # 2026-01-02T03:04:05

cdef bytes NO_HEADERS = b"NATS/1.0\r\n\r\n"
cdef int64_t NS_PER_S = 1000000000
cdef int64_t SECONDS_PER_DAY = 86400


cdef void format_second(int64_t seconds, char *out) noexcept nogil:
    """Write a Unix time as `YYYY-MM-DDThh:mm:ss` (Hinnant's days-to-civil; years 0 to 9999)."""
    cdef int64_t days = seconds // SECONDS_PER_DAY
    cdef int64_t rest = seconds % SECONDS_PER_DAY
    cdef int64_t era, day_of_era, year_of_era, day_of_year, month, year
    if rest < 0:
        rest += SECONDS_PER_DAY
        days -= 1
    days += 719468
    era = days // 146097
    day_of_era = days - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    year = year_of_era + era * 400 + (1 if month >= 10 else 0)
    memcpy(out, b"0000-00-00T00:00:00", SECOND_CHARS + 1)
    put_digits(out, year, 4)                    # nanoseconds in 64 bits end in the year 2262
    put_digits(out + 5, month + 3 if month < 10 else month - 9, 2)
    put_digits(out + 8, day_of_year - (153 * month + 2) // 5 + 1, 2)
    put_digits(out + 11, rest // 3600, 2)
    put_digits(out + 14, rest // 60 % 60, 2)
    put_digits(out + 17, rest % 60, 2)


cdef inline void put_digits(char *out, int64_t value, int count) noexcept nogil:
    """The last `count` decimal digits of a number that is not negative."""
    while count:
        count -= 1
        out[count] = <char>(c"0" + value % 10)
        value //= 10


cdef class DirectEncoder:
    """Encodes the answers of one stream's direct gets."""

    cdef bytes head             # Nats-Stream: <stream>\r\n
    cdef int64_t second         # whose text is kept; INT64_MIN for none
    cdef char second_text[SECOND_CHARS + 1]

    def __cinit__(self, bytes stream not None):
        self.head = b"Nats-Stream: %s\r\n" % stream
        self.second = INT64_MIN

    def record(self, bytes reply not None, uint64_t seq, int64_t ts_ns, bytes subject not None, bytes hdr not None,
               bytes payload not None, int64_t num_pending, uint64_t last_seq):
        """One message to one reader; with its place in a batch unless `num_pending` is negative."""
        cdef char fixed[FIXED_MAX]
        cdef char *out
        cdef bytes begun = hdr if hdr else NO_HEADERS
        cdef size_t own = len(begun) - 2
        cdef size_t tail = self._tail(fixed, seq, ts_ns, num_pending, last_seq)
        cdef size_t hdr_len = own + len(self.head) + 14 + len(subject) + tail
        cdef bytes record = PyBytes_FromStringAndSize(NULL, capture_bytes(len(reply), 0, hdr_len + len(payload)))
        out = write_capture_head(PyBytes_AS_STRING(record), len(reply), 0, hdr_len, len(payload), 0)
        out = put(out, PyBytes_AS_STRING(reply), len(reply))
        out = put(out, PyBytes_AS_STRING(begun), own)
        out = put(out, PyBytes_AS_STRING(self.head), len(self.head))
        out = put(out, b"Nats-Subject: ", 14)
        out = put(out, PyBytes_AS_STRING(subject), len(subject))
        out = put(out, fixed, tail)
        put(out, PyBytes_AS_STRING(payload), len(payload))
        return record

    cdef size_t _tail(self, char *out, uint64_t seq, int64_t ts_ns, int64_t num_pending, uint64_t last_seq):
        """What follows the subject in the headers; returns its length."""
        cdef size_t length = snprintf(out, FIXED_MAX, b"\r\nNats-Sequence: %llu\r\nNats-Time-Stamp: ",
                                      <unsigned long long>seq)
        length += self._time(out + length, ts_ns)
        if num_pending >= 0:
            length += snprintf(out + length, FIXED_MAX - length, b"\r\nNats-Num-Pending: %lld\r\nNats-Last-Sequence: %llu",
                               <long long>num_pending, <unsigned long long>last_seq)
        memcpy(out + length, b"\r\n\r\n", 4)
        return length + 4

    cdef size_t _time(self, char *out, int64_t ts_ns):
        """RFC 3339 with nanoseconds, trailing zeros cut as Go does; returns its length."""
        cdef int64_t second = ts_ns // NS_PER_S
        cdef int64_t fraction = ts_ns % NS_PER_S
        cdef size_t length = SECOND_CHARS
        if fraction < 0:
            fraction += NS_PER_S
            second -= 1
        if second != self.second:
            format_second(second, self.second_text)
            self.second = second
        memcpy(out, self.second_text, SECOND_CHARS)
        if fraction:
            out[length] = c'.'
            put_digits(out + length + 1, fraction, 9)
            length += 10
            while out[length - 1] == c'0':
                length -= 1
        out[length] = c'Z'
        return length + 1


cdef inline char *put(char *out, const char *data, size_t length) noexcept nogil:
    memcpy(out, data, length)
    return out + length
