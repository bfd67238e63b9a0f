"""The messages of an answer in columns: which fit, and where their parts are.

A pass over the stored records keeps pointers into their frames; _column_record.pyx then writes each column, so every byte
is copied once and as much memory is taken as is used. What an answer takes is bounded: its room, ROWS_MAX rows, FRAMES_MAX
frames with FRAME_BYTES_MAX bytes together.

A message that columns cannot hold ends the answer before it: one that is larger than the room, one whose subject or
headers are not UTF-8, one whose header block is unusual, one whose record is damaged. It is sent as a row.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, realloc

from jetraft.cluster.streams.gets._column_buffers cimport is_text
from jetraft.cluster.streams.gets._column_headers cimport UNUSUAL, HeaderColumns
from jetraft.cluster.streams.gets._column_subjects cimport Dictionary
from jetraft.store.frames._frame cimport Record
from jetraft.store.stream._records cimport RecordReader
from jetraft.store.stream._runs cimport Runs

from jetraft.store.port import StoreCorrupt

cdef enum:
    ROWS_MAX = 16384                # of one answer
    FRAMES_MAX = 512                # from which one answer takes its messages: a cold one costs some 20 us
    FRAME_BYTES_MAX = 4 << 20       # of these: they stay in memory while the answer is made, and opening takes time
    CELLS_FIRST = 512
    SLACK_BYTES = 192               # the first offset and the padding of each buffer
    ROW_BYTES = 29                  # sequence, time, three offsets, a bit


cdef class Columns:
    """The work of one answer."""

    def __cinit__(self, size_t room, int wanted):
        assert room > HEAD_BYTES + SLACK_BYTES
        self.room = room - HEAD_BYTES - SLACK_BYTES
        self.wanted = wanted
        self.frames = []
        self.headers = HeaderColumns()
        self.dictionary = Dictionary()

    def __dealloc__(self):
        free(self.cells)

    cdef Outcome gather(self, RecordReader reader, Runs seqs, uint64_t to_seq, uint64_t content_max,
                        uint64_t *looked) except FAILED:
        """Collect messages until the answer is full or there are no more; `looked` becomes the last sequence seen."""
        cdef Record record
        cdef Outcome outcome
        cdef size_t i
        cdef uint64_t seq
        try:
            for i in range(seqs.run_count):
                for seq in range(seqs.runs[i].first, seqs.runs[i].first + seqs.runs[i].count):
                    if seq > to_seq:
                        looked[0] = to_seq
                        return FULL
                    if self.rows == ROWS_MAX or self.content >= content_max:
                        return FULL
                    if reader.fetch(seq, &record):
                        outcome = self.add(seq, &record) if self.hold(reader.frame) else FULL
                        if outcome != ADDED:
                            return FULL if outcome == FULL and self.rows else ROW
                    looked[0] = seq
        except StoreCorrupt:
            return ROW
        looked[0] = to_seq
        return FULL

    cdef bint hold(self, bytes frame) except -1:
        """Keep the frame of the next message; False when the answer has enough of them."""
        if self.frame is not frame:
            if self.rows and (len(self.frames) >= FRAMES_MAX or self.frame_bytes >= FRAME_BYTES_MAX):
                return False
            self.frame = frame
            self.frames.append(frame)
            self.frame_bytes += PyBytes_GET_SIZE(frame)
        return True

    cdef Outcome add(self, uint64_t seq, const Record *record) except FAILED:
        """Add a row."""
        cdef Cell *cell
        cdef size_t cost = ROW_BYTES
        cdef int has_headers = 0
        if self.wanted & HAS_SUBJECTS:
            cost += record.subject_len
            if not is_text(record.subject, record.subject_len):
                return ROW
        if self.wanted & HAS_DATA:
            cost += record.payload_len
        if cost > self.room:
            return FULL
        if self.wanted & HAS_HEADERS and record.hdr_len:
            has_headers = self.headers.take(record.hdr, record.hdr_len, self.room - cost, &cost)
            if has_headers < 0:
                return ROW if has_headers == UNUSUAL else FULL
        if self.rows == self.capacity:
            self.grow()
        cell = &self.cells[self.rows]
        cell.seq = seq
        cell.ts_ns = record.ts_ns
        cell.subject = record.subject
        cell.subject_len = record.subject_len
        cell.payload = record.payload
        cell.payload_len = record.payload_len if self.wanted & HAS_DATA else 0
        cell.names = self.headers.names
        cell.has_headers = <uint8_t>has_headers
        if self.wanted & HAS_SUBJECTS:
            cell.subject_number = self.dictionary.number(record.subject, record.subject_len)
            self.subject_bytes += record.subject_len
        self.data_bytes += cell.payload_len
        self.room -= cost
        self.content += <uint64_t>record.subject_len + record.hdr_len + record.payload_len
        self.rows += 1
        return ADDED

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else CELLS_FIRST
        cdef Cell *cells = <Cell *>realloc(self.cells, capacity * sizeof(Cell))
        if cells == NULL:
            raise MemoryError
        self.cells = cells
        self.capacity = capacity
        return 0
