"""Searches over the subjects of a stream, as C sees them. See _search.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from jetraft.store.model._patterns cimport PatternTree
from jetraft.store.stream._index cimport Index
from jetraft.store.stream._select cimport FilterSet
from jetraft.store.stream._subjtree cimport IdList

cdef class Search:
    cdef Index index
    cdef readonly bint is_over
    cdef readonly int64_t spent  # visits of all steps
    cdef list left               # filters that were not looked up yet, the next one last; literals come first
    cdef PatternTree rest        # those of `left`, once all subjects are looked at one by one
    cdef uint32_t next_id        # of these looks; 0: they have not begun
    cdef uint32_t ids_of         # `Index.anew`, when the ids were given

    cdef int take(self, uint32_t subject_id) except -1
    cdef int take_all(self, IdList *ids) except -1
    cdef int look_up(self, int64_t *visits) except -1
    cdef int look_at_all(self, int64_t *visits) except -1

cdef class LastSearch(Search):
    cdef readonly uint64_t found
    cdef bint is_begun

cdef class LastOfEachSearch(Search):
    cdef set seqs
    cdef uint64_t up_to_seq
    cdef Py_ssize_t count_max

cdef class NextSearch(Search):
    cdef readonly uint64_t found
    cdef FilterSet filters
    cdef uint64_t low

    cdef int scan(self, uint64_t count, int64_t *visits) except -1
