"""What subscriptions there are, for monitoring: nothing here is called for a message.

A row is (account, subject, queue, sid, messages delivered, limit of them, cid). A sink has no connection: its cid is 0. The
id of a route takes the place of both numbers. The row of a shadow has the numbers of its owner. What leads to another account
has neither.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from jetraft.api.plane._sublist cimport CACHE_ENTRIES, match_is_current, sublist_match_once
from jetraft.api.plane._tree cimport node_subject
from jetraft.api.plane._types cimport (
    GENERATIONS,
    SUB_ANSWERS,
    SUB_CLIENT,
    SUB_LEAF,
    SUB_LEAF_SHADOW,
    SUB_ROUTE,
    SUB_SERVICE,
    SUB_SHADOW,
    acct_t,
    conn_t,
    match_t,
    plain_of,
    plane_t,
    sid_of,
    sink_t,
    sub_t,
)


cdef tuple row_of(sub_t* sub):
    cdef char text[8192]
    cdef Py_ssize_t n = node_subject(sub.node, text, sizeof(text))
    account = sub.acct.name[:sub.acct.name_len]
    queue = b"" if sub.queue == NULL else sub.queue.name[:sub.queue.name_len]
    subject = PyBytes_FromStringAndSize(text, n)
    if sub.kind == SUB_SERVICE or sub.kind == SUB_ANSWERS:
        return account, subject, queue, b"", 0, 0, 0
    if sub.kind == SUB_SHADOW or sub.kind == SUB_LEAF_SHADOW:
        sub = sub.of.main
    if sub.kind == SUB_CLIENT or sub.kind == SUB_LEAF:
        sid = PyBytes_FromStringAndSize(sid_of(sub), sub.sid_len)
        return account, subject, queue, sid, sub.delivered, sub.max_msgs, sub.of.conn.cid
    if sub.kind == SUB_ROUTE:
        return account, subject, queue, b"%d" % sub.of.route.id, sub.delivered, 0, sub.of.route.id
    return account, subject, queue, b"%d" % sub.of.sink.id, sub.of.sink.msgs, 0, 0


cdef int add_bucket(list rows, conn_t* conn, uint32_t bucket) except -1:
    """Add the rows of one bucket of a connection's subscriptions."""
    cdef sub_t* sub = conn.buckets[bucket]
    while sub != NULL:
        rows.append(row_of(sub))
        sub = sub.next_in_bucket
    return 0


cdef list rows_of(conn_t* conn, uint32_t most):
    """The subscriptions of a connection, `most` of them at most."""
    cdef uint32_t bucket = 0
    rows = []
    while bucket < conn.bucket_count and len(rows) < most:
        add_bucket(rows, conn, bucket)
        bucket += 1
    return rows[:most]


cdef tuple rows_matching(plane_t* plane, acct_t* acct, bytes subject, uint64_t offset, uint64_t most):
    """How many subscriptions of an account receive a message on a subject, and the rows of some of them."""
    cdef match_t* match = sublist_match_once(plane, acct, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
    cdef uint64_t total = 0
    cdef uint32_t i
    cdef sub_t* sub
    rows = []
    for i in range(match.count + match.member_count):
        sub = plain_of(match)[i] if i < match.count else match.members[i - match.count]
        if sub.kind != SUB_ROUTE and not sub.closed:
            if offset <= total < offset + most:
                rows.append(row_of(sub))
            total += 1
    return total, rows


cdef tuple rows_from(plane_t* plane, acct_t* acct, uint64_t offset, uint64_t most):
    """How many subscriptions of clients and sinks an account has (NULL: all accounts), and the rows of some of them."""
    cdef uint64_t total = 0
    cdef uint32_t i, j
    cdef conn_t* conn
    cdef sub_t* sub
    rows = []
    for i in range(plane.conns.count):
        conn = <conn_t*>plane.conns.items[i]
        if acct != NULL and conn.acct != acct:
            continue
        if total + conn.sub_count <= offset or total >= offset + most:      # none of it is on this page
            total += conn.sub_count
            continue
        for j in range(conn.bucket_count):
            sub = conn.buckets[j]
            while sub != NULL:
                if offset <= total < offset + most:
                    rows.append(row_of(sub))
                total += 1
                sub = sub.next_in_bucket
    for i in range(plane.sinks.count):
        sub = (<sink_t*>plane.sinks.items[i]).subs
        while sub != NULL:
            if acct == NULL or sub.acct == acct:
                if offset <= total < offset + most:
                    rows.append(row_of(sub))
                total += 1
            sub = sub.next_of_owner
    return total, rows


cdef tuple cached_answers(plane_t* plane, acct_t* acct):
    """Of the current answers in the cache (NULL: of all accounts): how many, their receivers, the most of one."""
    cdef uint64_t count = 0, receivers = 0, most = 0, n
    cdef uint32_t i
    cdef match_t* match
    cdef acct_t* of
    cdef dict by_id = {}
    for i in range(plane.accts.count):
        of = <acct_t*>plane.accts.items[i]
        if of != NULL and (acct == NULL or of == acct):
            by_id[of.id] = <size_t>of
    for i in range(CACHE_ENTRIES):
        if plane.cache_tags[i] == 0:
            continue
        match = &plane.cache[i]
        address = by_id.get(match.key // GENERATIONS)
        if address is None or not match_is_current(plane, <acct_t*><size_t>address, match):
            continue
        n = match.count + match.group_count     # a queue group counts once
        count += 1
        receivers += n
        most = max(most, n)
    return count, receivers, most
