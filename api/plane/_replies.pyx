"""Reply subjects that a connection received and may publish to (`allow_responses`): by subject, and by age."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._text cimport jr_mono_ns
from jetraft.api.plane._types cimport conn_t, plane_t, replies_t, reply_t
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef enum:
    REPLIES_START = 64
    REPLIES_MAX = 1 << 16       # of one connection; the oldest go first. nats-server has no bound


cdef reply_t* find_reply(replies_t* replies, const char* s, Py_ssize_t n, uint64_t h) noexcept nogil:
    cdef reply_t* reply
    if replies.count == 0:
        return NULL
    reply = replies.buckets[h & replies.mask]
    while reply != NULL:
        if reply.hash == h and reply.n == n and memcmp(<char*>(reply + 1), s, n) == 0:
            return reply
        reply = reply.next_in_bucket
    return NULL


cdef void drop_reply(replies_t* replies, reply_t* reply) noexcept nogil:
    cdef reply_t** link = &replies.buckets[reply.hash & replies.mask]
    while link[0] != reply:
        link = &link[0].next_in_bucket
    link[0] = reply.next_in_bucket
    if reply.older != NULL:
        reply.older.newer = reply.newer
    else:
        replies.oldest = reply.newer
    if reply.newer != NULL:
        reply.newer.older = reply.older
    else:
        replies.newest = reply.older
    replies.count -= 1
    free(reply)


cdef bint grow_replies(replies_t* replies) noexcept nogil:
    cdef uint32_t size = 2 * (replies.mask + 1) if replies.mask else REPLIES_START
    cdef reply_t** buckets = <reply_t**>calloc(size, sizeof(reply_t*))
    cdef reply_t* reply = replies.oldest
    if buckets == NULL:
        return False
    while reply != NULL:
        reply.next_in_bucket = buckets[reply.hash & (size - 1)]
        buckets[reply.hash & (size - 1)] = reply
        reply = reply.newer
    free(replies.buckets)
    replies.buckets = buckets
    replies.mask = size - 1
    return True


cdef void track_reply(plane_t* plane, conn_t* conn, const char* s, Py_ssize_t n) noexcept nogil:
    """A connection received a message with this reply subject. What has expired goes, and the oldest of too many."""
    cdef replies_t* replies = conn.replies
    cdef int64_t now_ns = jr_mono_ns()
    cdef reply_t* reply
    while replies.oldest != NULL and (
        replies.count >= REPLIES_MAX
        or (conn.perms.answers_ns > 0 and now_ns - replies.oldest.since_ns > conn.perms.answers_ns)
        or (conn.perms.answers_max > 0 and replies.oldest.count >= conn.perms.answers_max)
    ):
        drop_reply(replies, replies.oldest)
    if (replies.mask == 0 or replies.count > replies.mask) and not grow_replies(replies):
        return
    reply = <reply_t*>malloc(sizeof(reply_t) + n)
    if reply == NULL:
        return
    reply.hash = keyed_hash(s, n, plane.seed)
    reply.since_ns = now_ns
    reply.count = 0
    reply.n = <uint16_t>n
    memcpy(<char*>(reply + 1), s, n)
    reply.next_in_bucket = replies.buckets[reply.hash & replies.mask]
    replies.buckets[reply.hash & replies.mask] = reply
    reply.newer = NULL
    reply.older = replies.newest
    if replies.newest != NULL:
        replies.newest.newer = reply
    else:
        replies.oldest = reply
    replies.newest = reply
    replies.count += 1


cdef void forget_replies(conn_t* conn) noexcept nogil:
    cdef reply_t* reply
    if conn.replies == NULL:
        return
    while conn.replies.oldest != NULL:
        reply = conn.replies.oldest
        conn.replies.oldest = reply.newer
        free(reply)
    free(conn.replies.buckets)
    free(conn.replies)
    conn.replies = NULL
