"""The subscriptions of a connection whose user was granted other rights are asked again, a share of them in each turn.

A connection may have a million, and each question goes through the lists of its user. The rights themselves are in force at
once: while GUARD_REVIEW stands, every delivery asks whether its subscription may be held (`may_receive`). What the
client sends meanwhile is judged by the new rights, so it is read as ever: a new subscription may move others to a
bucket behind the cursor's end, never to one that the cursor has passed.
"""

from libc.stdint cimport uint32_t

from jetraft.api.plane._deliver cimport drop_subscription
from jetraft.api.plane._permissions cimport may_keep
from jetraft.api.plane._tree cimport node_subject
from jetraft.api.plane._types cimport GUARD_REVIEW, conn_t, plane_t, sid_of, sub_t



cdef inline void spend(uint32_t* share, uint32_t cost) noexcept nogil:
    share[0] -= min(share[0], cost)


cdef object row_of(sub_t* sub):
    """(subject, queue, sid) of a subscription; the queue is empty where there is none."""
    cdef char text[8192]
    cdef Py_ssize_t n = node_subject(sub.node, text, sizeof(text))
    queue = b"" if sub.queue == NULL else sub.queue.name[:sub.queue.name_len]
    return text[:n], queue, sid_of(sub)[:sub.sid_len]


cdef bint review_subscriptions(plane_t* plane, conn_t* conn, uint32_t* share, list removed):
    """End what may not be held any more, as far as the share of ends goes, and add its rows; True when all was asked."""
    cdef sub_t* sub
    cdef sub_t* following
    while conn.reviewed_buckets < conn.bucket_count:
        if share[0] == 0:
            return False
        spend(share, 1)     # an empty bucket is a step, too
        sub = conn.buckets[conn.reviewed_buckets]
        while sub != NULL:
            following = sub.next_in_bucket
            if may_keep(conn, sub):
                spend(share, 1)
            else:
                spend(share, REMOVAL_COST)
                removed.append(row_of(sub))
                drop_subscription(plane, sub)
            sub = following
        conn.reviewed_buckets += 1
    conn.guard &= ~GUARD_REVIEW
    return True
