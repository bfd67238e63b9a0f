"""The way back of answers to services."""

from jetraft.api.plane._types cimport acct_t, answer_t, export_t, plane_t

cdef answer_t* answer_new(plane_t* plane, acct_t* acct, acct_t* to, const char* reply, Py_ssize_t n, export_t* service) noexcept nogil
cdef answer_t* answer_find(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil
cdef void answer_touch(plane_t* plane, answer_t* answer) noexcept nogil
cdef void answer_drop(plane_t* plane, answer_t* answer) noexcept nogil
cdef Py_ssize_t answer_subject(answer_t* answer, char* out) noexcept nogil
cdef bint open_answers(plane_t* plane, acct_t* acct) noexcept nogil
cdef void expire_answers(plane_t* plane) noexcept nogil


cdef inline const char* reply_of(answer_t* answer) noexcept nogil:
    """The subject that the requester wants its answer on; `answer.n` bytes."""
    return <const char*>(answer + 1)
