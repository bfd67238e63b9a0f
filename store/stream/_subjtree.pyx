# cython: language_level=3
"""The live subjects of one stream: name -> id, id -> count, first and last sequence, wildcard filter -> ids.

Two structures share the ids. A hash table finds the id of a literal subject in one probe; every stored message needs
that. A crit-bit tree has the subjects in byte order and visits only those below a filter's literal prefix; listing,
purge and last-per-subject need that. It takes 12 bytes a subject, a token trie 30 and more.

Invariants: ids are dense and start at 1; an id is reused only after its count reached 0 and ID_QUARANTINE_REMOVALS
further messages were removed; tree and table have exactly the ids with a name; results are in byte order, which is
equal on all replicas.

Crit-bit: D. J. Bernstein, cr.yp.to/critbit.html, with 9-bit symbols (a presence bit above each byte), so that a subject
may be the prefix of another and may contain any byte.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from jetraft.store.model._keyed_hash cimport keyed_hash

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef enum:
    LEAF = 0x80000000
    ID_END_MAX = 0x7FFFFFFF
    CAPACITY_MIN = 16
    ADMITTED_ALL = 0xFFFFFFFF  # beyond every position


cdef bint subject_matches(const char *filter, size_t filter_len, const char *subject, size_t subject_len) noexcept nogil:
    """Whether a filter admits a literal subject; `*` is one token, a final `>` one or more."""
    cdef size_t i = 0, j = 0
    while i < filter_len and j < subject_len:
        if filter[i] == b">" and i + 1 == filter_len:
            return True
        if filter[i] == b"*" and (i + 1 == filter_len or filter[i + 1] == b"."):
            i += 1
            while j < subject_len and subject[j] != b".":
                j += 1
        else:
            while i < filter_len and filter[i] != b".":
                if j >= subject_len or subject[j] != filter[i]:
                    return False
                i += 1
                j += 1
            if j < subject_len and subject[j] != b".":
                return False
        if i == filter_len:
            return j == subject_len
        if j == subject_len:
            return False
        i += 1
        j += 1
    return False


cdef size_t refused_at(const char *filter, size_t filter_len, const char *subject, size_t subject_len) noexcept nogil:
    """The position of the byte, or of the end, at which a filter refuses a literal subject; ADMITTED_ALL if it does not.

    Every subject with the same bytes up to and with that position is refused, too.
    """
    cdef size_t i = 0, j = 0
    while i < filter_len and j < subject_len:
        if filter[i] == b">" and i + 1 == filter_len:
            return ADMITTED_ALL
        if filter[i] == b"*" and (i + 1 == filter_len or filter[i + 1] == b"."):
            i += 1
            while j < subject_len and subject[j] != b".":
                j += 1
        else:
            while i < filter_len and filter[i] != b".":
                if j >= subject_len or subject[j] != filter[i]:
                    return j
                i += 1
                j += 1
            if j < subject_len and subject[j] != b".":
                return j
        if i == filter_len:
            return ADMITTED_ALL if j == subject_len else j
        if j == subject_len:
            return j
        i += 1
        j += 1
    return j


cdef size_t literal_prefix_len(const char *filter, size_t filter_len) noexcept nogil:
    """The length of the part before the first wildcard token: all of a literal filter, "foo." of "foo.*.bar"."""
    cdef size_t i, start = 0
    for i in range(filter_len + 1):
        if i == filter_len or filter[i] == b".":
            if i == start + 1 and (filter[start] == b"*" or (filter[start] == b">" and i == filter_len)):
                return start
            start = i + 1
    return filter_len


cdef bint has_wildcard(const char *filter, size_t filter_len) noexcept nogil:
    """Whether a filter can admit more than one subject."""
    return literal_prefix_len(filter, filter_len) < filter_len


cdef inline uint16_t symbol(const char *name, size_t length, size_t position) noexcept nogil:
    """The 9-bit symbol at a position: 0 past the end, else the byte with the presence bit."""
    return (0x100 | <uint8_t>name[position]) if position < length else 0


cdef int push_id(IdList *out, uint32_t subject_id) except -1:
    """Append to an IdList."""
    cdef size_t capacity
    cdef uint32_t *grown
    if out.count == out.capacity:
        capacity = out.capacity * 2 if out.capacity else CAPACITY_MIN
        grown = <uint32_t *>realloc(out.ids, capacity * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        out.ids = grown
        out.capacity = capacity
    out.ids[out.count] = subject_id
    out.count += 1
    return 0


cdef class SubjectTree:
    """The subjects that have live messages."""

    def __cinit__(self):
        self.slot_mask = CAPACITY_MIN - 1
        self.slots = <Slot *>calloc(CAPACITY_MIN, sizeof(Slot))
        self.branch_capacity = CAPACITY_MIN
        self.branches = <Branch *>calloc(self.branch_capacity, sizeof(Branch))
        if self.slots == NULL or self.branches == NULL:
            raise MemoryError
        self.id_end = 1
        self.branch_end = 1
        # Clients choose subjects: the secret hash key of this process prevents them from provoking collisions.
        # No result depends on the order of the table.
        self.seed = <uint64_t><long long>hash("subject table")

    def __dealloc__(self):
        cdef uint32_t i
        cdef size_t stretch
        for i in range(1, self.id_end):
            if self.at(i).length > NAME_NEAR:
                free(<void *>text_of(self.at(i)))
        for stretch in range(self.stretch_count):
            free(self.stretches[stretch])
        free(self.stretches)
        free(self.slots)
        free(self.branches)

    cdef bint shed(self, size_t stretches) noexcept:
        """Free so many stretches of subjects, of a tree that is not used any more; False when none is left."""
        cdef uint32_t i
        while stretches and self.stretch_count:
            self.stretch_count -= 1
            stretches -= 1
            for i in range(max(self.stretch_count << SUBJECT_BITS, 1), self.id_end):
                if self.at(i).length > NAME_NEAR:
                    free(<void *>text_of(self.at(i)))
            self.id_end = min(self.id_end, max(<uint32_t>(self.stretch_count << SUBJECT_BITS), 1))
            free(self.stretches[self.stretch_count])
        return self.stretch_count != 0

    cdef uint32_t code_of(self, const char *name, size_t length) noexcept:
        """The hash of a name. `length` is 1 or more."""
        return <uint32_t>keyed_hash(name, length, self.seed)

    cdef uint32_t find(self, const char *name, size_t length) noexcept:
        """The id of a literal subject, 0 when it has no live message."""
        return self.find_coded(name, length, self.code_of(name, length)) if length else 0

    cdef uint32_t find_coded(self, const char *name, size_t length, uint32_t code) noexcept:
        """The same with a known hash."""
        cdef uint32_t at = code & self.slot_mask
        cdef Subject *subject
        while self.slots[at].id:
            if self.slots[at].hash == code:
                subject = self.at(self.slots[at].id)
                if subject.length == length and memcmp(text_of(subject), name, length) == 0:
                    return self.slots[at].id
            at = (at + 1) & self.slot_mask
        return 0

    cdef uint32_t intern(self, const char *name, size_t length, uint32_t code) except 0:
        """The id of a literal subject, a new one (count 0) when it had none. `length` is 1..65535, `code` its hash."""
        cdef uint32_t subject_id = self.find_coded(name, length, code)
        cdef uint32_t at
        cdef char *far
        cdef Subject *subject
        if subject_id:
            return subject_id
        assert 0 < length <= 0xFFFF
        if (self.live + 1) * 4 > (<uint64_t>self.slot_mask + 1) * 3:
            self._grow_slots()
        if self.id_end >> SUBJECT_BITS == self.stretch_count:
            self._grow_ids()
        far = <char *>malloc(length) if length > NAME_NEAR else NULL
        if length > NAME_NEAR and far == NULL:
            raise MemoryError
        subject_id = self._take_id()
        subject = self.at(subject_id)
        memset(subject, 0, sizeof(Subject))
        if far == NULL:
            memcpy(subject.name, name, length)
        else:
            memcpy(far, name, length)
            memcpy(subject.name, &far, sizeof(far))
            self.far_bytes += length
        subject.length = <uint16_t>length
        subject.hash = code
        self._graft(subject_id)
        at = subject.hash & self.slot_mask
        while self.slots[at].id:
            at = (at + 1) & self.slot_mask
        self.slots[at].hash = subject.hash
        self.slots[at].id = subject_id
        self.live += 1
        return subject_id

    cdef int release(self, uint32_t subject_id) except -1:
        """Remove a subject whose count reached 0.

        Its id is quarantined before it is reused: verdicts and the log of removals (_select.pyx) may still refer to it.
        """
        cdef Subject *subject = self.at(subject_id)
        assert subject.count == 0
        assert subject.length
        self._unslot(subject_id)
        self._prune(subject_id)
        if subject.length > NAME_NEAR:
            free(<void *>text_of(subject))
            self.far_bytes -= subject.length
        subject.length = 0
        subject.first_seq = 0
        subject.last_seq = self.removals
        if self.free_tail:
            self.at(self.free_tail).first_seq = subject_id
        else:
            self.free_head = subject_id
        self.free_tail = subject_id
        self.live -= 1
        return 0

    cdef int collect(self, const char *filter, size_t filter_len, IdList *out) except -1:
        """Append the ids that a filter admits, in byte order of their subjects."""
        self.collect_some(filter, filter_len, out, INT64_MAX)
        return 0

    cdef int64_t collect_some(self, const char *filter, size_t filter_len, IdList *out, int64_t visits) except? -2:
        """The same; the number of subjects that were compared, or -1 when that would be more than `visits`.

        A subject that the filter refuses at one of its bytes rules out all that have the same bytes up to there: what
        lies below the branches behind that byte is passed over.
        """
        cdef size_t prefix_len = literal_prefix_len(filter, filter_len)
        cdef uint32_t node
        cdef IdList stack    # pairs: a node, and the position of the branch above it
        cdef Subject *subject
        cdef int64_t used = 0
        cdef size_t refused
        if prefix_len == filter_len:
            node = self.find(filter, filter_len)
            if node:
                push_id(out, node)
            return 1
        node = self._prefix_top(filter, prefix_len)
        if node == 0:
            return 0
        memset(&stack, 0, sizeof(stack))
        try:
            # An explicit stack, because clients choose the depth of the tree: up to the bits of the longest subject.
            push_id(&stack, 0)
            push_id(&stack, node)
            while stack.count:
                stack.count -= 2
                node = stack.ids[stack.count + 1]
                if not node & LEAF:
                    push_id(&stack, self.branches[node].position)
                    push_id(&stack, self.branches[node].child[1])
                    push_id(&stack, self.branches[node].position)
                    push_id(&stack, self.branches[node].child[0])
                    continue
                if used == visits:
                    return -1
                used += 1
                subject = self.at(node & ~<uint32_t>LEAF)
                refused = refused_at(filter, filter_len, text_of(subject), subject.length)
                if refused == ADMITTED_ALL:
                    push_id(out, node & ~<uint32_t>LEAF)
                    continue
                while stack.count and stack.ids[stack.count - 2] > refused:
                    stack.count -= 2
        finally:
            free(stack.ids)
        return used

    cdef bint admits_all(self, const char *filter, size_t filter_len) noexcept:
        """Whether a filter surely admits all subjects: they begin as it does, and it admits whatever follows."""
        cdef size_t prefix_len = literal_prefix_len(filter, filter_len)
        if prefix_len + 1 != filter_len or filter[prefix_len] != b">":
            return False
        return self.root != 0 and self._prefix_top(filter, prefix_len) == self.root

    def name_of(self, uint32_t subject_id):
        """The subject of a live id."""
        assert 0 < subject_id < self.id_end
        assert self.at(subject_id).length
        return text_of(self.at(subject_id))[: self.at(subject_id).length]

    def count_of(self, uint32_t subject_id):
        """Live messages of an id."""
        assert 0 < subject_id < self.id_end
        return self.at(subject_id).count

    def id_of(self, bytes subject):
        """The id of a literal subject, 0 when it has no live message."""
        return self.find(subject, len(subject))

    def slots_passed(self, bytes subject):
        """How many slots a look-up of this subject reads (for tests)."""
        cdef uint32_t code = self.code_of(subject, len(subject)), at = code & self.slot_mask, passed = 1
        while self.slots[at].id and not (self.slots[at].hash == code and self.at(self.slots[at].id).length == len(subject)
                                         and memcmp(text_of(self.at(self.slots[at].id)), <const char *>subject, len(subject)) == 0):
            at = (at + 1) & self.slot_mask
            passed += 1
        return passed

    def add(self, bytes subject):
        """Intern a subject and count one message on it (for tests and tools; the index does it in C)."""
        cdef uint32_t subject_id
        if not 0 < len(subject) <= 0xFFFF:
            raise ValueError("a subject has 1..65535 bytes")
        subject_id = self.intern(subject, len(subject), self.code_of(subject, len(subject)))
        self.at(subject_id).count += 1
        return subject_id

    def discard(self, bytes subject):
        """Count one message less; the subject is removed with its last one (for tests and tools)."""
        cdef uint32_t subject_id = self.find(subject, len(subject))
        assert subject_id
        self.removals += 1
        self.at(subject_id).count -= 1
        if self.at(subject_id).count == 0:
            self.release(subject_id)

    def match(self, bytes filter):
        """The ids that a filter admits, in byte order of their subjects."""
        cdef IdList out
        cdef size_t i
        memset(&out, 0, sizeof(out))
        try:
            self.collect(filter, len(filter), &out)
            return [out.ids[i] for i in range(out.count)]
        finally:
            free(out.ids)

    def __len__(self):
        return self.live

    @property
    def memory_bytes(self):
        """Bytes allocated."""
        return (
            self.stretch_count * SUBJECT_STRETCH * sizeof(Subject)
            + self.stretch_capacity * sizeof(Subject *)
            + (<size_t>self.slot_mask + 1) * sizeof(Slot)
            + self.branch_capacity * sizeof(Branch)
            + self.far_bytes
        )

    cdef uint32_t _take_id(self) noexcept:
        """A free id whose quarantine has ended, or the next new one; the capacity suffices."""
        cdef uint32_t subject_id = self.free_head
        if subject_id and self.removals - self.at(subject_id).last_seq >= ID_QUARANTINE_REMOVALS:
            self.free_head = <uint32_t>self.at(subject_id).first_seq
            if self.free_head == 0:
                self.free_tail = 0
            return subject_id
        self.id_end += 1
        return self.id_end - 1

    cdef int _grow_ids(self) except -1:
        """Add a stretch; its memory is touched when subjects are added to it."""
        cdef size_t capacity = self.stretch_capacity * 2 if self.stretch_capacity else CAPACITY_MIN
        cdef Subject **grown
        if self.id_end > ID_END_MAX - SUBJECT_STRETCH:
            raise MemoryError("too many subjects in one stream")
        if self.stretch_count == self.stretch_capacity:
            grown = <Subject **>realloc(self.stretches, capacity * sizeof(Subject *))
            if grown == NULL:
                raise MemoryError
            self.stretches = grown
            self.stretch_capacity = capacity
        self.stretches[self.stretch_count] = <Subject *>aligned_alloc(sizeof(Subject), SUBJECT_STRETCH * sizeof(Subject))
        if self.stretches[self.stretch_count] == NULL:
            raise MemoryError
        self.stretch_count += 1
        return 0

    cdef int _grow_slots(self) except -1:
        cdef uint64_t capacity = (<uint64_t>self.slot_mask + 1) * 2
        cdef Slot *fresh = <Slot *>calloc(capacity, sizeof(Slot))
        cdef uint64_t i
        cdef uint32_t at, mask = <uint32_t>(capacity - 1)
        if fresh == NULL:
            raise MemoryError
        for i in range(<uint64_t>self.slot_mask + 1):
            if self.slots[i].id:
                at = self.slots[i].hash & mask
                while fresh[at].id:
                    at = (at + 1) & mask
                fresh[at] = self.slots[i]
        free(self.slots)
        self.slots = fresh
        self.slot_mask = mask
        return 0

    cdef void _unslot(self, uint32_t subject_id) noexcept:
        """Empty the id's slot and close the gap, so that probing needs no tombstones (Knuth 6.4, algorithm R)."""
        cdef uint32_t hole = self.at(subject_id).hash & self.slot_mask
        cdef uint32_t at, home
        while self.slots[hole].id != subject_id:
            hole = (hole + 1) & self.slot_mask
        at = hole
        while True:
            at = (at + 1) & self.slot_mask
            if self.slots[at].id == 0:
                break
            home = self.slots[at].hash & self.slot_mask
            if ((at - home) & self.slot_mask) >= ((at - hole) & self.slot_mask):
                self.slots[hole] = self.slots[at]
                hole = at
        self.slots[hole].id = 0

    cdef int _graft(self, uint32_t subject_id) except -1:
        """Insert a new subject into the crit-bit tree."""
        cdef const char *name = text_of(self.at(subject_id))
        cdef size_t length = self.at(subject_id).length
        cdef size_t position = 0
        cdef uint32_t node = self.root
        cdef uint32_t *link = &self.root
        cdef Subject *near
        cdef const char *theirs_text
        cdef Branch *branch
        cdef Branch *grown
        cdef uint16_t mine, theirs, bit
        cdef int side
        if node == 0:
            self.root = LEAF | subject_id
            return 0
        while not node & LEAF:
            branch = &self.branches[node]
            node = branch.child[1 if symbol(name, length, branch.position) & branch.bit else 0]
        near = self.at(node & ~<uint32_t>LEAF)
        theirs_text = text_of(near)
        while True:
            mine = symbol(name, length, position)
            theirs = symbol(theirs_text, near.length, position)
            if mine != theirs:
                break
            position += 1
        bit = 0x100
        while not (mine ^ theirs) & bit:
            bit >>= 1
        side = 1 if mine & bit else 0
        if self.branch_free == 0 and self.branch_end == self.branch_capacity:
            grown = <Branch *>realloc(self.branches, <size_t>self.branch_capacity * 2 * sizeof(Branch))
            if grown == NULL:
                raise MemoryError
            self.branches = grown
            self.branch_capacity *= 2
        while not link[0] & LEAF:
            branch = &self.branches[link[0]]
            if branch.position > position or (branch.position == position and branch.bit < bit):
                break
            link = &branch.child[1 if symbol(name, length, branch.position) & branch.bit else 0]
        if self.branch_free:
            node = self.branch_free
            self.branch_free = self.branches[node].child[0]
        else:
            node = self.branch_end
            self.branch_end += 1
        branch = &self.branches[node]
        branch.position = <uint16_t>position
        branch.bit = bit
        branch.child[side] = LEAF | subject_id
        branch.child[1 - side] = link[0]
        link[0] = node
        return 0

    cdef void _prune(self, uint32_t subject_id) noexcept:
        """Remove a subject from the crit-bit tree, together with the branch above it."""
        cdef const char *name = text_of(self.at(subject_id))
        cdef size_t length = self.at(subject_id).length
        cdef uint32_t *link = &self.root
        cdef uint32_t *above = NULL
        cdef uint32_t parent
        cdef int side = 0
        while not link[0] & LEAF:
            above = link
            side = 1 if symbol(name, length, self.branches[link[0]].position) & self.branches[link[0]].bit else 0
            link = &self.branches[link[0]].child[side]
        if above == NULL:
            self.root = 0
            return
        parent = above[0]
        above[0] = self.branches[parent].child[1 - side]
        self.branches[parent].child[0] = self.branch_free
        self.branch_free = parent

    cdef uint32_t _prefix_top(self, const char *prefix, size_t length) noexcept:
        """The node with exactly the subjects that start with `prefix` below it; 0 when there is none."""
        cdef uint32_t node = self.root, top = self.root
        cdef Branch *branch
        cdef Subject *subject
        if node == 0:
            return 0
        while not node & LEAF:
            branch = &self.branches[node]
            if branch.position < length:
                node = branch.child[1 if symbol(prefix, length, branch.position) & branch.bit else 0]
                top = node
            else:
                node = branch.child[0]
        subject = self.at(node & ~<uint32_t>LEAF)
        if subject.length < length or memcmp(text_of(subject), prefix, length) != 0:
            return 0
        return top


def matches(bytes filter, bytes subject):
    """Tell whether a literal subject is admitted by a filter; `*` is one token, a final `>` one or more."""
    return subject_matches(filter, len(filter), subject, len(subject))
