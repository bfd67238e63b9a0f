# The bytes of a frame and of a record, for the modules that walk them without making Python objects.
# Layout (little endian): store/frames/format.py. Every function checks each length against the buffer before using it.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef enum:
    FRAME_HEADER_BYTES = 48
    RECORD_HEADER_BYTES = 20
    MARK_BYTES = 32
    SUMMED_VERSION = 2          # of a MESSAGES frame that ends with checksums of its records
    SUM_BYTES = 4
    FRAME_HOLED = 8             # format.FRAME_HOLED


cdef struct FrameHeader:
    uint32_t length             # bytes, header included
    uint32_t crc                # crc32c of bytes 8..length
    uint8_t version
    uint8_t kind                # format.Kind
    uint16_t flags
    uint32_t count              # records in a MESSAGES body
    uint64_t incarnation
    uint64_t log_index
    uint64_t term
    uint64_t first_stream_seq   # of the first record


cdef struct Record:
    size_t offset               # of the record, from the start of its frame
    uint32_t length             # bytes, header included
    uint32_t hdr_len
    uint32_t payload_len
    uint16_t subject_len
    uint16_t flags              # format.RECORD_*
    int64_t ts_ns               # since the Unix epoch
    const uint8_t *subject
    const uint8_t *hdr
    const uint8_t *payload


# The checksum of `size` bytes, continuing from `value`.
cdef uint32_t crc32c_of(const uint8_t *data, size_t size, uint32_t value) noexcept nogil

# Unpack the header of the frame that starts at `data`; False when the frame does not fit into `size` bytes.
cdef bint read_header(const uint8_t *data, size_t size, FrameHeader *out) noexcept nogil

# True when the frame at `data` is complete and its checksum is right.
cdef bint frame_is_sound(const uint8_t *data, size_t size) noexcept nogil

# True when such a frame is the entry of this index and incarnation; `out` has its header then.
cdef bint frame_is(const uint8_t *data, size_t size, uint64_t index, uint64_t incarnation,
                   FrameHeader *out) noexcept nogil

# The number of bytes at the end of an open frame (not sealed, thin or packed) that are checksums of its records.
cdef size_t sums_bytes(const FrameHeader *header) noexcept nogil

# Write the checksums of the records at the end of a MESSAGES frame of `size` bytes, and that of the frame; False when
# the bytes before them are not its records. See store/frames/format.py.
cdef bint sum_records(uint8_t *frame, size_t size) noexcept nogil

# Unpack the record at `offset` of a frame of `size` bytes and return the offset of the next one; 0 when malformed.
# The first record is at FRAME_HEADER_BYTES; the last one ends at the end of the frame, or where its checksums begin.
cdef size_t read_record(const uint8_t *frame, size_t size, size_t offset, Record *out) noexcept nogil

# Write the 20-byte header of a record; subject, hdr and payload follow it.
cdef void write_record_header(uint8_t *out, uint32_t hdr_len, uint32_t payload_len, uint16_t subject_len,
                              uint16_t flags, int64_t ts_ns) noexcept nogil


cdef inline uint16_t load_u16(const uint8_t *data) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, data, 2)
    return value


cdef inline uint32_t load_u32(const uint8_t *data) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, data, 4)
    return value


cdef inline uint64_t load_u64(const uint8_t *data) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, data, 8)
    return value


cdef inline uint32_t record_length(const uint8_t *record) noexcept nogil:
    """The bytes of a record that this process has written, header included."""
    return load_u32(record)


cdef inline uint32_t record_hdr_len(const uint8_t *record) noexcept nogil:
    """The length of its header block."""
    return load_u32(record + 4)


cdef inline uint16_t record_subject_len(const uint8_t *record) noexcept nogil:
    """The length of its subject."""
    return load_u16(record + 8)


cdef inline const uint8_t *record_subject(const uint8_t *record) noexcept nogil:
    """The subject, which follows the header."""
    return record + RECORD_HEADER_BYTES


cdef inline void store_u16(uint8_t *out, uint16_t value) noexcept nogil:
    memcpy(out, &value, 2)


cdef inline void store_u32(uint8_t *out, uint32_t value) noexcept nogil:
    memcpy(out, &value, 4)


cdef inline void store_u64(uint8_t *out, uint64_t value) noexcept nogil:
    memcpy(out, &value, 8)
