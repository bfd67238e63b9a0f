"""The way back of answers to services."""

from libc.string cimport memcmp

from jetraft.api.plane._types cimport ANSWERS_PREFIX, MEASURE_REPLIED, acct_t, answer_t, conn_t, export_t, msg_t, plane_t

cdef enum:
    ID_DIGITS = 11              # of 64 bits, to base 62
    MEASURED_MARK = 2           # `.T` behind the subject of an answer that is measured, as in nats-server

cdef answer_t* answer_new(plane_t* plane, acct_t* acct, acct_t* to, const char* reply, Py_ssize_t n, export_t* service) noexcept nogil
cdef answer_t* answer_find(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil
cdef void answer_touch(plane_t* plane, answer_t* answer) noexcept nogil
cdef void answer_drop(plane_t* plane, answer_t* answer) noexcept nogil
cdef Py_ssize_t answer_subject(answer_t* answer, char* out) noexcept nogil
cdef bint open_answers(plane_t* plane, acct_t* acct) noexcept nogil
cdef void expire_answers(plane_t* plane) noexcept nogil


cdef inline bint is_measured(const char* subject, Py_ssize_t n) noexcept nogil:
    """Whether this is where a measured request wants its answer, at any node."""
    return n == ANSWERS_PREFIX + ID_DIGITS + MEASURED_MARK and memcmp(subject, b"_R_.", 4) == 0 and memcmp(subject + n - 2, b".T", 2) == 0


cdef inline void note_reply(plane_t* plane, acct_t* acct, conn_t* origin, msg_t* msg) noexcept nogil:
    """Tell of a message that goes to a peer, when it answers a measured request."""
    if acct.measured and origin != NULL and is_measured(msg.subject, msg.subject_len):
        plane.measure(plane, MEASURE_REPLIED, 0, origin, NULL, msg)


cdef inline const char* reply_of(answer_t* answer) noexcept nogil:
    """The subject that the requester wants its answer on; `answer.n` bytes."""
    return <const char*>(answer + 1)
