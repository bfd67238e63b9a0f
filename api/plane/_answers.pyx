"""Answers that may still come to requests that went to another account.

The exporter's side answers to `_R_.`, a prefix of its account and node, and an id that cannot be guessed; the account has
one subscription for all of them. An answer is expected for the threshold of its service, since the request or the answer
before. Of one service as many as ANSWERS_MAX are expected; the oldest go first.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._deliver cimport tell_interest
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._text cimport jr_mono_ns
from jetraft.api.plane._tree cimport sublist_add
from jetraft.api.plane._types cimport (
    ANSWERS_PREFIX,
    MEASURE_LATE,
    RANDOM_POOL,
    SUB_ANSWERS,
    acct_t,
    answer_t,
    export_t,
    next_random,
    plane_t,
    sub_t,
)

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* buffer, size_t n, unsigned int flags)

cdef enum:
    ANSWERS_START = 64
    LATE_PER_LOOK = 100000  # answers that are forgotten once a second, 0.08 us each
    LATE_MEASURED = 20      # one counts as so many, whose latency is told of in Python
    ANSWERS_MAX = 1 << 20       # of one service; nats-server has no bound


cdef const char* DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef uint64_t unguessable(plane_t* plane) noexcept nogil:
    if plane.random_left == 0:
        if getrandom(plane.random, sizeof(plane.random), 0) != sizeof(plane.random):
            return next_random(plane)       # not since Linux 3.17
        plane.random_left = RANDOM_POOL
    plane.random_left -= 1
    return plane.random[plane.random_left]


# -- subjects

cdef bint open_answers(plane_t* plane, acct_t* acct) noexcept nogil:
    """Let an account receive answers; False when there is no memory."""
    cdef sub_t* sub
    cdef uint64_t number
    cdef uint32_t i
    if acct.answers != NULL:
        return True
    sub = sub_new(plane, SUB_ANSWERS, NULL, 0)
    if sub == NULL:
        return False
    number = unguessable(plane)
    memcpy(acct.answers_subject, b"_R_.", 4)
    for i in range(4, ANSWERS_PREFIX - 1):
        acct.answers_subject[i] = DIGITS[number % 62]
        number //= 62
    acct.answers_subject[ANSWERS_PREFIX - 1] = c"."
    acct.answers_subject[ANSWERS_PREFIX] = c">"
    sub.of.acct = acct
    acct.answers = sub
    if sublist_add(plane, acct, sub, acct.answers_subject, ANSWERS_PREFIX + 1, NULL, 0):
        tell_interest(plane, acct, NULL, sub.node, NULL, 1)
    return True


cdef Py_ssize_t answer_subject(answer_t* answer, char* out) noexcept nogil:
    """Write the subject that the exporter's side answers to; returns its length."""
    cdef uint64_t id = answer.id
    cdef uint32_t i
    memcpy(out, answer.acct.answers_subject, ANSWERS_PREFIX)
    for i in range(ID_DIGITS):
        out[ANSWERS_PREFIX + i] = DIGITS[id % 62]
        id //= 62
    return ANSWERS_PREFIX + ID_DIGITS


cdef inline int digit(char c) noexcept nogil:
    if c"0" <= c <= c"9":
        return c - c"0"
    if c"A" <= c <= c"Z":
        return c - c"A" + 10
    if c"a" <= c <= c"z":
        return c - c"a" + 36
    return -1


# -- the table

cdef bint grow(plane_t* plane) noexcept nogil:
    cdef uint32_t size = 2 * (plane.answer_mask + 1) if plane.answer_mask else ANSWERS_START
    cdef answer_t** buckets = <answer_t**>calloc(size, sizeof(answer_t*))
    cdef export_t* service = plane.exports
    cdef answer_t* answer
    if buckets == NULL:
        return False
    while service != NULL:
        answer = service.oldest
        while answer != NULL:
            answer.next_in_bucket = buckets[answer.id & (size - 1)]
            buckets[answer.id & (size - 1)] = answer
            answer = answer.newer
        service = service.next
    free(plane.answers)
    plane.answers = buckets
    plane.answer_mask = size - 1
    return True


cdef void join(answer_t* answer) noexcept nogil:
    """Make an answer the newest of its service."""
    cdef export_t* service = answer.service
    answer.newer = NULL
    answer.older = service.newest
    if service.newest != NULL:
        service.newest.newer = answer
    else:
        service.oldest = answer
    service.newest = answer


cdef void part(answer_t* answer) noexcept nogil:
    if answer.older != NULL:
        answer.older.newer = answer.newer
    else:
        answer.service.oldest = answer.newer
    if answer.newer != NULL:
        answer.newer.older = answer.older
    else:
        answer.service.newest = answer.older


cdef answer_t* answer_new(
    plane_t* plane, acct_t* acct, acct_t* to, const char* reply, Py_ssize_t n, export_t* service
) noexcept nogil:
    """Expect an answer in one account for a subject of another; NULL when there is no memory."""
    cdef answer_t* answer
    if not open_answers(plane, acct):
        return NULL
    if (plane.answer_mask == 0 or plane.answer_count > plane.answer_mask) and not grow(plane):
        return NULL
    answer = <answer_t*>malloc(sizeof(answer_t) + n)
    if answer == NULL:
        return NULL
    if service.waiting >= ANSWERS_MAX:
        answer_drop(plane, service.oldest)
    answer.id = unguessable(plane)
    answer.acct = acct
    answer.to = to
    answer.service = service
    answer.measured = answer.many = 0
    answer.since_ns = jr_mono_ns()
    answer.n = <uint16_t>n
    memcpy(<char*>(answer + 1), reply, n)
    answer.next_in_bucket = plane.answers[answer.id & plane.answer_mask]
    plane.answers[answer.id & plane.answer_mask] = answer
    join(answer)
    service.waiting += 1
    plane.answer_count += 1
    return answer


cdef answer_t* answer_find(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil:
    """The answer that an account expects on a subject, or NULL; one that comes too late is forgotten."""
    cdef uint64_t id = 0
    cdef answer_t* answer
    cdef int i, value
    if (n != ANSWERS_PREFIX + ID_DIGITS and not is_measured(subject, n)) or plane.answer_count == 0:
        return NULL
    if memcmp(subject, acct.answers_subject, ANSWERS_PREFIX) != 0:
        return NULL
    for i in range(ID_DIGITS - 1, -1, -1):
        value = digit(subject[ANSWERS_PREFIX + i])
        if value < 0:
            return NULL
        id = id * 62 + <uint64_t>value
    answer = plane.answers[id & plane.answer_mask]
    while answer != NULL and (answer.id != id or answer.acct != acct):
        answer = answer.next_in_bucket
    if answer != NULL and jr_mono_ns() - answer.since_ns > answer.service.threshold_ns:
        answer_late(plane, answer)
        return NULL
    return answer


cdef void answer_touch(plane_t* plane, answer_t* answer) noexcept nogil:
    """An answer came, and more may come: the threshold begins again."""
    answer.since_ns = jr_mono_ns()
    part(answer)
    join(answer)


cdef void answer_drop(plane_t* plane, answer_t* answer) noexcept nogil:
    cdef answer_t** link = &plane.answers[answer.id & plane.answer_mask]
    while link[0] != answer:
        link = &link[0].next_in_bucket
    link[0] = answer.next_in_bucket
    part(answer)
    answer.service.waiting -= 1
    plane.answer_count -= 1
    free(answer)


cdef void answer_late(plane_t* plane, answer_t* answer) noexcept nogil:
    if answer.measured:
        plane.measure(plane, MEASURE_LATE, answer.id, NULL, NULL, NULL)
    answer_drop(plane, answer)


cdef void expire_answers(plane_t* plane) noexcept nogil:
    """Forget the answers that did not come in time, as many as have a share; the others are late when they come, too."""
    cdef export_t* service = plane.exports
    cdef int64_t now_ns = jr_mono_ns()
    cdef uint32_t left = LATE_PER_LOOK
    while service != NULL and left:
        while left and service.oldest != NULL and now_ns - service.oldest.since_ns > service.threshold_ns:
            left -= min(left, <uint32_t>LATE_MEASURED if service.oldest.measured else 1)
            answer_late(plane, service.oldest)
        service = service.next
