"""Imports of streams: a subscription has a shadow in each account that exports messages which it would match here.

A shadow is a subscription in the exporter's tree, for its owner's connection, leaf node or sink and in its queue group, so that peers
are told of it and a queue group has members in both accounts. Its pattern is what both the owner's and the import's
subject match, in the exporter's subjects. Messages that come to an account through an import are not exported again, as in
nats-server.
"""

from libc.stdint cimport uint16_t
from libc.string cimport memchr, memcmp, memcpy
from libc.stdlib cimport free

from jetraft.api.plane._deliver cimport drop_subscription, tell_interest
from jetraft.api.plane._subs cimport sub_new
from jetraft.api.plane._transforms cimport transform_free, transform_subject
from jetraft.api.plane._tree cimport sublist_add
from jetraft.api.plane._types cimport (
    SUB_LEAF,
    SUB_LEAF_SHADOW,
    SUB_SHADOW,
    SUBJECT_ROOM,
    msg_t,
    plane_t,
    shadow_of,
    stream_import_t,
    sub_t,
)

cdef enum:
    PATTERN_MAX = 8192      # SUBJECT_MAX of _tree.pyx: a longer subject of a subscription has no shadow


cdef void stream_import_free(stream_import_t* imported) noexcept nogil:
    transform_free(imported.shown)
    transform_free(imported.back)
    free(imported.source)
    free(imported.local)
    free(imported)


cdef bint shown_by(plane_t* plane, stream_import_t* by, msg_t* msg) noexcept nogil:
    """Let a message have the subject under which an account imports it; False when it has none."""
    if by.shown != NULL:
        msg.shown_len = <uint16_t>transform_subject(plane, by.shown, msg.subject, msg.subject_len, plane.shown)
        msg.shown = plane.shown
    msg.subject = msg.shown
    msg.subject_len = msg.shown_len
    return msg.shown_len != 0


cdef inline Py_ssize_t token_len(const char* s, Py_ssize_t n) noexcept nogil:
    cdef const char* dot = <const char*>memchr(s, c".", n)
    return n if dot == NULL else dot - s


cdef Py_ssize_t meet(const char* a, Py_ssize_t an, const char* b, Py_ssize_t bn, char* out) noexcept nogil:
    """Write the pattern of all that two patterns match, which is not longer than both; returns its length, 0: nothing."""
    cdef char* w = out
    cdef Py_ssize_t at, bt
    while True:
        at = token_len(a, an)
        bt = token_len(b, bn)
        if at == 1 and a[0] == c">":
            memcpy(w, b, bn)
            return w + bn - out
        if bt == 1 and b[0] == c">":
            memcpy(w, a, an)
            return w + an - out
        if at == 1 and a[0] == c"*":
            memcpy(w, b, bt)
            w += bt
        elif (bt == 1 and b[0] == c"*") or (at == bt and memcmp(a, b, at) == 0):
            memcpy(w, a, at)
            w += at
        else:
            return 0
        a += at
        an -= at
        b += bt
        bn -= bt
        if an == 0 or bn == 0:
            return w - out if an == bn else 0
        w[0] = c"."
        w += 1
        a += 1
        an -= 1
        b += 1
        bn -= 1


cdef void add_shadow(plane_t* plane, sub_t* sub, stream_import_t* by, const char* subject, Py_ssize_t n) noexcept nogil:
    cdef sub_t* made = sub_new(plane, SUB_LEAF_SHADOW if sub.kind == SUB_LEAF else SUB_SHADOW, NULL, 0)
    if made == NULL:
        return
    made.of.main = sub
    made.local_only = sub.local_only
    made.weight = sub.weight
    shadow_of(made).by = by
    shadow_of(made).next = sub.shadows
    sub.shadows = made
    if sublist_add(plane, by.exporter, made, subject, n, sub.queue.name if sub.queue != NULL else NULL, sub.queue.name_len if sub.queue != NULL else 0):
        tell_interest(plane, by.exporter, NULL, made.node, made.queue, made.queue.local_count if made.queue != NULL else 1)


cdef void add_shadows(plane_t* plane, sub_t* sub, const char* subject, Py_ssize_t n) noexcept nogil:
    """Give a new subscription of a client, a sink or a leaf node its shadows."""
    cdef stream_import_t* by = sub.acct.stream_imports
    while by != NULL:
        add_shadows_of(plane, sub, by, subject, n)
        by = by.next


cdef void add_shadows_of(plane_t* plane, sub_t* sub, stream_import_t* by, const char* subject, Py_ssize_t n) noexcept nogil:
    """Give a subscription the shadow that one import makes, if it makes one."""
    cdef char both[2 * PATTERN_MAX]
    cdef Py_ssize_t length
    if n > PATTERN_MAX or by.local_len > PATTERN_MAX:
        return
    length = meet(subject, n, by.local, by.local_len, both)
    if length and by.back == NULL:
        add_shadow(plane, sub, by, both, length)
    elif length:
        length = transform_subject(plane, by.back, both, length, plane.shown)
        if length:
            add_shadow(plane, sub, by, plane.shown, length)


cdef void drop_shadows_of(plane_t* plane, sub_t* sub, stream_import_t* by) noexcept nogil:
    """End the shadows of a subscription that an import has made."""
    cdef sub_t* shadow
    cdef sub_t** link = &sub.shadows
    while link[0] != NULL:
        shadow = link[0]
        if shadow_of(shadow).by == by:
            link[0] = shadow_of(shadow).next
            drop_subscription(plane, shadow)
        else:
            link = &shadow_of(shadow).next
