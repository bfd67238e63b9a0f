"""What the user of a connection may publish, subscribe to and receive.

Answers for short subjects are remembered for each user, in a table that grows with use to VERDICTS_MAX. Inboxes and
acknowledgements, which do not come again, are looked up each time.

The rules are those of nats-server 2.15.1 (server/client.go), asked and compared. Where it lets a client pass for whom
the list says otherwise this does not: a subscription to `a.>` needs more than `a.*`, and what is denied stays so when a
token is left empty.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._grants cimport EMPTY_TOKENS, WHOLE_TAIL, free_list, hits_t, list_of, look_up, overlaps
from jetraft.api.plane._replies cimport drop_reply, find_reply, forget_replies, track_reply
from jetraft.api.plane._text cimport jr_mono_ns
from jetraft.api.plane._tree cimport node_subject
from jetraft.api.plane._types cimport (
    GUARD_DENIED,
    GUARD_REPLIES,
    GUARD_REVIEW,
    VERDICT_BYTES,
    conn_t,
    msg_t,
    perms_t,
    plane_t,
    queue_t,
    replies_t,
    reply_t,
    sub_t,
    text_t,
    verdict_t,
    verdicts_t,
)
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef enum:
    VERDICTS_START = 64         # 4 KiB; nats-server remembers 32
    VERDICTS_MAX = 4096


cdef class UserPermissions:
    """The permissions of one user, as all of its connections use them. See the .pyi for the typed face."""

    def __cinit__(self, *, publish_allow, publish_deny, subscribe_allow, subscribe_deny, answers=None):
        self.p.publish_allow = list_of(publish_allow)
        self.p.publish_deny = list_of(publish_deny)
        self.p.subscribe_allow = list_of(subscribe_allow)
        self.p.subscribe_deny = list_of(subscribe_deny)
        if answers is not None:
            self.p.answers = 1
            self.p.answers_max, self.p.answers_ns = answers

    def __dealloc__(self):
        free_list(self.p.publish_allow)
        free_list(self.p.publish_deny)
        free_list(self.p.subscribe_allow)
        free_list(self.p.subscribe_deny)
        free(self.p.publish.slots)
        free(self.p.deliver.slots)


# -- remembering

cdef inline bint comes_again(const char* s, Py_ssize_t n) noexcept nogil:
    """False for inboxes and acknowledgements, and for what is too long to be remembered."""
    if n > VERDICT_BYTES:
        return False
    return not (n > 8 and (memcmp(s, b"_INBOX.", 7) == 0 or memcmp(s, b"$JS.ACK.", 8) == 0))


cdef inline uint8_t recall(verdicts_t* known, const char* s, Py_ssize_t n, uint64_t h) noexcept nogil:
    """The verdict for a subject, or 0."""
    cdef verdict_t* slot
    cdef uint32_t way
    if known.mask:
        for way in range(2):
            slot = &known.slots[(<uint32_t>h & known.mask) ^ way]
            if slot.hash == h and slot.n == n and memcmp(slot.subject, s, n) == 0:
                return slot.verdict
    return 0


cdef void remember(verdicts_t* known, const char* s, Py_ssize_t n, uint64_t h, uint8_t verdict) noexcept nogil:
    """Keep a verdict in the place of an older one; in a larger table when there are many."""
    cdef uint32_t size = known.mask + 1
    cdef verdict_t* slots
    cdef verdict_t* slot
    if known.mask == 0 or (known.misses > 4 * size and size < VERDICTS_MAX):
        size = VERDICTS_START if known.mask == 0 else 2 * size
        slots = <verdict_t*>calloc(size, sizeof(verdict_t))
        if slots == NULL:
            return
        free(known.slots)
        known.slots = slots
        known.mask = size - 1
        known.misses = 0
    known.misses += 1
    slot = &known.slots[(<uint32_t>h & known.mask) ^ (known.misses & 1)]
    slot.hash = h
    slot.n = <uint8_t>n
    slot.verdict = verdict
    memcpy(slot.subject, s, n)


# -- publishing

cdef bint may_always(plane_t* plane, perms_t* perms, const char* s, Py_ssize_t n) noexcept nogil:
    """Whether the lists let a user publish to a subject."""
    cdef uint64_t h = 0
    cdef uint8_t verdict
    cdef text_t queue
    cdef bint again = comes_again(s, n)
    cdef bint allowed
    if again:
        h = keyed_hash(s, n, plane.seed)
        verdict = recall(&perms.publish, s, n, h)
        if verdict:
            return verdict == 1
    queue.p = NULL
    queue.n = 0
    allowed = perms.publish_allow == NULL or look_up(perms.publish_allow, s, n, 0, queue).plain
    if allowed and perms.publish_deny != NULL:
        allowed = not look_up(perms.publish_deny, s, n, EMPTY_TOKENS, queue).plain
    if again:
        remember(&perms.publish, s, n, h, 1 if allowed else 2)
    return allowed


cdef bint may_publish_all(perms_t* perms, const char* s, Py_ssize_t n) noexcept nogil:
    """Whether one entry of the lists lets a user publish to every subject of a pattern, and none denies some of them."""
    cdef text_t queue
    queue.p = NULL
    queue.n = 0
    if perms.publish_allow != NULL and not look_up(perms.publish_allow, s, n, WHOLE_TAIL, queue).plain:
        return False
    return perms.publish_deny == NULL or not overlaps(perms.publish_deny, s, n)


cdef Leave may_publish(plane_t* plane, conn_t* conn, const char* s, Py_ssize_t n) noexcept nogil:
    """Whether the user of a connection with permissions may publish now. An answer counts as one."""
    cdef reply_t* reply
    if may_always(plane, conn.perms, s, n):
        return LEAVE_YES
    if conn.replies == NULL:
        return LEAVE_NO
    reply = find_reply(conn.replies, s, n, keyed_hash(s, n, plane.seed))
    if reply == NULL:
        return LEAVE_NO
    reply.count += 1
    if (conn.perms.answers_max > 0 and reply.count > conn.perms.answers_max) or (
        conn.perms.answers_ns > 0 and jr_mono_ns() - reply.since_ns > conn.perms.answers_ns
    ):
        drop_reply(conn.replies, reply)
        return LEAVE_NO
    return LEAVE_ONCE


# -- subscribing and receiving

cdef bint may_subscribe(conn_t* conn, text_t subject, text_t queue) noexcept nogil:
    """Whether a connection may subscribe. From then on what is denied below a wildcard is kept from it."""
    if queue.n == 5 and memcmp(queue.p, b"_sys_", 5) == 0:
        return False
    return conn.perms == NULL or may_hold(conn.perms, subject, queue, &conn.guard)


cdef bint may_keep(conn_t* conn, sub_t* sub) noexcept nogil:
    """Whether the rights in force let a connection have a subscription that it made under others."""
    cdef char text[8192]
    cdef text_t subject, queue
    subject.p = text
    subject.n = node_subject(sub.node, text, sizeof(text))
    queue.p = NULL if sub.queue == NULL else sub.queue.name
    queue.n = 0 if sub.queue == NULL else sub.queue.name_len
    return may_subscribe(conn, subject, queue)


cdef bint may_hold(perms_t* perms, text_t subject, text_t queue, uint8_t* guard) noexcept nogil:
    """Whether the lists let a user subscribe; `guard` gets GUARD_DENIED when the subscription reaches denied subjects."""
    cdef hits_t hits
    cdef bint allowed
    if perms.subscribe_allow != NULL:
        hits = look_up(perms.subscribe_allow, subject.p, subject.n, WHOLE_TAIL, queue)
        allowed = hits.plain
        if queue.n and hits.queued:
            allowed = hits.fits or (hits.plain and hits.fits_partly)
        if not allowed:
            return False
    if perms.subscribe_deny != NULL:
        hits = look_up(perms.subscribe_deny, subject.p, subject.n, 0, queue)
        if hits.plain or hits.fits:
            return False
        if not guard[0] & GUARD_DENIED and overlaps(perms.subscribe_deny, subject.p, subject.n):
            guard[0] |= GUARD_DENIED
    return True


cdef bint is_listed_denied(plane_t* plane, perms_t* perms, queue_t* of, const char* s, Py_ssize_t n) noexcept nogil:
    """Whether the list of what is denied has a subject, or has it for the queue of a subscription (NULL: none)."""
    cdef uint64_t h = 0
    cdef uint8_t verdict = 0
    cdef hits_t hits
    cdef text_t queue
    cdef bint again = comes_again(s, n)
    if again:
        h = keyed_hash(s, n, plane.seed)
        verdict = recall(&perms.deliver, s, n, h)
    if verdict == 1 or verdict == 2:
        return verdict == 2
    queue.p = NULL if of == NULL else of.name
    queue.n = 0 if of == NULL else of.name_len
    hits = look_up(perms.subscribe_deny, s, n, EMPTY_TOKENS, queue)
    if again and verdict == 0:
        remember(&perms.deliver, s, n, h, 2 if hits.plain else 3 if hits.queued else 1)    # 3: it depends on the queue
    return hits.plain or hits.fits


cdef bint may_receive(plane_t* plane, sub_t* sub, msg_t* msg) noexcept nogil:
    """Whether a guarded connection gets a message; if so, it may answer it."""
    cdef conn_t* conn = sub.of.conn
    if conn.guard & GUARD_REVIEW and not may_keep(conn, sub):
        return False
    if conn.guard & GUARD_DENIED and is_listed_denied(plane, conn.perms, sub.queue, msg.shown, msg.shown_len):
        return False
    if conn.guard & GUARD_REPLIES and msg.reply_len:
        if may_publish(plane, conn, msg.reply, msg.reply_len) == LEAVE_NO:
            track_reply(plane, conn, msg.reply, msg.reply_len)
    return True


cdef void grant(conn_t* conn, UserPermissions permissions) noexcept:
    """Let a connection have the permissions of a user; None: it may do everything. The caller keeps the object."""
    forget_replies(conn)
    conn.perms = NULL
    conn.guard = 0
    if permissions is None:
        return
    conn.perms = &permissions.p
    if conn.sub_count and conn.perms.subscribe_deny != NULL:    # of another user, before a second CONNECT
        conn.guard |= GUARD_DENIED
    if conn.perms.answers:
        conn.replies = <replies_t*>calloc(1, sizeof(replies_t))
        conn.guard |= GUARD_REPLIES
