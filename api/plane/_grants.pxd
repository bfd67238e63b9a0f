"""Lists of permissions, and what of them matches a subject."""

from jetraft.api.plane._types cimport grant_t, text_t

cdef enum:
    EMPTY_TOKENS = 1            # a token may be empty: what is denied is so whatever it is spelled like
    WHOLE_TAIL = 2              # `>` of the subject needs `>` in the list

cdef struct hits_t:             # which kinds of entries match
    bint plain
    bint queued
    bint fits                   # one of those with a queue, the queue in question
    bint fits_partly            # the same, of an entry that reaches a part of what the subject stands for

cdef grant_t* list_of(entries) except? NULL
cdef void free_list(grant_t* node) noexcept
cdef hits_t look_up(grant_t* root, const char* s, Py_ssize_t n, int mode, text_t queue) noexcept nogil
cdef bint overlaps(grant_t* node, const char* s, Py_ssize_t n) noexcept nogil
