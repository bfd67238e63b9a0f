# cython: language_level=3
"""A queue of message ids with a hash table over it: the data structure of the window of duplicates.

An entry takes 24 bytes, its id, and 4 to 8 bytes of hash table; as Python objects it took 300. Entries are stored in
chunks that are freed as the window moves. Their numbers only increase; a slot of the table is a number modulo
SLOT_MODULUS plus 1, or 0 if empty (open addressing, linear probing, deletion by shifting back). The hash is Python's
keyed hash for bytes, so clients cannot choose ids that collide. No result depends on the order of the table.

Invariants: `first <= number < end` for all entries; an id that was stored twice has two entries, and the table refers
to the newer one.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

cdef enum:
    CHUNK_ENTRIES = 1024
    IDS_BYTES_MIN = 4096    # of the ids of a chunk; grows by a quarter
    VARINTS_MAX = 25        # of a packed entry: sequence and time 10 each, length 5
    TABLE_MIN = 64          # slots; doubles when three quarters are taken

cdef uint64_t SLOT_MODULUS = 0xFFFFFFFF  # more than the number of entries at any time

cdef struct Entry:
    uint64_t seq            # stream sequence
    int64_t ts_ns           # of the message
    uint32_t hash           # low half
    uint32_t id_end         # where its id ends in the chunk's ids; it begins where the one before it ends

cdef struct Chunk:
    Entry entries[CHUNK_ENTRIES]
    char *ids
    uint32_t ids_capacity


cdef char *put_varint(char *out, uint64_t value) noexcept nogil:
    """Seven bits a byte, the low ones first; 2**64 - 1 takes ten."""
    while value >= 0x80:
        out[0] = <char>(value & 0x7F | 0x80)
        out += 1
        value >>= 7
    out[0] = <char>value
    return out + 1


cdef const char *get_varint(const char *at, const char *end, uint64_t *value) noexcept nogil:
    """Read a varint; NULL when it does not end before `end`, or `at` is NULL."""
    cdef int shift = 0
    value[0] = 0
    while at != NULL and at < end and shift < 64:
        value[0] |= <uint64_t>(at[0] & 0x7F) << shift
        if not at[0] & 0x80:
            return at + 1
        at += 1
        shift += 7
    return NULL


cdef class IdWindow:
    """See the module. store/stream/dedup.py handles timestamps and limits."""

    cdef Chunk **chunks             # chunk 0 holds entry number `first`
    cdef size_t chunk_count, chunk_capacity
    cdef uint64_t first, end        # numbers of the oldest entry and of the next one
    cdef uint32_t *table
    cdef size_t mask                # slots - 1
    cdef readonly size_t known      # ids that are known

    def __cinit__(self):
        self.table = <uint32_t *>calloc(TABLE_MIN, sizeof(uint32_t))
        if self.table == NULL:
            raise MemoryError
        self.mask = TABLE_MIN - 1

    def __dealloc__(self):
        self.drop_chunks(self.chunk_count)
        free(self.chunks)
        free(self.table)

    def get(self, bytes msg_id):
        """(sequence, timestamp) with which the id was last stored; None when it is not known."""
        cdef uint32_t slot = self.table[self.find(msg_id, <uint32_t>hash(msg_id))]
        cdef Entry *entry
        if slot == 0:
            return None
        entry = self.entry(self.number(slot))
        return entry.seq, entry.ts_ns

    def add(self, bytes msg_id, uint64_t seq, int64_t ts_ns):
        """Add an id, which may be known already."""
        cdef uint32_t low = <uint32_t>hash(msg_id)
        cdef Chunk *chunk = self.chunk_for(len(msg_id))
        cdef size_t at = self.end % CHUNK_ENTRIES
        cdef uint32_t start = chunk.entries[at - 1].id_end if at else 0
        cdef size_t place
        if (self.known + 1) * 4 > (self.mask + 1) * 3:
            self.grow_table()
        place = self.find(msg_id, low)
        self.known += self.table[place] == 0
        self.table[place] = <uint32_t>(self.end % SLOT_MODULUS) + 1
        memcpy(chunk.ids + start, <char *>msg_id, len(msg_id))
        chunk.entries[at] = Entry(seq, ts_ns, low, start + <uint32_t>len(msg_id))
        self.end += 1

    def last_ts_ns(self):
        """Timestamp of the newest entry, None when there is none."""
        return self.entry(self.end - 1).ts_ns if self.end > self.first else None

    def forget_before(self, int64_t horizon_ts_ns, uint64_t count_max=UINT64_MAX):
        """Remove the entries older than the horizon, so many at most; return how many ids are no longer known."""
        cdef size_t before = self.known
        while count_max and self.first < self.end and self.entry(self.first).ts_ns < horizon_ts_ns:
            count_max -= 1
            self.forget_slot(self.first)
            self.first += 1
            if self.first % CHUNK_ENTRIES == 0:
                self.drop_chunks(1)
        if self.first == self.end:
            self.clear()
        return before - self.known

    def clear(self):
        """Remove all entries and free their memory."""
        self.drop_chunks(self.chunk_count)
        self.first = self.end = 0
        self.known = 0
        self.resize_table(TABLE_MIN)

    def pack(self):
        """The known ids in the order of storing, for `unpack`: per id the steps of sequence and time, length, bytes."""
        cdef uint64_t number, seq = 0, ts_ns = 0
        cdef size_t size = 0
        cdef Entry *entry
        cdef uint32_t start
        cdef bytes packed
        cdef char *out
        cdef char *begin
        for number in range(self.first, self.end):
            size += VARINTS_MAX + self.entry(number).id_end - self.id_start(number)
        begin = out = <char *>malloc(size + 1)
        if begin == NULL:
            raise MemoryError
        for number in range(self.first, self.end):
            if self.slot_of(number) > self.mask:
                continue
            entry, start = self.entry(number), self.id_start(number)
            out = put_varint(out, entry.seq - seq)
            out = put_varint(out, <uint64_t>entry.ts_ns - ts_ns)
            out = put_varint(out, entry.id_end - start)
            memcpy(out, self.chunk(number).ids + start, entry.id_end - start)
            out += entry.id_end - start
            seq, ts_ns = entry.seq, <uint64_t>entry.ts_ns
        packed = begin[:out - begin]
        free(begin)
        return packed

    def unpack(self, bytes packed):
        """Add the ids that `pack` returned. Raises ValueError when the bytes are damaged."""
        cdef const char *at = <char *>packed
        cdef const char *end = at + len(packed)
        cdef uint64_t seq = 0, ts_ns = 0, step = 0, id_len = 0
        while at < end:
            at = get_varint(get_varint(at, end, &step), end, &id_len)
            seq, ts_ns = seq + step, ts_ns + id_len
            at = get_varint(at, end, &id_len)
            if at == NULL or id_len > <uint64_t>(end - at):
                raise ValueError("the ids of a window of duplicates are damaged")
            self.add(at[:id_len], seq, <int64_t>ts_ns)
            at += id_len

    @property
    def memory_bytes(self):
        """Bytes allocated."""
        cdef size_t total = (self.mask + 1) * sizeof(uint32_t) + self.chunk_capacity * sizeof(Chunk *)
        cdef size_t i
        for i in range(self.chunk_count):
            total += sizeof(Chunk) + self.chunks[i].ids_capacity
        return total

    # -- entries

    cdef Chunk *chunk(self, uint64_t number) noexcept:
        return self.chunks[number // CHUNK_ENTRIES - self.first // CHUNK_ENTRIES]

    cdef Entry *entry(self, uint64_t number) noexcept:
        return &self.chunk(number).entries[number % CHUNK_ENTRIES]

    cdef uint32_t id_start(self, uint64_t number) noexcept:
        return self.entry(number - 1).id_end if number % CHUNK_ENTRIES else 0

    cdef Chunk *chunk_for(self, size_t id_len) except NULL:
        """The chunk of the next entry, with enough capacity for its id."""
        cdef size_t at = self.end % CHUNK_ENTRIES
        cdef size_t size
        cdef Chunk *chunk
        cdef char *ids
        if at == 0 or self.chunk_count == 0:
            self.new_chunk()
        chunk = self.chunk(self.end)
        size = (chunk.entries[at - 1].id_end if at else 0) + id_len
        if size > chunk.ids_capacity or chunk.ids == NULL:  # memcpy needs a valid pointer even for an empty id
            size = max(size, chunk.ids_capacity + chunk.ids_capacity // 4, IDS_BYTES_MIN)
            ids = <char *>realloc(chunk.ids, size)
            if ids == NULL:
                raise MemoryError
            chunk.ids, chunk.ids_capacity = ids, <uint32_t>size
        return chunk

    cdef int new_chunk(self) except -1:
        cdef Chunk **chunks
        cdef Chunk *chunk
        if self.chunk_count == self.chunk_capacity:
            chunks = <Chunk **>realloc(self.chunks, (2 * self.chunk_capacity + 4) * sizeof(Chunk *))
            if chunks == NULL:
                raise MemoryError
            self.chunks, self.chunk_capacity = chunks, 2 * self.chunk_capacity + 4
        chunk = <Chunk *>calloc(1, sizeof(Chunk))
        if chunk == NULL:
            raise MemoryError
        self.chunks[self.chunk_count] = chunk
        self.chunk_count += 1
        return 0

    cdef void drop_chunks(self, size_t count) noexcept:
        """Free the oldest chunks."""
        cdef size_t i
        for i in range(count):
            free(self.chunks[i].ids)
            free(self.chunks[i])
        self.chunk_count -= count
        if count and self.chunk_count:
            memmove(self.chunks, self.chunks + count, self.chunk_count * sizeof(Chunk *))

    # -- the table

    cdef uint64_t number(self, uint32_t slot) noexcept:
        """The number of the entry of a slot: the only one in the window with this remainder."""
        return self.first + (slot - 1 + SLOT_MODULUS - self.first % SLOT_MODULUS) % SLOT_MODULUS

    cdef size_t find(self, bytes msg_id, uint32_t low) noexcept:
        """The place of the id in the table, or the empty place where it belongs."""
        cdef size_t place = low & self.mask
        cdef uint64_t number
        cdef Entry *entry
        cdef uint32_t start
        while self.table[place] != 0:
            number = self.number(self.table[place])
            entry = self.entry(number)
            if entry.hash == low:
                start = self.id_start(number)
                if entry.id_end - start == <size_t>len(msg_id) and memcmp(
                    self.chunk(number).ids + start, <char *>msg_id, len(msg_id)
                ) == 0:
                    break
            place = (place + 1) & self.mask
        return place

    cdef size_t slot_of(self, uint64_t number) noexcept:
        """The place of this entry in the table; beyond the mask when a newer entry of the same id has replaced it."""
        cdef uint32_t slot = <uint32_t>(number % SLOT_MODULUS) + 1
        cdef size_t place = self.entry(number).hash & self.mask
        while self.table[place] != slot:
            if self.table[place] == 0:
                return self.mask + 1
            place = (place + 1) & self.mask
        return place

    cdef void forget_slot(self, uint64_t number) noexcept:
        """Remove an entry from the table, and move the following ones that could no longer be found."""
        cdef size_t hole = self.slot_of(number)
        cdef size_t place = hole
        cdef size_t home
        if hole > self.mask:
            return
        self.known -= 1
        while True:
            place = (place + 1) & self.mask
            if self.table[place] == 0:
                break
            home = self.entry(self.number(self.table[place])).hash & self.mask
            if ((place - home) & self.mask) >= ((place - hole) & self.mask):
                self.table[hole] = self.table[place]
                hole = place
        self.table[hole] = 0

    cdef int grow_table(self) except -1:
        """Double the number of slots."""
        cdef uint32_t *old = self.table
        cdef size_t slots = self.mask + 1
        cdef size_t i, place
        cdef uint32_t *table = <uint32_t *>calloc(2 * slots, sizeof(uint32_t))
        if table == NULL:
            raise MemoryError
        self.table, self.mask = table, 2 * slots - 1
        for i in range(slots):
            if old[i] != 0:
                place = self.entry(self.number(old[i])).hash & self.mask
                while table[place] != 0:
                    place = (place + 1) & self.mask
                table[place] = old[i]
        free(old)
        return 0

    cdef int resize_table(self, size_t slots) except -1:
        """Replace the table by an empty one."""
        cdef uint32_t *table = <uint32_t *>calloc(slots, sizeof(uint32_t))
        if table == NULL:
            raise MemoryError
        free(self.table)
        self.table, self.mask = table, slots - 1
        return 0
