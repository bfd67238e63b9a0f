"""The bounded cache of answers: which subscriptions receive a message on a subject."""

from libc.stdint cimport uint32_t

from jetraft.api.plane._types cimport GENERATIONS, acct_t, match_t, plane_t

cdef enum:
    CACHE_ENTRIES = 1 << 14     # about 2 MB; nats-server caches 1024 per sublist
    CACHE_WAYS = 4              # places for an answer; their tags are adjacent
    CACHE_SUBJECT_MAX = 256     # longer subjects are not cached, so that the cache is bounded in bytes

cdef int answers_init(plane_t* plane) except -1
cdef void answers_free(plane_t* plane) noexcept
cdef bint scratch_answers(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil
cdef match_t* sublist_match(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil
cdef match_t* sublist_match_once(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil


cdef inline bint match_is_current(plane_t* plane, acct_t* acct, match_t* match) noexcept nogil:
    """False for another account's answer, and after a change that may alter it."""
    cdef uint32_t bucket = match.key % GENERATIONS
    return (
        match.key // GENERATIONS == acct.id
        and match.wild_generation == acct.wild_generation
        and match.generation == plane.generations[bucket]
    )
