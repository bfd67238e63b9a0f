# cython: language_level=3
"""Deliveries that wait for an ack: one row per message, ascending by stream sequence, 32 bytes each.

First deliveries are in ascending order, so rows are only appended; an ack marks its row as dead. Dead rows at the head
are skipped in one step, and when most rows are dead the live ones are compacted, so the table has at most four times
the live rows, and the cost of an ack does not depend on their number. A row is found by its distance from the row of
the last search, because acks mostly come in order, or by binary search.

The replicated state of a consumer and its leader's table of deadlines both use this table; `at_ns` is the Unix time of
the last delivery in the former, the deadline in the latter.

Invariants: seq ascends over all rows; `head` is the first live row, or `end`; live <= end - head.
"""

from array import array

from libc.stdint cimport INT64_MAX, SIZE_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from jetraft.store.stream._runs cimport Run, Runs

cdef enum:
    CAPACITY_MIN = 16               # rows
    FIELDS = 4
    VARINT_BYTES_MAX = 10


cdef class UnackedTable:
    """See the module."""

    def __dealloc__(self):
        free(self.data)

    # --- changes

    def add(self, Runs seqs not None, uint64_t first_consumer_seq, int64_t at_ns):
        """Add first deliveries: sequences above all earlier ones, with consecutive consumer sequences."""
        cdef size_t i
        cdef uint64_t seq, consumer_seq = first_consumer_seq
        cdef Run *run
        self.reserve(seqs.total)
        for i in range(seqs.run_count):
            run = &seqs.runs[i]
            for seq in range(run.first, run.first + run.count):
                self.append_row(seq, consumer_seq, at_ns, 1)
                consumer_seq += 1

    def put(self, uint64_t seq, uint64_t consumer_seq, int64_t at_ns, uint32_t count):
        """Add a row above all earlier ones."""
        assert count > 0
        self.reserve(1)
        self.append_row(seq, consumer_seq, at_ns, count)

    def remove(self, Runs seqs not None):
        """Remove these rows; return the sequences that were live."""
        cdef Runs out = Runs()
        cdef size_t i, place
        cdef uint64_t end
        cdef Unacked *row
        for i in range(seqs.run_count):
            if seqs.runs[i].count == 1:
                row = self.find(seqs.runs[i].first)
                if row != NULL:
                    self.kill(row)
                    out.put(row.seq, 1)
                continue
            end = seqs.runs[i].first + seqs.runs[i].count
            place = self.place_above(seqs.runs[i].first - 1) if seqs.runs[i].first else self.head
            while place < self.end and self.data[place].seq < end:
                if self.data[place].count:
                    self.kill(&self.data[place])
                    out.put(self.data[place].seq, 1)
                place += 1
            self.hint = place
        self.tidy()
        return out

    def remove_up_to(self, uint64_t seq):
        """Remove every row up to and including this sequence; return the sequences that were live."""
        cdef Runs out = Runs()
        cdef size_t place
        for place in range(self.head, self.place_above(seq)):
            if self.data[place].count:
                self.kill(&self.data[place])
                out.put(self.data[place].seq, 1)
        self.tidy()
        return out

    def clear(self):
        """Remove all rows; sequences may start again."""
        free(self.data)
        self.data = NULL
        self.head = self.end = self.capacity = self.live = self.redelivered = self.hint = 0

    def set(self, uint64_t seq, int64_t at_ns, uint32_t count):
        """Change time and count of a live row."""
        cdef Unacked *row = self.find(seq)
        assert row != NULL
        assert count > 0
        self.redelivered += (count > 1) - (row.count > 1)
        row.at_ns = at_ns
        row.count = count

    def set_at(self, Runs seqs not None, int64_t at_ns):
        """Set the time of those of these rows that are live."""
        cdef size_t i
        cdef uint64_t seq
        cdef Unacked *row
        for i in range(seqs.run_count):
            for seq in range(seqs.runs[i].first, seqs.runs[i].first + seqs.runs[i].count):
                row = self.find(seq)
                if row != NULL:
                    row.at_ns = at_ns

    def take_over(self, UnackedTable other not None, waits not None, int64_t now_ns, int64_t now_unix_ns):
        """The live rows of another table, whose times are Unix times of deliveries, with deadlines; this one is empty.

        `waits` are the waits after the first, second, ... delivery, the last one of all later ones; not negative. What
        should have ended is due now, and no wait is longer than a whole one from now on.
        """
        cdef size_t i
        cdef int64_t wait, elapsed
        cdef int64_t[::1] of_count = array("q", waits)
        cdef Unacked *row
        assert self.end == 0
        self.reserve(other.live)
        for i in range(other.head, other.end):
            row = &other.data[i]
            if row.count == 0:
                continue
            wait = of_count[min(row.count, <uint32_t>of_count.shape[0]) - 1]
            elapsed = now_unix_ns - row.at_ns
            if elapsed > 0:
                wait = wait - elapsed if elapsed < wait else 0
            self.append_row(row.seq, row.consumer_seq, later(now_ns, wait), row.count)

    def move(self, before not None, after not None):
        """Change deadlines, where they are, as if these waits had been those: see `take_over`."""
        cdef size_t i
        cdef int64_t[::1] of_before = array("q", before), of_after = array("q", after)
        cdef Unacked *row
        for i in range(self.head, self.end):
            row = &self.data[i]
            if row.count and row.at_ns >= 0:
                row.at_ns = max(0, later(
                    row.at_ns - of_before[min(row.count, <uint32_t>of_before.shape[0]) - 1],
                    of_after[min(row.count, <uint32_t>of_after.shape[0]) - 1],
                ))

    # --- questions

    def get(self, uint64_t seq):
        """(consumer sequence, time, deliveries) of a live row; None when it is not live."""
        cdef Unacked *row = self.find(seq)
        return None if row == NULL else (row.consumer_seq, row.at_ns, row.count)

    def first(self):
        """(consumer sequence, stream sequence) of the lowest live row, None when there is none."""
        return (self.data[self.head].consumer_seq, self.data[self.head].seq) if self.live else None

    def with_at(self, uint64_t first, uint64_t last, int64_t at_ns, uint64_t count_max=UINT64_MAX):
        """The live sequences in first..last with exactly this time, the lowest so many of them."""
        cdef Runs out = Runs()
        cdef size_t place = self.place_above(first - 1) if first else self.head
        while count_max and place < self.end and self.data[place].seq <= last:
            if self.data[place].count and self.data[place].at_ns == at_ns:
                out.put(self.data[place].seq, 1)
                count_max -= 1
            place += 1
        return out

    def rows(self):
        """[(stream sequence, consumer sequence, time, deliveries)] of the live rows, ascending."""
        cdef size_t i
        cdef list out = []
        for i in range(self.head, self.end):
            if self.data[i].count:
                out.append((self.data[i].seq, self.data[i].consumer_seq, self.data[i].at_ns, self.data[i].count))
        return out

    def waits_after(self, uint64_t seq, size_t count_max=SIZE_MAX):
        """[(time, first, last)] of rows above a sequence whose time is not negative, and the last sequence looked at.

        So many rows are looked at; neighbours with one time share an entry. The sequence is None when there are no more.
        """
        cdef size_t i = self.place_above(seq) if seq else self.head
        cdef int64_t at_ns = -1
        cdef uint64_t first = 0, last = 0
        cdef list out = []
        while i < self.end and count_max:
            if self.data[i].count and self.data[i].at_ns >= 0:
                if self.data[i].at_ns != at_ns:
                    if first:
                        out.append((at_ns, first, last))
                    first = self.data[i].seq
                    at_ns = self.data[i].at_ns
                last = self.data[i].seq
            i += 1
            count_max -= 1
        if first:
            out.append((at_ns, first, last))
        return out, self.data[i - 1].seq if i < self.end else None

    def rows_after(self, uint64_t seq, Py_ssize_t count_max):
        """As many of these rows at most, of the sequences above this one."""
        cdef size_t i = self.place_above(seq) if seq else self.head
        cdef list out = []
        while i < self.end and len(out) < count_max:
            if self.data[i].count:
                out.append((self.data[i].seq, self.data[i].consumer_seq, self.data[i].at_ns, self.data[i].count))
            i += 1
        return out

    def has_time(self):
        """Whether any live row has a time, and not one of the negative numbers that stand for something else."""
        cdef size_t i
        for i in range(self.head, self.end):
            if self.data[i].count and self.data[i].at_ns >= 0:
                return True
        return False

    @property
    def num_redelivered(self):
        """Live rows that were delivered more than once."""
        return self.redelivered

    @property
    def memory_bytes(self):
        """Bytes allocated."""
        return self.capacity * sizeof(Unacked)

    def __len__(self):
        return self.live

    def __iter__(self):
        """The live stream sequences, ascending."""
        return iter([row[0] for row in self.rows()])

    def __contains__(self, uint64_t seq):
        return self.find(seq) != NULL

    def __eq__(self, other):
        return self.rows() == other.rows() if isinstance(other, UnackedTable) else NotImplemented

    __hash__ = None

    def __repr__(self):
        return f"UnackedTable({self.rows()})"

    # --- snapshots

    def pack(self):
        """The live rows as bytes: each field as the varint of its difference to the row before (zigzag)."""
        cdef bytearray out = bytearray(self.live * FIELDS * VARINT_BYTES_MAX)
        cdef uint8_t *data = <uint8_t *><char *>out
        cdef size_t length = 0, i
        cdef uint64_t seq = 0, consumer_seq = 0
        cdef int64_t at_ns = 0
        cdef Unacked *row
        for i in range(self.head, self.end):
            row = &self.data[i]
            if row.count == 0:
                continue
            length += put_varint(data + length, row.seq - seq)
            length += put_varint(data + length, zigzag(<int64_t>(row.consumer_seq - consumer_seq)))
            length += put_varint(data + length, zigzag(row.at_ns - at_ns))
            length += put_varint(data + length, row.count)
            seq, consumer_seq, at_ns = row.seq, row.consumer_seq, row.at_ns
        return bytes(out[:length])

    @staticmethod
    def unpack(bytes packed not None):
        """The table that `pack` returned. Raises ValueError when the bytes are damaged."""
        cdef UnackedTable table = UnackedTable()
        cdef const uint8_t *data = <const uint8_t *><char *>packed
        cdef size_t at = 0, end = len(packed)
        cdef uint64_t seq = 0, consumer_seq = 0, gap, count
        cdef int64_t at_ns = 0
        while at < end:
            gap = take_varint(data, end, &at)
            consumer_seq += <uint64_t>unzigzag(take_varint(data, end, &at))
            at_ns += unzigzag(take_varint(data, end, &at))
            count = take_varint(data, end, &at)
            if (gap == 0 and table.end) or seq + gap < seq or not 0 < count <= <uint32_t>-1:
                raise ValueError("a table of unacknowledged messages is damaged")
            seq += gap
            table.reserve(1)
            table.append_row(seq, consumer_seq, at_ns, count)
        return table

    # --- inside

    cdef Unacked *find(self, uint64_t seq) noexcept:
        """The live row of a sequence, NULL for none."""
        cdef size_t place = self.hint
        if not (self.head <= place < self.end and self.data[place].seq == seq):
            if self.live == 0 or seq < self.data[self.head].seq or seq > self.data[self.end - 1].seq:
                return NULL
            place = self.place_above(seq - 1) if seq else self.head
            if self.data[place].seq != seq:
                return NULL
        self.hint = place + 1
        return &self.data[place] if self.data[place].count else NULL

    cdef size_t place_above(self, uint64_t seq) noexcept:
        """The position of the first row above a sequence, from the head on; the end when there is none."""
        cdef size_t low = self.head, high = self.end, middle
        # Mostly there is no gap between the head and a sequence: then their distance is that of the rows.
        if low < high and seq >= self.data[low].seq and seq - self.data[low].seq + 1 < high - low:
            middle = low + (seq - self.data[low].seq) + 1
            if self.data[middle - 1].seq == seq:
                return middle
            high = middle
        while low < high:
            middle = (low + high) // 2
            if self.data[middle].seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int append_row(self, uint64_t seq, uint64_t consumer_seq, int64_t at_ns, uint32_t count) except -1:
        cdef Unacked *row
        assert self.end < self.capacity
        assert self.end == self.head or self.data[self.end - 1].seq < seq, "deliveries ascend"
        row = &self.data[self.end]
        row.seq = seq
        row.consumer_seq = consumer_seq
        row.at_ns = at_ns
        row.count = count
        self.end += 1
        self.live += 1
        self.redelivered += count > 1
        return 0

    cdef int reserve(self, size_t more) except -1:
        cdef size_t capacity
        cdef Unacked *grown
        if self.end + more <= self.capacity:
            return 0
        self.tidy()
        capacity = max(<size_t>CAPACITY_MIN, self.capacity)
        while capacity < self.end + more:
            capacity *= 2
        if capacity != self.capacity:
            grown = <Unacked *>realloc(self.data, capacity * sizeof(Unacked))
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.capacity = capacity
        return 0

    cdef void kill(self, Unacked *row) noexcept:
        self.redelivered -= row.count > 1
        self.live -= 1
        row.count = 0

    cdef void tidy(self) noexcept:
        """Skip dead rows at the head; compact the rows when most are dead, and free unused capacity."""
        cdef size_t i, kept = 0
        cdef Unacked *shrunk
        while self.head < self.end and self.data[self.head].count == 0:
            self.head += 1
        if self.live * 2 > self.end or (self.end < CAPACITY_MIN and self.capacity <= CAPACITY_MIN):
            return
        for i in range(self.head, self.end):
            if self.data[i].count:
                if i != kept:
                    self.data[kept] = self.data[i]
                kept += 1
        self.head = self.hint = 0
        self.end = kept
        if self.capacity > CAPACITY_MIN and self.end * 8 < self.capacity:
            shrunk = <Unacked *>realloc(self.data, self.capacity // 2 * sizeof(Unacked))
            if shrunk != NULL:
                self.data = shrunk
                self.capacity //= 2


cdef inline int64_t later(int64_t at_ns, int64_t wait_ns) noexcept nogil:
    """A time plus a wait, which is not negative; the greatest number when that is later."""
    return INT64_MAX if at_ns > 0 and wait_ns > INT64_MAX - at_ns else at_ns + wait_ns


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int64_t unzigzag(uint64_t value) noexcept nogil:
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)


cdef inline size_t put_varint(uint8_t *out, uint64_t value) noexcept nogil:
    cdef size_t length = 0
    while value >= 0x80:
        out[length] = <uint8_t>(value & 0x7F) | 0x80
        value >>= 7
        length += 1
    out[length] = <uint8_t>value
    return length + 1


cdef uint64_t take_varint(const uint8_t *data, size_t end, size_t *at) except? 0:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end and shift < 64:
        byte = data[at[0]]
        at[0] += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("a table of unacknowledged messages is damaged")
