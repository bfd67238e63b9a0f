# cython: language_level=3
"""Subject filters of consumers, purges and readers: the sequences that a set of filters admits.

A single filter without wildcards follows the chain of its subject. Several filters, or wildcards, are evaluated once
per subject; the verdict is stored by subject id, so a scan costs one look-up a message. Without a filter, a search only
skips removed messages.

A count is incremental: appended messages are added, removed ones are taken from the index's log of removals, and the
range by which the reader has moved is counted. It starts over when that is cheaper, or when the log of removals has
overflowed. So num_pending is always exact, and its cost is proportional to the changes. (nats-server has redundant
counters in the consumer, which were wrong: issues 5608, 4539, 8140.)
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from jetraft.store.stream._chunks cimport Stretch, seq_in
from jetraft.store.stream._index cimport REMOVED_LOG_MESSAGES, Index, Removed
from jetraft.store.stream._runs cimport Runs, runs_of_any
from jetraft.store.stream._subjtree cimport IdList, Subject, has_wildcard, subject_matches, text_of

cdef enum:
    UNASKED = 0
    REFUSED = 1
    ADMITTED = 2
    # Costs, in units of one message of a scan with verdicts:
    COST_SUBJECT = 4        # one subject's count in the table of ids
    COST_LINK = 16          # one link of a chain, a cache miss
    SCAN_EQUAL_PER_COST = 8  # messages of one vector comparison
    FILTERS_ONE_BY_ONE = 8  # more are a tree: a walk down it costs as much as comparing with so many


cdef bint is_hidden(Index index, const Subject *subject) except -1:
    """Whether only a filter that names it admits this subject."""
    if index.hidden is None or subject.length < len(index.hidden):
        return False
    return memcmp(text_of(subject), PyBytes_AS_STRING(index.hidden), len(index.hidden)) == 0


cdef class FilterSet(Verdicts):
    """A set of subject filters over one index; a message is admitted when any of them admits its subject."""

    def __cinit__(self, Index index, tuple filters):
        cdef bytes one
        self.index = index
        self.filters = filters
        self.mode = Mode.SEVERAL
        if not filters or (b">" in filters and index.hidden is None):
            self.mode = Mode.EVERYTHING
        elif len(filters) == 1:
            one = filters[0]
            if not has_wildcard(one, len(one)):
                self.mode = Mode.ONE_SUBJECT
        if self.mode != Mode.EVERYTHING:
            index.watch(self)
        if len(filters) > FILTERS_ONE_BY_ONE:
            self.open_tree = PatternTree(filters)
            self.hidden_tree = PatternTree([one for one in filters if one.startswith(b"$")])

    def close(self):
        """Stop following the index; the set must not be used any more."""
        if self.mode != Mode.EVERYTHING:
            self.index.unwatch(self)

    def next_match(self, uint64_t from_seq):
        """The lowest admitted sequence at or above `from_seq`, None when there is none."""
        cdef uint64_t found = self.find(from_seq)
        return found if found else None

    def next_matches(self, uint64_t from_seq, Py_ssize_t count):
        """Up to `count` admitted sequences at or above `from_seq`, ascending; fewer only when there are no more."""
        return list(self.next_runs(from_seq, count))

    def next_runs(self, uint64_t from_seq, Py_ssize_t count):
        """The same as Runs, without an object for each message."""
        cdef Runs out = Runs()
        cdef Index index = self.index
        cdef uint32_t subject_id = self._subject_id() if self.mode == Mode.ONE_SUBJECT else 0
        cdef uint64_t seq = self.find(from_seq) if count > 0 else 0
        if seq and self.mode == Mode.EVERYTHING:
            return self._live_from(seq, count)
        while seq:
            out.put(seq, 1)
            count -= 1
            if count == 0:
                break
            if self.mode == Mode.ONE_SUBJECT:
                seq = index.follow(seq, subject_id)
            else:
                seq = self._scan(seq + 1, index.last_seq)
        return out

    def num_pending(self, uint64_t from_seq):
        """The exact number of admitted messages at or above `from_seq`."""
        cdef uint64_t low = max(from_seq, self.index.first_seq)
        if self.mode == Mode.EVERYTHING:
            return self.index.count_all(low)
        if low > self.index.last_seq:
            return 0
        self.count = self._count_continued(low)
        self.count_from = low
        self.count_upto = self.index.last_seq
        self.count_removals = self.index.tree.removals
        self.counted = True
        self.index.watch_removals()
        return self.count

    def remove_matching(self, uint64_t below_seq, uint64_t count_max):
        """Remove up to `count_max` admitted messages below `below_seq`, the oldest first; return how many."""
        cdef uint64_t removed = 0, low = 0, seq
        cdef uint32_t subject_id
        cdef Subject *subject
        if self.mode == Mode.EVERYTHING and count_max >= self.index.messages:
            return self.index.remove_below(below_seq)
        if self.mode == Mode.ONE_SUBJECT:
            subject_id = self._subject_id()
            subject = self.index.tree.at(subject_id) if subject_id else NULL
            if subject != NULL and self.index.large <= subject.count <= count_max:
                if min(subject.last_seq, below_seq) - subject.first_seq < COST_LINK * subject.count:
                    return self.index.drop_subject(subject_id, below_seq)
        while removed < count_max:
            seq = self.find(low)
            if seq == 0 or seq >= below_seq:
                break
            self.index.drop(seq)
            removed += 1
            low = seq + 1
        return removed

    def last_per_subject(self, uint64_t up_to_seq):
        """The last message at or below `up_to_seq` of each admitted subject."""
        cdef IdList ids
        cdef size_t i, count = 0
        cdef uint64_t seq
        cdef uint64_t *seqs = NULL
        cdef bytes one
        if self.index.messages == self.index.tree.live and up_to_seq >= self.index.last_seq and self._admits_all():
            return self._live_from(self.index.first_seq, self.index.messages)  # one of each: a bucket without a history
        memset(&ids, 0, sizeof(ids))
        try:
            for one in (self.filters if self.mode != Mode.EVERYTHING else (b">",)):
                self.index.tree.collect(one, len(one), &ids)
            seqs = <uint64_t *>malloc(max(ids.count, <size_t>1) * sizeof(uint64_t))
            if seqs == NULL:
                raise MemoryError
            for i in range(ids.count):
                if self.index.hidden is not None and self.mode != Mode.EVERYTHING and not self.admits(ids.ids[i]):
                    continue
                seq = self.index.last_upto(ids.ids[i], up_to_seq)
                if seq:
                    seqs[count] = seq
                    count += 1
            return runs_of_any(seqs, count)
        finally:
            free(ids.ids)
            free(seqs)

    cdef bint _admits_all(self) except -1:
        cdef bytes one
        if self.mode == Mode.EVERYTHING:
            return True
        if self.index.hidden is not None:
            return False
        for one in self.filters:
            if self.index.tree.admits_all(one, len(one)):
                return True
        return False

    cdef Runs _live_from(self, uint64_t from_seq, uint64_t count):
        """The first live sequences from one on, so many at most."""
        cdef Runs out = Runs()
        cdef Index index = self.index
        cdef uint64_t high, dead, seq = index.chunks.find_live(from_seq, index.last_seq) if count else 0
        while seq:
            high = seq + min(count - 1, index.last_seq - seq)
            dead = index.chunks.find_dead(seq, high)
            high = dead - 1 if dead else high
            out.put(seq, high - seq + 1)
            count -= high - seq + 1
            seq = index.chunks.find_live(high + 1, index.last_seq) if count else 0
        return out

    def last_match(self):
        """The highest admitted sequence, None when there is none."""
        cdef IdList ids
        cdef size_t i
        cdef uint64_t highest = 0
        cdef bytes one
        if self.mode == Mode.EVERYTHING:
            highest = self.index.last_live()
            return highest if highest else None
        memset(&ids, 0, sizeof(ids))
        try:
            for one in self.filters:
                self.index.tree.collect(one, len(one), &ids)
            for i in range(ids.count):
                if self.index.hidden is not None and not self.admits(ids.ids[i]):
                    continue
                highest = max(highest, self.index.tree.at(ids.ids[i]).last_seq)
        finally:
            free(ids.ids)
        return highest if highest else None

    cdef bint admits(self, uint32_t subject_id) except -1:
        """Whether the filters admit a subject; evaluated once per subject."""
        cdef Subject *subject
        cdef bytes one
        cdef uint8_t verdict = REFUSED
        if subject_id >= self.verdict_end:
            self.cover(self.index.tree.id_end)
        if self.verdicts[subject_id] == UNASKED:
            subject = self.index.tree.at(subject_id)
            if subject.length == 0:
                return False
            if self.open_tree is not None:
                self.verdicts[subject_id] = ADMITTED if self.matches_many(subject) else REFUSED
                return self.verdicts[subject_id] == ADMITTED
            for one in self.filters:
                if not one.startswith(b"$") and is_hidden(self.index, subject):
                    continue
                if subject_matches(one, len(one), text_of(subject), subject.length):
                    verdict = ADMITTED
                    break
            self.verdicts[subject_id] = verdict
        return self.verdicts[subject_id] == ADMITTED

    cdef bint matches_many(self, const Subject *subject) except -1:
        """Whether one of many filters admits a subject."""
        cdef bytes name = text_of(subject)[: subject.length]
        return (self.hidden_tree if is_hidden(self.index, subject) else self.open_tree).admits(name)

    cdef int ask_everyone(self) except -1:
        """Evaluate the filters for all subjects before a long scan: in the order of ids, accesses are sequential."""
        cdef uint32_t subject_id
        if not self.asked:
            for subject_id in range(1, self.index.tree.id_end):
                if self.index.tree.at(subject_id).count:
                    self.admits(subject_id)
            self.asked = True
        return 0

    cdef uint64_t find(self, uint64_t low) except? 0:
        """The lowest admitted sequence at or above `low`, 0 when there is none."""
        cdef uint32_t subject_id
        if self.mode == Mode.EVERYTHING:
            return self.index.chunks.find_live(low, self.index.last_seq)
        if self.mode == Mode.SEVERAL:
            return self._scan(low, self.index.last_seq)
        subject_id = self._subject_id()
        return self.index.first_from(subject_id, low) if subject_id else 0

    cdef uint64_t first_in(self, uint64_t low, uint64_t high) except? 0:
        """The lowest admitted sequence in low..high, 0 when there is none."""
        cdef uint64_t found
        if self.mode == Mode.SEVERAL:
            return self._scan(low, high)
        found = self.find(low)
        return found if found <= high else 0

    cdef uint32_t _subject_id(self) except? 0:
        cdef bytes one = self.filters[0]
        return self.index.tree.find(one, len(one))

    cdef uint64_t _scan(self, uint64_t low, uint64_t high) except? 0:
        """The lowest admitted sequence in low..high, 0 when there is none."""
        cdef Index index = self.index
        cdef Stretch stretch
        cdef size_t place
        cdef uint32_t subject_id
        cdef const uint8_t *verdicts
        low = max(low, index.first_seq)
        high = min(high, index.last_seq)
        self.cover(index.tree.id_end)
        verdicts = self.verdicts
        while index.chunks.stretch_from(low, high, &stretch):
            for place in range(stretch.count):
                subject_id = stretch.subject[place]
                if subject_id and verdicts[subject_id] != REFUSED:
                    if verdicts[subject_id] == ADMITTED or self.admits(subject_id):
                        return seq_in(&stretch, place)
            low = stretch.end
        return 0

    cdef uint64_t _count_range(self, uint64_t low, uint64_t high) except? 0:
        """The number of admitted messages in low..high, by a scan."""
        cdef Index index = self.index
        cdef Stretch stretch
        cdef size_t place
        cdef uint32_t subject_id
        cdef uint64_t total = 0
        cdef const uint8_t *verdicts
        if self.mode == Mode.ONE_SUBJECT:
            subject_id = self._subject_id()
            if subject_id == 0:
                return 0
            self.admits(subject_id)
            return index.chunks.count_subject(low, high, subject_id)
        low = max(low, index.first_seq)
        high = min(high, index.last_seq)
        self.cover(index.tree.id_end)
        if low <= high and high - low > index.tree.id_end:
            self.ask_everyone()
        verdicts = self.verdicts
        while index.chunks.stretch_from(low, high, &stretch):
            for place in range(stretch.count):
                subject_id = stretch.subject[place]
                if subject_id and verdicts[subject_id] != REFUSED:
                    if verdicts[subject_id] == ADMITTED or self.admits(subject_id):
                        total += 1
            low = stretch.end
        return total

    cdef uint64_t _recount(self, uint64_t low) except? 0:
        """The number of admitted messages at or above `low`, by the cheaper of the two sides."""
        cdef Index index = self.index
        cdef Subject *subject
        cdef uint32_t subject_id
        cdef uint64_t total = 0, seq, above
        if self.mode == Mode.ONE_SUBJECT:
            subject_id = self._subject_id()
            if subject_id == 0:
                return 0
            self.admits(subject_id)
            subject = index.tree.at(subject_id)
            if low > subject.last_seq:
                return 0
            if low <= subject.first_seq:
                return subject.count
            above = subject.last_seq - low + 1
            if subject.count * COST_LINK * SCAN_EQUAL_PER_COST < min(above, low - subject.first_seq):
                seq = index.first_from(subject_id, low)
                while seq:
                    total += 1
                    seq = index.follow(seq, subject_id)
                return total
            if above <= low - subject.first_seq:
                return index.chunks.count_subject(low, subject.last_seq, subject_id)
            return subject.count - index.chunks.count_subject(subject.first_seq, low - 1, subject_id)
        if index.last_seq - low < low - index.first_seq + <uint64_t>index.tree.id_end * COST_SUBJECT:
            return self._count_range(low, index.last_seq)
        for subject_id in range(1, index.tree.id_end):
            if index.tree.at(subject_id).count and self.admits(subject_id):
                total += index.tree.at(subject_id).count
        return total - (self._count_range(index.first_seq, low - 1) if low > index.first_seq else 0)

    cdef uint64_t _recount_cost(self, uint64_t low) except? 0:
        """The approximate cost of `_recount`, in messages of a scan."""
        cdef Index index = self.index
        cdef Subject *subject
        cdef uint32_t subject_id
        cdef uint64_t side
        if self.mode == Mode.ONE_SUBJECT:
            subject_id = self._subject_id()
            if subject_id == 0:
                return 0
            subject = index.tree.at(subject_id)
            if low > subject.last_seq or low <= subject.first_seq:
                return 0
            side = min(subject.last_seq - low + 1, low - subject.first_seq)
            return min(side // SCAN_EQUAL_PER_COST, subject.count * COST_LINK)
        return min(
            index.last_seq - low + 1,
            low - index.first_seq + <uint64_t>index.tree.id_end * COST_SUBJECT,
        )

    cdef bint _replay_removals(self) except -1:
        """Subtract the messages removed since the last count; False when the log of removals has overflowed."""
        cdef Index index = self.index
        cdef uint64_t number
        cdef Removed *entry
        if index.tree.removals - self.count_removals > REMOVED_LOG_MESSAGES:
            return False
        for number in range(self.count_removals, index.tree.removals):
            entry = &index.removed[number % REMOVED_LOG_MESSAGES]
            if self.count_from <= entry.seq <= self.count_upto and self.admits(entry.subject):
                self.count -= 1
        self.count_removals = index.tree.removals
        return True

    cdef uint64_t _count_continued(self, uint64_t low) except? 0:
        """The number of admitted messages at or above `low`, from the last count when that is cheaper."""
        cdef uint64_t cost
        if not self.counted:
            return self._recount(low)
        cost = low - self.count_from if low > self.count_from else self.count_from - low
        cost += self.index.last_seq - self.count_upto
        if self.mode == Mode.ONE_SUBJECT:
            cost //= SCAN_EQUAL_PER_COST
        if cost > self._recount_cost(low) or not self._replay_removals():
            return self._recount(low)
        if low > self.count_upto:
            return self._count_range(low, self.index.last_seq)
        if self.index.last_seq > self.count_upto:
            self.count += self._count_range(self.count_upto + 1, self.index.last_seq)
        if low > self.count_from:
            return self.count - self._count_range(self.count_from, low - 1)
        if low < self.count_from:
            return self.count + self._count_range(low, self.count_from - 1)
        return self.count
