# cython: language_level=3
"""Reads messages by sequence: the index has the place, the log returns the verified frame, the record is unpacked in C.

The reader caches the last frame, because messages are mostly read in order. Encoders in other modules
`cimport RecordReader` and copy from the pointers of `fetch` into an output buffer.
"""

from contextlib import suppress

from libc.stdint cimport int64_t, uint8_t, uint64_t

from jetraft.store.stream._chunks cimport Row
from jetraft.store.frames._frame cimport FrameHeader, Record, read_header, read_record
from jetraft.store.stream._index cimport Index
from jetraft.store.stream._runs cimport Runs
from jetraft.store.stream._spans cimport Place

from jetraft.store.port import StoreCorrupt

cimport cython

cdef enum:
    ACK_FIXED_BYTES = 5     # after the prefix of the ack subject of a first delivery: the 1 and four dots


@cython.freelist(256)
cdef class StoredMessage:
    """One stored message. `hdr` is the raw NATS/1.0 block, empty when the message has no headers."""

    def __init__(self, *, uint64_t seq, int64_t ts_ns, bytes subject not None, bytes hdr not None,
                 bytes payload not None):
        self.seq = seq
        self.ts_ns = ts_ns
        self.subject = subject
        self.hdr = hdr
        self.payload = payload

    def __eq__(self, other):
        cdef StoredMessage that
        if not isinstance(other, StoredMessage):
            return NotImplemented
        that = other
        return (
            self.seq == that.seq
            and self.ts_ns == that.ts_ns
            and self.subject == that.subject
            and self.hdr == that.hdr
            and self.payload == that.payload
        )

    def __hash__(self):
        return hash((self.seq, self.ts_ns))

    def __repr__(self):
        return (
            f"StoredMessage(seq={self.seq}, ts_ns={self.ts_ns}, subject={self.subject!r}, hdr={self.hdr!r}, "
            f"payload={self.payload!r})"
        )


cdef class RecordReader:
    """Reads live messages of one index from its log."""

    def __cinit__(self, Index index not None, log):
        self.index = index
        self.log = log

    def load(self, uint64_t seq):
        """The message, None when it is not live. Raises what the log's `frame_at` raises."""
        cdef Record record
        if not self.fetch(seq, &record):
            return None
        return message_of(seq, &record)

    def load_many(self, seqs):
        """The messages of those sequences that are live, in the order given."""
        cdef Record record
        cdef list out = []
        cdef uint64_t seq
        for seq in seqs:
            if self.fetch(seq, &record):
                out.append(message_of(seq, &record))
        return out

    def ts_of(self, uint64_t seq):
        """The timestamp of a live message in ns since the Unix epoch, None when it is not live."""
        cdef Record record
        return record.ts_ns if self.fetch(seq, &record) else None

    def measure(self, Runs seqs not None, uint64_t room_bytes, uint64_t consumer_seq, uint64_t num_pending,
                size_t prefix_bytes):
        """The number of these messages, in this order, whose deliveries fill `room_bytes` or more.

        Returns (messages, their bytes, bytes of the last one); all messages when they take less. A delivery is subject,
        headers, payload and the ack subject of a first delivery: `prefix_bytes`, then the count, both sequences, the
        time and num_pending. `consumer_seq` and `num_pending` are those of the first message. Removed messages count as
        empty.
        """
        cdef Record record
        cdef size_t i
        cdef uint64_t seq, size = 0, filled = 0, count = 0
        for i in range(seqs.run_count):
            for seq in range(seqs.runs[i].first, seqs.runs[i].first + seqs.runs[i].count):
                size = prefix_bytes + ACK_FIXED_BYTES + digits(seq) + digits(consumer_seq + count)
                size += digits(num_pending - count if num_pending > count else 0)
                if self.fetch(seq, &record):
                    size += record.subject_len + record.hdr_len + record.payload_len + digits(<uint64_t>record.ts_ns)
                else:
                    size += 1
                filled += size
                count += 1
                if filled >= room_bytes:
                    return count, filled, size
        return count, filled, size

    def read_ahead(self, uint64_t seq):
        """Read the frame of a message that is likely to be read soon into the cache; nothing when it is not live.

        Errors are ignored: the actual read reports them.
        """
        cdef Place place
        if self.frame is not None and self.first_seq <= seq < self.end_seq:
            return
        if self.index.place_of(seq, &place):
            with suppress(StoreCorrupt, OSError):
                self.log.frame_at(place.block, place.frame_offset)

    def forget(self):
        """Drop the cached frame, because its bytes in the log have changed."""
        self.frame = None

    cdef int fetch(self, uint64_t seq, Record *out) except -1:
        """Unpack the record of a message: 1 when it is live, 0 when not. The pointers are valid until the next call."""
        cdef Place place
        cdef Row row
        cdef FrameHeader header
        if self.frame is not None and self.first_seq <= seq < self.end_seq:
            if not self.index.chunks.row(seq, &row) or row.subject[0] == 0:
                return 0
            place.record_offset = row.offset[0] - self.frame_offset
        else:
            if not self.index.place_of(seq, &place):
                return 0
            self.frame = None
            self.frame = self.log.frame_at(place.block, place.frame_offset)
            self.frame_offset = place.frame_offset
            if not read_header(<const uint8_t *><char *>self.frame, len(self.frame), &header):
                raise StoreCorrupt(f"sequence {seq}: there is no frame at its place")
            self.first_seq = header.first_stream_seq
            self.end_seq = header.first_stream_seq + header.count
            if not self.first_seq <= seq < self.end_seq:
                self.frame = None
                raise StoreCorrupt(f"sequence {seq}: the frame at its place has other sequences")
        if read_record(<const uint8_t *><char *>self.frame, len(self.frame), place.record_offset, out) == 0:
            raise StoreCorrupt(f"sequence {seq}: there is no record at its place")
        return 1


cdef size_t digits(uint64_t value) noexcept nogil:
    """The length of a decimal number."""
    cdef size_t count = 1
    while value >= 10000:
        value //= 10000
        count += 4
    return count + (value >= 10) + (value >= 100) + (value >= 1000)


cdef StoredMessage message_of(uint64_t seq, const Record *record):
    cdef StoredMessage message = StoredMessage.__new__(StoredMessage)
    message.seq = seq
    message.ts_ns = record.ts_ns
    message.subject = (<const char *>record.subject)[: record.subject_len]
    message.hdr = (<const char *>record.hdr)[: record.hdr_len]
    message.payload = (<const char *>record.payload)[: record.payload_len]
    return message
