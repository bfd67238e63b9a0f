# cython: language_level=3
"""The Merkle tree over the messages of a stream (RFC 6962, section 2.1): its right edge, as messages are appended.

The leaves are messages in the order of their sequences; what stands in a leaf is in docs/extensions.md, and once more
in `chain.py`. A run of sequences that the stream never had is a leaf too, appended with the message behind it. A hole
of a damaged frame is no message. The edge is one hash for each bit that is set in the number of leaves, so a tree of
any size takes 2 KiB and appending a message costs two hashes on average. Beside it are the hashes of complete subtrees
of CHUNK_LEAVES leaves, 32 bytes each, from which proofs begin. Types: _merkle.pyi.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jetraft.store.frames._frame cimport FRAME_HEADER_BYTES, FrameHeader, Record, read_header, read_record

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_MD
    ctypedef struct EVP_MD_CTX
    EVP_MD *EVP_MD_fetch(void *library, const char *algorithm, const char *properties)
    EVP_MD_CTX *EVP_MD_CTX_new()
    int EVP_DigestInit_ex(EVP_MD_CTX *context, const EVP_MD *kind, void *engine)
    int EVP_DigestUpdate(EVP_MD_CTX *context, const void *data, size_t count)
    int EVP_DigestFinal_ex(EVP_MD_CTX *context, unsigned char *digest, unsigned int *size)

cdef enum:
    HASH_BYTES = 32
    LEVELS = 64             # of a tree whose number of leaves has 64 bits
    CHUNK_LEVEL = 10        # a proof reads two chunks of 2^10 messages at most; 32 bytes for each are kept
    FIXED_BYTES = 22        # of a message's leaf, before its subject: prefix, kind, sequence, time, length
    GAP_BYTES = 18          # of a gap's leaf: prefix, kind, first and last sequence
    LENGTH_BYTES = 4

cdef uint8_t LEAF = 0       # RFC 6962: what is hashed for a leaf begins with 0, for a node with 1
cdef uint8_t NODE = 1
cdef uint8_t MESSAGE = 1    # the kinds of leaves
cdef uint8_t GAP = 2

# One for all trees: they are used with the GIL, one after the other.
cdef EVP_MD *sha256 = EVP_MD_fetch(NULL, "SHA256", NULL)
cdef EVP_MD_CTX *context = EVP_MD_CTX_new()
if sha256 == NULL or context == NULL:
    raise ImportError("OpenSSL has no SHA-256")

CHUNK_LEAVES = 1 << CHUNK_LEVEL


cdef class MerkleTree:
    """The edge, the gaps and the chunks of one stream's tree."""

    cdef uint8_t edge[LEVELS][HASH_BYTES]   # edge[k] is in use where bit k of `size` is set
    cdef readonly uint64_t size             # leaves
    cdef readonly uint64_t next_seq         # above the last message
    cdef readonly list gaps                 # (leaf, first, last), ascending
    cdef readonly bytearray chunks          # the hashes of complete chunks

    def __init__(self):
        self.size = 0
        self.next_seq = 1
        self.gaps = []
        self.chunks = bytearray()

    def append(self, bytes frame not None):
        """Append the messages of a MESSAGES frame, and before each one the run of sequences that is missing."""
        cdef FrameHeader header
        cdef Record record
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(frame)
        cdef size_t at = FRAME_HEADER_BYTES, end = len(frame)
        cdef uint64_t seq
        cdef uint32_t number
        assert read_header(data, end, &header)
        for number in range(header.count):
            at = read_record(data, end, at, &record)
            assert at != 0, "a committed MESSAGES frame holds a malformed record"
            seq = header.first_stream_seq + number
            if record.subject_len == 0 or seq < self.next_seq:
                continue  # a hole (_holes.pyx); a sequence that was used before is in no sound log
            if seq > self.next_seq:
                self.add_gap(self.next_seq, seq - 1)
            self.add_message(seq, &record)
            self.next_seq = seq + 1

    def root(self):
        """The hash of the whole tree, which is that of nothing while it is empty."""
        cdef bytes found = PyBytes_FromStringAndSize(NULL, HASH_BYTES)
        cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(found)
        cdef int level
        cdef bint has_any = False
        if self.size == 0:
            begin()
            finish(out)
            return found
        for level in range(LEVELS):
            if not (self.size >> level) & 1:
                continue
            if has_any:
                node(self.edge[level], out, out)
            else:
                memcpy(out, self.edge[level], HASH_BYTES)
                has_any = True
        return found

    def pack(self):
        """All of it, for `unpack`: leaves, next sequence, edge from the bottom, gaps, chunks."""
        cdef int level
        edge = b"".join([
            PyBytes_FromStringAndSize(<const char *>self.edge[level], HASH_BYTES)
            for level in range(LEVELS) if (self.size >> level) & 1
        ])
        return self.size, self.next_seq, edge, list(self.gaps), bytes(self.chunks)

    @classmethod
    def unpack(cls, state not None):
        """The inverse. Raises ValueError for what is none."""
        cdef MerkleTree tree = cls()
        cdef bytes edge
        cdef int level
        cdef size_t at = 0
        tree.size, tree.next_seq, edge, gaps, chunks = state
        tree.gaps = [(leaf, first, last) for leaf, first, last in gaps]
        tree.chunks = bytearray(chunks)
        if len(edge) != HASH_BYTES * tree.size.bit_count() or len(chunks) != HASH_BYTES * (tree.size >> CHUNK_LEVEL):
            raise ValueError("not the state of a tree")
        for level in range(LEVELS):
            if (tree.size >> level) & 1:
                memcpy(tree.edge[level], <const uint8_t *>PyBytes_AS_STRING(edge) + at, HASH_BYTES)
                at += HASH_BYTES
        return tree

    cdef int add_gap(self, uint64_t first, uint64_t last) except -1:
        cdef uint8_t start[GAP_BYTES]
        cdef uint8_t leaf[HASH_BYTES]
        start[0], start[1] = LEAF, GAP
        store_big(start + 2, first, 8)
        store_big(start + 10, last, 8)
        begin()
        EVP_DigestUpdate(context, start, GAP_BYTES)
        finish(leaf)
        self.gaps.append((self.size, first, last))
        return self.add_leaf(leaf)

    cdef int add_message(self, uint64_t seq, const Record *record) except -1:
        cdef uint8_t start[FIXED_BYTES]
        cdef uint8_t length[LENGTH_BYTES]
        cdef uint8_t leaf[HASH_BYTES]
        start[0], start[1] = LEAF, MESSAGE
        store_big(start + 2, seq, 8)
        store_big(start + 10, <uint64_t>record.ts_ns, 8)
        store_big(start + 18, record.subject_len, LENGTH_BYTES)
        store_big(length, record.hdr_len, LENGTH_BYTES)
        begin()
        EVP_DigestUpdate(context, start, FIXED_BYTES)
        EVP_DigestUpdate(context, record.subject, record.subject_len)
        EVP_DigestUpdate(context, length, LENGTH_BYTES)
        EVP_DigestUpdate(context, record.hdr, record.hdr_len)
        EVP_DigestUpdate(context, record.payload, record.payload_len)
        finish(leaf)
        return self.add_leaf(leaf)

    cdef int add_leaf(self, uint8_t *leaf) except -1:
        """Append a leaf; `leaf` becomes the hash of the largest subtree that it completes."""
        cdef int level = 0
        while (self.size >> level) & 1:
            node(self.edge[level], leaf, leaf)
            level += 1
            if level == CHUNK_LEVEL:
                self.chunks += PyBytes_FromStringAndSize(<const char *>leaf, HASH_BYTES)
        memcpy(self.edge[level], leaf, HASH_BYTES)
        self.size += 1
        return 0


cdef void begin() noexcept:
    EVP_DigestInit_ex(context, sha256, NULL)


cdef void finish(uint8_t *out) noexcept:
    EVP_DigestFinal_ex(context, out, NULL)


cdef void node(const uint8_t *left, const uint8_t *right, uint8_t *out) noexcept:
    """The hash of a node; `out` may be one of its children."""
    cdef uint8_t both[1 + 2 * HASH_BYTES]
    both[0] = NODE
    memcpy(both + 1, left, HASH_BYTES)
    memcpy(both + 1 + HASH_BYTES, right, HASH_BYTES)
    begin()
    EVP_DigestUpdate(context, both, 1 + 2 * HASH_BYTES)
    finish(out)


cdef void store_big(uint8_t *out, uint64_t value, int size) noexcept nogil:
    """An unsigned number in `size` bytes, the highest first."""
    cdef int place
    for place in range(size):
        out[place] = <uint8_t>(value >> (8 * (size - 1 - place)))
