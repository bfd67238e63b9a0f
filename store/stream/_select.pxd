"""Filters over a stream's index, as C sees them. See _select.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.store.stream._index cimport Index
from jetraft.store.model._patterns cimport PatternTree
from jetraft.store.stream._runs cimport Runs
from jetraft.store.stream._subjtree cimport Subject
from jetraft.store.stream._verdicts cimport Verdicts

cdef enum Mode:
    EVERYTHING                     # no filter, or one of them is ">"
    ONE_SUBJECT                    # one filter without wildcards
    SEVERAL

cdef bint is_hidden(Index index, const Subject *subject) except -1

cdef class FilterSet(Verdicts):
    cdef readonly tuple filters
    cdef Index index
    cdef Mode mode
    cdef PatternTree open_tree     # of many filters: all of them,
    cdef PatternTree hidden_tree   # and those that may admit what is hidden
    # The last count, which the next one continues from:
    cdef bint counted
    cdef uint64_t count            # matches in count_from..count_upto, at the number count_removals of removals
    cdef uint64_t count_from
    cdef uint64_t count_upto
    cdef uint64_t count_removals

    cdef bint asked                # about every subject that there was

    cdef bint _admits_all(self) except -1
    cdef Runs _live_from(self, uint64_t from_seq, uint64_t count)
    cdef int ask_everyone(self) except -1
    cdef bint admits(self, uint32_t subject_id) except -1
    cdef uint64_t find(self, uint64_t low) except? 0
    cdef uint64_t first_in(self, uint64_t low, uint64_t high) except? 0
    cdef bint matches_many(self, const Subject *subject) except -1
    cdef uint32_t _subject_id(self) except? 0
    cdef uint64_t _scan(self, uint64_t low, uint64_t high) except? 0
    cdef uint64_t _count_range(self, uint64_t low, uint64_t high) except? 0
    cdef uint64_t _recount(self, uint64_t low) except? 0
    cdef uint64_t _recount_cost(self, uint64_t low) except? 0
    cdef bint _replay_removals(self) except -1
    cdef uint64_t _count_continued(self, uint64_t low) except? 0
