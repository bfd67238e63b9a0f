# cython: language_level=3
"""When messages end that have a time to live: a heap of (end, sequence), 16 bytes each.

A heap of Python's tuples took 153 bytes a message, and its snapshot made and sorted objects for each. Here a snapshot is
written, and read, as the msgpack array of pairs that it always was, without an object for any of them. The turn that
takes it copies the heap, as it is in memory; what is gone is left out, and the rest sorted and written, in any
thread and without the interpreter lock.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy

cdef enum:
    ITEMS_MIN = 8
    PAIR_BYTES_MAX = 19     # the mark of a pair, and two numbers of 9 bytes
    HEAD_BYTES_MAX = 5      # of an array


cdef struct Item:
    int64_t end_ns
    int64_t seq


cdef inline bint is_before(const Item *a, const Item *b) noexcept nogil:
    return a.end_ns < b.end_ns or (a.end_ns == b.end_ns and a.seq < b.seq)


cdef int in_order(const void *a, const void *b) noexcept nogil:
    if is_before(<const Item *>a, <const Item *>b):
        return -1
    return is_before(<const Item *>b, <const Item *>a)


cdef class EndHeap:
    """A heap of (end in ns, sequence), the earliest first."""

    cdef Item *_items
    cdef Py_ssize_t _count, _capacity
    cdef Py_ssize_t _hand       # the place that a sweep looks at next

    def __dealloc__(self):
        free(self._items)

    def __len__(self):
        return self._count

    def push(self, int64_t end_ns, int64_t seq):
        """Add one. Raises MemoryError."""
        self._reserve(self._count + 1)
        self._items[self._count].end_ns = end_ns
        self._items[self._count].seq = seq
        self._count += 1
        self._rise(self._count - 1)

    def first(self):
        """(end, sequence) of the earliest; None when there is none."""
        return (self._items[0].end_ns, self._items[0].seq) if self._count else None

    def pop(self):
        """Remove the earliest and return it. Raises IndexError."""
        if not self._count:
            raise IndexError("nothing ends")
        found = self._items[0].end_ns, self._items[0].seq
        self._count -= 1
        self._items[0] = self._items[self._count]
        self._sink(0)
        return found

    def sweep(self, is_wanted, Py_ssize_t count):
        """Look at so many places, going round, and remove the sequences for which `is_wanted` is false.

        With two places for each that is pushed, what is not wanted is never more than what is, and a little.
        """
        while count and self._count:
            count -= 1
            if self._hand >= self._count:
                self._hand = 0
            if is_wanted(self._items[self._hand].seq):
                self._hand += 1
                continue
            self._count -= 1
            if self._hand < self._count:
                self._items[self._hand] = self._items[self._count]
                self._sink(self._hand)
                self._rise(self._hand)

    def copy(self):
        """What is here now, for a snapshot. Raises MemoryError."""
        cdef EndCopy found = EndCopy()
        if self._count:
            found.items = <Item *>malloc(self._count * sizeof(Item))
            if found.items == NULL:
                raise MemoryError
            memcpy(found.items, self._items, self._count * sizeof(Item))
            found.count = self._count
        return found

    def restore(self, const uint8_t[::1] packed not None):
        """Take what `pack` has written in place of what is here; the sequences with an end of 0, ascending.

        Raises ValueError for anything else than an array of pairs of numbers.
        """
        cdef Reader reader
        cdef Py_ssize_t i, count
        cdef int64_t end_ns, seq
        cdef list before = []
        reader.at = &packed[0] if packed.shape[0] else NULL
        reader.left = packed.shape[0]
        count = read_head(&reader)
        if count < 0 or count > reader.left:
            raise ValueError("not an array of pairs")
        self._count = 0
        self._reserve(count)
        for i in range(count):
            if not read_pair(&reader, &end_ns, &seq):
                raise ValueError(f"pair {i} of {count} is none")
            if end_ns == 0:
                before.append(seq)
                continue
            self._items[self._count].end_ns = end_ns
            self._items[self._count].seq = seq
            self._count += 1
        if reader.left:
            raise ValueError(f"{reader.left} bytes after {count} pairs")
        self._arrange()
        return before

    cdef int _reserve(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t capacity = max(self._capacity, <Py_ssize_t>ITEMS_MIN)
        cdef Item *items
        if count <= self._capacity:
            return 0
        while capacity < count:
            capacity += capacity // 2
        items = <Item *>realloc(self._items, capacity * sizeof(Item))
        if items == NULL:
            raise MemoryError
        self._items, self._capacity = items, capacity
        return 0

    cdef void _arrange(self) noexcept:
        """Make a heap of items in any order."""
        cdef Py_ssize_t i
        for i in range(self._count // 2 - 1, -1, -1):
            self._sink(i)

    cdef void _rise(self, Py_ssize_t place) noexcept:
        cdef Item item = self._items[place]
        cdef Py_ssize_t parent
        while place:
            parent = (place - 1) // 2
            if not is_before(&item, &self._items[parent]):
                break
            self._items[place] = self._items[parent]
            place = parent
        self._items[place] = item

    cdef void _sink(self, Py_ssize_t place) noexcept:
        cdef Item item
        cdef Py_ssize_t child
        if place >= self._count:
            return
        item = self._items[place]
        while True:
            child = 2 * place + 1
            if child >= self._count:
                break
            if child + 1 < self._count and is_before(&self._items[child + 1], &self._items[child]):
                child += 1
            if not is_before(&self._items[child], &item):
                break
            self._items[place] = self._items[child]
            place = child
        self._items[place] = item


cdef class EndCopy:
    """The pairs of a heap at one moment. `pack` may be called once, in any thread."""

    cdef Item *items
    cdef Py_ssize_t count

    def __dealloc__(self):
        free(self.items)

    def __len__(self):
        return self.count

    def pack(self, const uint64_t[::1] before, bytes dead not None, uint64_t first_seq, uint64_t last_seq):
        """A msgpack array of pairs: (0, sequence) of each in `before`, then all others, ascending; what is live.

        `before` is ascending. Live is a sequence from `first_seq` to `last_seq` that is not in `dead`, as
        `MessageIndex.pack_deleted` gives it. Raises MemoryError, and ValueError where `dead` is damaged.
        """
        cdef Py_ssize_t i, count, left = before.shape[0]
        cdef bytes room
        cdef uint8_t *start
        cdef uint8_t *at
        cdef Runs runs
        read_runs(dead, first_seq, &runs)
        with nogil:
            count = 0
            for i in range(self.count):
                if is_live(<uint64_t>self.items[i].seq, first_seq, last_seq, &runs):
                    self.items[count] = self.items[i]
                    count += 1
            qsort(self.items, count, sizeof(Item), in_order)
            self.count = count
            for i in range(left):
                count += is_live(before[i], first_seq, last_seq, &runs)
        room = PyBytes_FromStringAndSize(NULL, HEAD_BYTES_MAX + count * PAIR_BYTES_MAX)
        start = <uint8_t *>PyBytes_AS_STRING(room)
        at = put_head(start, count)
        with nogil:
            for i in range(left):
                if is_live(before[i], first_seq, last_seq, &runs):
                    at = put_number(put_number(put_mark(at), 0), <int64_t>before[i])
            for i in range(self.count):
                at = put_number(put_number(put_mark(at), self.items[i].end_ns), self.items[i].seq)
        free(runs.ends)
        free(self.items)
        self.items = NULL
        self.count = 0
        return memoryview(room)[:at - start]


cdef struct Runs:
    uint64_t *ends      # pairs: the first sequence of a run, and the one behind its last
    Py_ssize_t count    # of runs


cdef int read_runs(bytes packed, uint64_t first_seq, Runs *runs) except -1:
    """Unpack runs of sequences (store/stream/_seqset.pyx)."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t size = len(packed), at = 0
    cdef uint64_t gap, run, seq = first_seq
    runs.count = 0
    runs.ends = <uint64_t *>malloc((size // 2 + 1) * 2 * sizeof(uint64_t))  # a run has two bytes at least
    if runs.ends == NULL:
        raise MemoryError
    with nogil:
        while at < size:
            if not read_varint(data, size, &at, &gap) or not read_varint(data, size, &at, &run) or not run:
                break
            runs.ends[2 * runs.count] = seq + gap
            seq += gap + run
            runs.ends[2 * runs.count + 1] = seq
            runs.count += 1
            if at == size:
                return 0
    if size:
        free(runs.ends)
        raise ValueError("a run of sequences is damaged")
    return 0


cdef bint read_varint(const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, uint64_t *value) noexcept nogil:
    cdef int shift = 0
    value[0] = 0
    while at[0] < size and shift < 64:
        value[0] |= <uint64_t>(data[at[0]] & 0x7f) << shift
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            return True
        shift += 7
    return False


cdef bint is_live(uint64_t seq, uint64_t first_seq, uint64_t last_seq, const Runs *runs) noexcept nogil:
    """Whether a sequence is in no run: before the first that ends behind it."""
    cdef Py_ssize_t low = 0, high = runs.count, middle
    if seq < first_seq or seq > last_seq:
        return False
    while low < high:
        middle = (low + high) // 2
        if runs.ends[2 * middle + 1] > seq:
            high = middle
        else:
            low = middle + 1
    return low == runs.count or runs.ends[2 * low] > seq


# --- msgpack


cdef struct Reader:
    const uint8_t *at
    Py_ssize_t left


cdef inline uint8_t *put_big(uint8_t *at, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        at[i] = <uint8_t>(value >> (8 * (size - 1 - i)))
    return at + size


cdef uint8_t *put_head(uint8_t *at, Py_ssize_t count) noexcept nogil:
    if count < 16:
        at[0] = <uint8_t>(0x90 | count)
        return at + 1
    at[0] = 0xdc if count < 1 << 16 else 0xdd
    return put_big(at + 1, count, 2 if count < 1 << 16 else 4)


cdef inline uint8_t *put_mark(uint8_t *at) noexcept nogil:
    at[0] = 0x92
    return at + 1


cdef uint8_t *put_number(uint8_t *at, int64_t value) noexcept nogil:
    """The shortest form, as msgpack's own packer chooses it."""
    if value >= 0:
        if value < 128:
            at[0] = <uint8_t>value
            return at + 1
        if value < 1 << 8:
            at[0] = 0xcc
            return put_big(at + 1, value, 1)
        if value < 1 << 16:
            at[0] = 0xcd
            return put_big(at + 1, value, 2)
        if value < <int64_t>1 << 32:
            at[0] = 0xce
            return put_big(at + 1, value, 4)
        at[0] = 0xcf
        return put_big(at + 1, value, 8)
    if value >= -32:
        at[0] = <uint8_t>value
        return at + 1
    if value >= -(1 << 7):
        at[0] = 0xd0
        return put_big(at + 1, <uint64_t>value, 1)
    if value >= -(1 << 15):
        at[0] = 0xd1
        return put_big(at + 1, <uint64_t>value, 2)
    if value >= -(<int64_t>1 << 31):
        at[0] = 0xd2
        return put_big(at + 1, <uint64_t>value, 4)
    at[0] = 0xd3
    return put_big(at + 1, <uint64_t>value, 8)


cdef bint read_big(Reader *reader, int size, uint64_t *value) noexcept:
    cdef int i
    if reader.left < size:
        return False
    value[0] = 0
    for i in range(size):
        value[0] = value[0] << 8 | reader.at[i]
    reader.at += size
    reader.left -= size
    return True


cdef Py_ssize_t read_head(Reader *reader) noexcept:
    """How many items an array has; -1 when none begins here."""
    cdef uint64_t mark, count
    if not read_big(reader, 1, &mark):
        return -1
    if mark & 0xf0 == 0x90:
        return mark & 0x0f
    if mark != 0xdc and mark != 0xdd:
        return -1
    return <Py_ssize_t>count if read_big(reader, 2 if mark == 0xdc else 4, &count) else -1


cdef bint read_number(Reader *reader, int64_t *value) noexcept:
    """Whether a number begins here that has 64 bits with a sign."""
    cdef uint64_t mark, found
    cdef int size
    if not read_big(reader, 1, &mark):
        return False
    if mark < 0x80 or mark >= 0xe0:
        value[0] = <int64_t>mark if mark < 0x80 else <int64_t>mark - 256
        return True
    if mark < 0xcc or mark > 0xd3:
        return False
    size = 1 << ((mark - 0xcc) & 3)
    if not read_big(reader, size, &found):
        return False
    if mark >= 0xd0 and size < 8 and found >> (8 * size - 1):
        found |= ~<uint64_t>0 << (8 * size)
    elif mark == 0xcf and found >> 63:
        return False
    value[0] = <int64_t>found
    return True


cdef bint read_pair(Reader *reader, int64_t *end_ns, int64_t *seq) noexcept:
    cdef uint64_t mark
    if not read_big(reader, 1, &mark) or mark != 0x92:
        return False
    return read_number(reader, end_ns) and read_number(reader, seq)
