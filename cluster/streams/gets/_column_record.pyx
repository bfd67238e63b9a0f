"""Writes an answer in columns: the buffers that Arrow has for messages, in one capture record on its way to a reader.

Layout, little endian, each buffer padded with zeros to a multiple of 8 (decision 89):

    magic JRCOLS1\\n   u64 rows   u64 first and last sequence looked at   u64 num_pending   u64 applied sequence
    u64 first sequence of the stream   i64 created, ns   u32 what is there   u32 subjects in the dictionary, 0: none
    u64 names   u64 values   u64 bytes of subjects   u64 of names   u64 of values   u64 of data   u64 0
    i64[rows] sequences                                                                always
    i64[rows] times, us since the Unix epoch                                           TIMES
    u8[rows] numbers, i32[subjects + 1], bytes; without a dictionary i32[rows + 1], bytes        SUBJECTS
    a bit per row that has headers, i32[rows + 1] names, i32[names + 1], the bytes of names,
    i32[names + 1] values, i32[values + 1], the bytes of values                        HEADERS, where a row has some
    i32[rows + 1], bytes                                                               DATA

"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from jetraft.cluster.capture._capture cimport capture_bytes, write_capture_head
from jetraft.cluster.streams.gets._column_buffers cimport closed, padded
from jetraft.cluster.streams.gets._columns cimport (
    HAS_DATA, HAS_HEADERS, HAS_SUBJECTS, HAS_TIMES, HEAD_BYTES, ROW, Cell, Columns,
)
from jetraft.store.frames._frame cimport store_u32, store_u64
from jetraft.store.stream._records cimport RecordReader
from jetraft.store.stream._runs cimport Runs

cdef enum:
    NS_PER_US = 1000

TIMES, SUBJECTS, HEADERS, DATA = HAS_TIMES, HAS_SUBJECTS, HAS_HEADERS, HAS_DATA


def columns_record(RecordReader reader not None, Runs seqs not None, bytes reply not None, *, size_t room, int wanted,
                   uint64_t content_max, uint64_t from_seq, uint64_t to_seq, uint64_t num_pending, uint64_t applied_seq,
                   uint64_t first_seq, int64_t created_ns):
    """The next messages: (capture record, rows, their bytes, the last of them, last sequence looked at, is a row next).

    The record has up to `room` bytes after the reply subject; it is empty when there is no row. `seqs` has all live
    messages from `from_seq` to `to_seq`, and may have more. `num_pending` is the number of messages before the answer.
    `content_max` stops it after the message that reaches it.
    """
    cdef Columns work = Columns(room, wanted)
    cdef uint64_t looked = from_seq - 1
    cdef uint64_t facts[6]
    cdef size_t size
    cdef bytes record
    cdef char *out
    cdef bint is_row = work.gather(reader, seqs, to_seq, content_max, &looked) == ROW
    if not work.rows:
        return b"", 0, 0, 0, looked, is_row
    facts[0] = from_seq
    facts[1] = looked
    facts[2] = num_pending - min(num_pending, <uint64_t>work.rows)
    facts[3] = applied_seq
    facts[4] = first_seq
    facts[5] = <uint64_t>created_ns
    size = size_of(work)
    record = PyBytes_FromStringAndSize(NULL, capture_bytes(len(reply), 0, size))
    out = write_capture_head(PyBytes_AS_STRING(record), len(reply), 0, 0, size, 0)
    memcpy(out, PyBytes_AS_STRING(reply), len(reply))
    write(work, <uint8_t *>out + len(reply), facts)
    return record, work.rows, work.content, work.cells[work.rows - 1].seq, looked, is_row


cdef size_t size_of(Columns work) noexcept:
    """The bytes of the answer; a dictionary that saves nothing is given up."""
    cdef size_t n = work.rows, total = HEAD_BYTES + 8 * n
    cdef size_t plain = padded(4 * (n + 1)) + padded(work.subject_bytes)
    if work.wanted & HAS_TIMES:
        total += 8 * n
    if work.wanted & HAS_SUBJECTS:
        if padded(n) + work.dictionary.size() >= plain:
            work.dictionary.give_up()
        total += padded(n) + work.dictionary.size() if work.dictionary.count else plain
    if work.headers.messages:
        total += padded((n + 7) // 8) + padded(4 * (n + 1)) + work.headers.size()
    if work.wanted & HAS_DATA:
        total += padded(4 * (n + 1)) + padded(work.data_bytes)
    return total



cdef void write(Columns work, uint8_t *out, const uint64_t *facts) noexcept:
    """Write the answer; `facts` are the numbers of the head from the first sequence looked at to the creation."""
    cdef size_t i, n = work.rows
    memset(out, 0, HEAD_BYTES)
    memcpy(out, b"JRCOLS1\n", 8)
    store_u64(out + 8, n)
    memcpy(out + 16, facts, 48)
    store_u32(out + 64, work.wanted & ~HAS_HEADERS | (HAS_HEADERS if work.headers.messages else 0))
    store_u32(out + 68, <uint32_t>work.dictionary.count)
    store_u64(out + 72, work.headers.names)
    store_u64(out + 80, work.headers.values)
    store_u64(out + 88, work.dictionary.text_bytes if work.dictionary.count else work.subject_bytes)
    store_u64(out + 96, work.headers.name_text.used)
    store_u64(out + 104, work.headers.value_text.used)
    store_u64(out + 112, work.data_bytes)
    out += HEAD_BYTES
    for i in range(n):
        store_u64(out + 8 * i, work.cells[i].seq)
    out += 8 * n
    if work.wanted & HAS_TIMES:
        for i in range(n):
            store_u64(out + 8 * i, <uint64_t>(work.cells[i].ts_ns // NS_PER_US))
        out += 8 * n
    if work.wanted & HAS_SUBJECTS:
        out = write_subjects(work, out)
    if work.headers.messages:
        out = write_headers(work, out)
    if work.wanted & HAS_DATA:
        write_data(work, out)


cdef uint8_t *write_subjects(Columns work, uint8_t *out) noexcept:
    cdef size_t i, at = 0
    cdef Cell *cell
    cdef uint8_t *ends
    if work.dictionary.count:
        for i in range(work.rows):
            out[i] = work.cells[i].subject_number
        return work.dictionary.write(closed(out, work.rows))
    ends = out
    out = closed(out, 4 * (work.rows + 1))
    store_u32(ends, 0)
    for i in range(work.rows):
        cell = &work.cells[i]
        memcpy(out + at, cell.subject, cell.subject_len)
        at += cell.subject_len
        store_u32(ends + 4 * (i + 1), <uint32_t>at)
    return closed(out, at)


cdef uint8_t *write_headers(Columns work, uint8_t *out) noexcept:
    cdef size_t i, n = work.rows
    memset(out, 0, padded((n + 7) // 8))
    for i in range(n):
        out[i >> 3] |= work.cells[i].has_headers << (i & 7)
    out += padded((n + 7) // 8)
    store_u32(out, 0)
    for i in range(n):
        store_u32(out + 4 * (i + 1), work.cells[i].names)
    return work.headers.write(closed(out, 4 * (n + 1)))


cdef void write_data(Columns work, uint8_t *out) noexcept:
    cdef size_t i, at = 0
    cdef uint8_t *ends = out
    out = closed(out, 4 * (work.rows + 1))
    store_u32(ends, 0)
    for i in range(work.rows):
        memcpy(out + at, work.cells[i].payload, work.cells[i].payload_len)
        at += work.cells[i].payload_len
        store_u32(ends + 4 * (i + 1), <uint32_t>at)
    closed(out, at)
