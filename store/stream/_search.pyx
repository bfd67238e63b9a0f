# cython: language_level=3
"""Questions about messages by patterns of their subjects, answered in steps of a bounded cost.

How long a search takes depends on what a client asks and on the subjects that there are: a pattern whose first token is
a wildcard may have to be compared with all of them. So a search does a part of itself in each step, and says whether
there is more to do. The stream may change between steps: what was removed is not found, what was added may be.

    LastSearch          the last message that is admitted
    LastOfEachSearch    the last message, at or below a sequence, of each subject that is admitted
    NextSearch          the first message, at or above a sequence, that is admitted

A literal is looked up. A pattern walks the tree of subjects, which skips what its tokens rule out. When such walks take
long, the subjects are looked at one by one instead, each with all patterns together.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from jetraft.store.model._patterns cimport PatternTree
from jetraft.store.stream._index cimport Index
from jetraft.store.stream._select cimport FilterSet, is_hidden
from jetraft.store.stream._subjtree cimport IdList, Subject, has_wildcard, text_of

cdef enum:
    WALK_VISITS = 20_000     # of one walk of the tree, about 1 ms; then the subjects are looked at one by one
    LOOK_VISITS = 8          # what a look at one subject with many patterns costs, in visits of a walk
    RECENT_MESSAGES = 1_024  # looked at before the tree: a pattern that admits much is found among them
    FEW_SUBJECTS = 64        # of which each is searched for its next message
    SCAN_PER_VISIT = 4       # messages of a scan with verdicts


cdef class Search:
    """One search; `step` until it returns False."""

    def __init__(self, Index index not None, filters):
        """`filters` has at least one."""
        self.index = index
        self.left = sorted(set(filters), key=is_pattern, reverse=True)

    def step(self, int64_t visits):
        """Visit about so many subjects; True when there is more to do."""
        cdef int64_t given = visits
        while not self.is_over and visits > 0:
            if self.next_id:
                self.look_at_all(&visits)
            else:
                self.look_up(&visits)
        self.spent += given - visits
        return not self.is_over

    def close(self):
        """The search is over, or given up."""

    cdef int take(self, uint32_t subject_id) except -1:
        """A subject is admitted."""
        raise NotImplementedError

    cdef int take_all(self, IdList *ids) except -1:
        """Take those that a walk has found, without what is hidden from filters that do not name it."""
        cdef size_t i
        cdef bytes one = self.left[len(self.left) - 1]
        cdef bint names = one.startswith(b"$")
        for i in range(ids.count):
            if names or not is_hidden(self.index, self.index.tree.at(ids.ids[i])):
                self.take(ids.ids[i])
                if self.is_over:
                    break
        return 0

    cdef int look_up(self, int64_t *visits) except -1:
        """Walk the tree for the next filter."""
        cdef IdList ids
        cdef int64_t used
        cdef bytes one
        if not self.left:
            self.is_over = True
            return 0
        one = self.left[len(self.left) - 1]
        memset(&ids, 0, sizeof(ids))
        try:
            used = self.index.tree.collect_some(PyBytes_AS_STRING(one), len(one), &ids, WALK_VISITS)
            if used < 0:
                visits[0] -= WALK_VISITS
                self.rest = PatternTree(self.left)
                self.next_id, self.ids_of = 1, self.index.anew
                return 0
            visits[0] -= used + 1
            self.take_all(&ids)
            self.left.pop()
        finally:
            free(ids.ids)
        return 0

    cdef int look_at_all(self, int64_t *visits) except -1:
        """Compare the next subjects with all filters that are left."""
        cdef Subject *subject
        cdef uint32_t end = self.index.tree.id_end, subject_id = self.next_id
        cdef bytes name
        if self.ids_of != self.index.anew:      # these are other ids, and few
            self.ids_of, subject_id = self.index.anew, 1
        while subject_id < end and visits[0] > 0 and not self.is_over:
            subject = self.index.tree.at(subject_id)
            visits[0] -= 1
            if subject.count:
                visits[0] -= LOOK_VISITS
                name = text_of(subject)[: subject.length]
                if self.rest.admits(name) and (not is_hidden(self.index, subject) or self.names(name)):
                    self.take(subject_id)
            subject_id += 1
        self.next_id = subject_id
        if subject_id >= end:
            self.is_over = True
        return 0

    def names(self, bytes subject):
        """Whether a filter that may admit what is hidden admits a subject."""
        return PatternTree(one for one in self.left if one.startswith(b"$")).matches(subject)


cdef class LastSearch(Search):
    """`found` is the highest sequence that is admitted, 0 for none."""

    cdef int take(self, uint32_t subject_id) except -1:
        self.found = max(self.found, self.index.tree.at(subject_id).last_seq)
        return 0

    cdef int look_up(self, int64_t *visits) except -1:
        if not self.is_begun:
            self.is_begun = True
            visits[0] -= <int64_t>(min(self.index.messages, <uint64_t>RECENT_MESSAGES) // SCAN_PER_VISIT)
            if self.look_at_recent():
                self.is_over = True
                return 0
        return Search.look_up(self, visits)

    def look_at_recent(self):
        """Whether one of the newest messages is admitted: then it is the last one."""
        cdef Index index = self.index
        cdef PatternTree tree
        cdef uint64_t seq = index.last_seq, end
        cdef uint32_t subject_id
        cdef Subject *subject
        cdef dict known = {}
        cdef bytes name
        if not index.messages or not any(is_pattern(one) for one in self.left):
            return False
        tree = PatternTree(self.left)
        end = max(index.first_seq, seq - RECENT_MESSAGES if seq > RECENT_MESSAGES else 1)
        while seq >= end:
            subject_id = index.chunks.subject_of(seq)
            if subject_id and subject_id not in known:
                subject = index.tree.at(subject_id)
                name = text_of(subject)[: subject.length]
                known[subject_id] = None
                if tree.admits(name) and (not is_hidden(index, subject) or self.names(name)):
                    self.found = seq
                    return True
            seq -= 1
        return False


cdef class LastOfEachSearch(Search):
    """`seqs` of up to `count_max` subjects, and then no more: more than a caller takes need not be counted."""

    def __init__(self, Index index not None, filters, uint64_t up_to_seq, Py_ssize_t count_max):
        Search.__init__(self, index, filters)
        self.up_to_seq = up_to_seq
        self.count_max = count_max
        self.seqs = set()

    cdef int take(self, uint32_t subject_id) except -1:
        cdef uint64_t seq = self.index.last_upto(subject_id, self.up_to_seq)
        if seq:
            self.seqs.add(seq)
            if len(self.seqs) >= self.count_max:
                self.is_over = True
        return 0

    def found(self):
        """The sequences, ascending."""
        return sorted(self.seqs)


cdef class NextSearch(Search):
    """`found` is the lowest sequence at or above a given one that is admitted, 0 for none."""

    def __init__(self, Index index not None, filters, uint64_t from_seq):
        Search.__init__(self, index, filters)
        self.low = max(from_seq, index.first_seq)
        self.filters = FilterSet(index, tuple(filters))

    def close(self):
        self.filters.close()

    cdef int look_up(self, int64_t *visits) except -1:
        """Look at the next messages; then whether there are such subjects at all, and how many."""
        cdef IdList ids
        cdef size_t i
        cdef bytes one
        cdef uint64_t seq
        self.scan(RECENT_MESSAGES, visits)
        if self.is_over or len(self.left) > 1:
            self.next_id = 1
            return 0
        one = self.left[0]
        memset(&ids, 0, sizeof(ids))
        try:
            visits[0] -= WALK_VISITS // 4
            if self.index.tree.collect_some(PyBytes_AS_STRING(one), len(one), &ids, WALK_VISITS) >= 0 and ids.count <= FEW_SUBJECTS:
                self.is_over = True
                for i in range(ids.count):
                    if self.filters.admits(ids.ids[i]):
                        seq = self.index.first_from(ids.ids[i], self.low)
                        if seq and (self.found == 0 or seq < self.found):
                            self.found = seq
            else:
                self.next_id = 1
        finally:
            free(ids.ids)
        return 0

    cdef int look_at_all(self, int64_t *visits) except -1:
        """Go on through the messages."""
        self.scan(<uint64_t>(visits[0] * SCAN_PER_VISIT), visits)
        return 0

    cdef int scan(self, uint64_t count, int64_t *visits) except -1:
        """Look at so many sequences for an admitted message."""
        cdef uint64_t high = min(self.index.last_seq, self.low + count - 1)
        visits[0] -= <int64_t>(count // SCAN_PER_VISIT) + 1
        self.low = max(self.low, self.index.first_seq)
        if self.low > self.index.last_seq:
            self.is_over = True
            return 0
        if high >= self.low:
            self.found = self.filters.first_in(self.low, high)
        self.is_over = self.found != 0 or high >= self.index.last_seq
        self.low = high + 1
        return 0


def is_pattern(bytes one):
    """Whether a filter has a wildcard."""
    return has_wildcard(one, len(one))
