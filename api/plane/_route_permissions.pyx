"""The permissions of routes: of which interest this node tells its peers (import), and which of theirs it believes (export).

Both are about interest, as in nats-server 2.15.1: a message goes to the peers whose interest is believed. Where that has
wildcards which reach what `export` denies, each message is looked at as well; what `import` denies comes in below a
wildcard that it allows. Subjects of the servers themselves, `$JS.` and `$SYS.`, pass always: JetStream and the system
account of a cluster work with any permissions. `plane.route_perms` is NULL where there are none.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from jetraft.api.plane._permissions cimport is_listed_denied, may_always, may_hold
from jetraft.api.plane._types cimport msg_t, plane_t, text_t


cdef inline bint is_of_servers(const char* s, Py_ssize_t n) noexcept nogil:
    return (n > 4 and memcmp(s, b"$JS.", 4) == 0) or (n > 5 and memcmp(s, b"$SYS.", 5) == 0)


cdef bint may_import(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil:
    """Whether peers are told of interest in a subject."""
    if plane.route_perms == NULL or is_of_servers(subject, n):
        return True
    return may_always(plane, plane.route_perms, subject, n)


cdef bint may_export(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil:
    """Whether a peer's interest in a subject is believed. From then on what is denied below a wildcard is kept back."""
    cdef text_t whole, queue
    if plane.route_perms == NULL or is_of_servers(subject, n):
        return True
    whole.p = subject
    whole.n = n
    queue.p = NULL
    queue.n = 0
    return may_hold(plane.route_perms, whole, queue, &plane.route_guard)


cdef bint is_kept_back(plane_t* plane, msg_t* msg) noexcept nogil:
    """Whether a message is denied to peers whose interest is believed; asked where `plane.route_guard` is set."""
    if is_of_servers(msg.subject, msg.subject_len):
        return False
    return is_listed_denied(plane, plane.route_perms, NULL, msg.subject, msg.subject_len)
