"""What the user of a connection may publish, subscribe to and receive."""

from libc.stdint cimport uint8_t

from jetraft.api.plane._types cimport conn_t, msg_t, perms_t, plane_t, queue_t, sub_t, text_t

cdef enum Leave:
    LEAVE_NO = 0
    LEAVE_YES = 1
    LEAVE_ONCE = 2      # as an answer to what it received: to be asked again the next time

cdef class UserPermissions:
    cdef object __weakref__
    cdef perms_t p

cdef Leave may_publish(plane_t* plane, conn_t* conn, const char* subject, Py_ssize_t n) noexcept nogil
cdef bint may_always(plane_t* plane, perms_t* perms, const char* s, Py_ssize_t n) noexcept nogil
cdef bint may_subscribe(conn_t* conn, text_t subject, text_t queue) noexcept nogil
cdef bint may_publish_all(perms_t* perms, const char* s, Py_ssize_t n) noexcept nogil
cdef bint may_keep(conn_t* conn, sub_t* sub) noexcept nogil
cdef bint may_hold(perms_t* perms, text_t subject, text_t queue, uint8_t* guard) noexcept nogil
cdef bint is_listed_denied(plane_t* plane, perms_t* perms, queue_t* of, const char* s, Py_ssize_t n) noexcept nogil
cdef bint may_receive(plane_t* plane, sub_t* sub, msg_t* msg) noexcept nogil
cdef void grant(conn_t* conn, UserPermissions permissions) noexcept


cdef inline bint is_gateway_space(const char* s, Py_ssize_t n) noexcept nogil:
    """True for `_GR_.x` and `$GR.x`, which no client may publish to."""
    if n > 4 and s[0] == c"$" and s[1] == c"G":
        return s[2] == c"R" and s[3] == c"."
    return n > 5 and s[0] == c"_" and s[1] == c"G" and s[2] == c"R" and s[3] == c"_" and s[4] == c"."


cdef inline bint is_reserved_reply(const char* s, Py_ssize_t n) noexcept nogil:
    """True for `_R_.`, `$JS.ACK.x` and the space of gateways, which no client may name as a reply subject."""
    if n > 8 and s[0] == c"$" and s[1] == c"J":
        return s[2] == c"S" and s[3] == c"." and s[4] == c"A" and s[5] == c"C" and s[6] == c"K" and s[7] == c"."
    if n >= 4 and s[0] == c"_" and s[1] == c"R":
        return s[2] == c"_" and s[3] == c"."
    return is_gateway_space(s, n)
