"""The bounded cache of answers to "who gets a message of this subject"."""

from jetraft.api.wire._types cimport match_t, plane_t

cdef enum:
    CACHE_ENTRIES = 1 << 14     # about 2 MB; nats-server caches 1024 per sublist
    CACHE_WAYS = 4              # entries where an answer may be; their tags lie side by side
    CACHE_SUBJECT_MAX = 256     # longer subjects are matched each time, so the cache stays bounded in bytes

cdef int answers_init(plane_t* plane) except -1
cdef void answers_free(plane_t* plane) noexcept
cdef bint scratch_answers(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil
cdef match_t* sublist_match(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil
cdef match_t* sublist_match_once(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil


cdef inline bint match_is_current(plane_t* plane, match_t* match) noexcept nogil:
    """False after a change that may alter the answer."""
    return match.wild_generation == plane.wild_generation and match.generation == plane.generations[match.bucket]
