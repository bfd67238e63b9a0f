"""The answers: who gets a message of a subject of an account, and the cache of what was found out.

A cached answer stays valid until a subscription below the same first token, or one that starts with a wildcard, comes
or goes: 256 generation counters, chosen by the first token, keep the churn of inbox subscriptions away from the answers
for stream subjects. Accounts share the cache and the counters, with hashes of their own; an answer says whose it is.

The cache is for subjects that are published repeatedly, and fits into the processor's cache: an answer in distant
memory costs more than a walk down the tree, whose upper nodes every message reads. So if more subjects are published
than fit, most of them walk the tree and do not replace an entry.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from jetraft.api.plane._tree cimport find_child, push_sub
from jetraft.api.plane._text cimport has_empty_token
from jetraft.api.plane._types cimport (
    GENERATIONS,
    LINE_BYTES,
    SUBJECT_NEAR,
    acct_t,
    group_t,
    plain_subs,
    key_of,
    match_t,
    node_t,
    plane_t,
    queue_t,
    sub_t,
    subject_of,
)
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef enum:
    CACHE_STEADY = 8            # misses that find their places taken for each that replaces an answer
    SUBS_START = 4              # capacity of an answer with a second receiver
    FEW_QUEUES = 16             # of an answer, whose names are compared with each other


cdef int answers_init(plane_t* plane) except -1:
    plane.cache_memory = calloc(CACHE_ENTRIES * sizeof(match_t) + LINE_BYTES, 1)
    plane.cache = <match_t*>((<size_t>plane.cache_memory + LINE_BYTES - 1) & ~<size_t>(LINE_BYTES - 1))
    plane.cache_tags = <uint32_t*>calloc(CACHE_ENTRIES, sizeof(uint32_t))
    if plane.cache_memory == NULL or plane.cache_tags == NULL:
        raise MemoryError
    return 0


cdef void free_match(match_t* match) noexcept:
    free(match.subject)
    free(match.subs)
    free(match.groups)
    free(match.members)
    free(match.queues)
    memset(match, 0, sizeof(match_t))


cdef void answers_free(plane_t* plane) noexcept:
    cdef uint32_t i
    for i in range(CACHE_ENTRIES if plane.cache_memory != NULL else 0):
        free_match(&plane.cache[i])
    free_match(&plane.scratch)
    free(plane.cache_memory)
    free(plane.cache_tags)


# -- matching

cdef inline void add_plain(match_t* out, sub_t* sub) noexcept nogil:
    """Add a plain subscription. Most answers have one, which is stored in the answer itself."""
    if out.count == 0:
        out.only = sub
        out.count = 1
        return
    if out.count == 1:
        if out.cap == 0:
            out.subs = <sub_t**>malloc(SUBS_START * sizeof(sub_t*))
            out.cap = SUBS_START
        out.subs[0] = out.only
    push_sub(&out.subs, &out.count, &out.cap, sub)


cdef void take(match_t* out, node_t* node) noexcept nogil:
    cdef uint32_t i
    cdef queue_t* queue = node.queues
    for i in range(node.count):
        add_plain(out, plain_subs(node)[i])
    while queue != NULL:
        if out.queue_count == out.queue_cap:
            out.queue_cap = out.queue_cap * 2 if out.queue_cap else 4
            out.queues = <queue_t**>realloc(out.queues, out.queue_cap * sizeof(queue_t*))
        out.queues[out.queue_count] = queue
        out.queue_count += 1
        queue = queue.next


cdef const char* walk(plane_t* plane, node_t* node, const char* s, Py_ssize_t n, match_t* out) noexcept nogil:
    """Collect the subscriptions below `node` that match s. Depth is the number of tokens, at most max_control_line / 2.

    Returns the end of the part of s on which the result depends.
    """
    cdef const char* dot
    cdef const char* end
    cdef const char* deeper
    cdef node_t* next_node
    cdef Py_ssize_t token
    if node.rest != NULL:
        take(out, node.rest)
    if node.children == 0 and node.star == NULL:
        return s
    dot = <const char*>memchr(s, c".", n)
    token = n if dot == NULL else dot - s
    end = s + n if dot == NULL else dot + 1
    next_node = find_child(plane, node, s, token)
    if next_node != NULL:
        if dot == NULL:
            take(out, next_node)
        else:
            end = walk(plane, next_node, dot + 1, n - token - 1, out)
    if node.star != NULL:
        if dot == NULL:
            take(out, node.star)
        else:
            deeper = walk(plane, node.star, dot + 1, n - token - 1, out)
            end = deeper if deeper > end else end
    return end


cdef uint32_t group_named(match_t* out, queue_t* queue, uint32_t* places, uint32_t mask) noexcept nogil:
    """The number of the group of this name, one more than there are when it is new; `places` (by hash) are for many."""
    cdef uint32_t i, at = <uint32_t>queue.hash & mask
    cdef group_t* group
    if places == NULL:
        for i in range(out.group_count):
            group = &out.groups[i]
            if group.name_len == queue.name_len and memcmp(group.name, queue.name, queue.name_len) == 0:
                return i
        return out.group_count
    while places[at]:
        group = &out.groups[places[at] - 1]
        if group.name_len == queue.name_len and memcmp(group.name, queue.name, queue.name_len) == 0:
            return places[at] - 1
        at = (at + 1) & mask
    places[at] = out.group_count + 1
    return out.group_count


cdef void group_queues(match_t* out) noexcept nogil:
    """Join queue subscriptions with one name and different subjects into one group (server/sublist.go).

    Groups are in the order of their first queues, and members in that of theirs. Time is linear in both.
    """
    cdef uint32_t i, at, mask = 0
    cdef uint32_t* places = NULL
    cdef uint32_t few[FEW_QUEUES]
    cdef uint32_t* numbers = few
    cdef queue_t* queue
    cdef group_t* group
    out.group_count = 0
    out.member_count = 0
    if out.queue_count == 0:
        return
    if out.queue_count > FEW_QUEUES:
        numbers = <uint32_t*>malloc(out.queue_count * sizeof(uint32_t))
        mask = 2 * FEW_QUEUES - 1
        while mask < 2 * out.queue_count:
            mask = 2 * mask + 1
        places = <uint32_t*>calloc(<size_t>mask + 1, sizeof(uint32_t))
        if numbers == NULL or places == NULL:       # as if no group had a member
            free(numbers)
            free(places)
            return
    for i in range(out.queue_count):
        queue = out.queues[i]
        at = numbers[i] = group_named(out, queue, places, mask)
        if at == out.group_count:
            if out.group_count == out.group_cap:
                out.group_cap = out.group_cap * 2 if out.group_cap else 2
                out.groups = <group_t*>realloc(out.groups, out.group_cap * sizeof(group_t))
            out.group_count += 1
            out.groups[at].name = queue.name
            out.groups[at].name_len = queue.name_len
            out.groups[at].count = 0
        out.groups[at].count += queue.count
    for i in range(out.group_count):
        out.groups[i].first = out.member_count
        out.member_count += out.groups[i].count
        out.groups[i].count = 0
    if out.member_count > out.member_cap:
        out.member_cap = out.member_count
        out.members = <sub_t**>realloc(out.members, out.member_cap * sizeof(sub_t*))
    for i in range(out.queue_count):
        group = &out.groups[numbers[i]]
        queue = out.queues[i]
        memcpy(&out.members[group.first + group.count], queue.members, queue.count * sizeof(sub_t*))
        group.count += queue.count
    if out.queue_count > FEW_QUEUES:
        free(numbers)
        free(places)


cdef Py_ssize_t fill(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n, match_t* out) noexcept nogil:
    """Work the answer out; returns how many bytes of the subject it depends on. Nothing matches an empty token."""
    cdef const char* end = subject + n
    out.count = 0
    out.queue_count = 0
    if not has_empty_token(subject, n):
        end = walk(plane, &acct.root, subject, n, out)
    group_queues(out)
    return end - subject


# -- caching

cdef inline uint32_t bucket_of(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil:
    cdef const char* dot = <const char*>memchr(subject, c".", n)
    return <uint32_t>keyed_hash(subject, n if dot == NULL else dot - subject, plane.seed ^ acct.salt) & (GENERATIONS - 1)


cdef inline void remember(plane_t* plane, acct_t* acct, match_t* match, const char* subject, Py_ssize_t n) noexcept nogil:
    """Note for which subject an answer is, and what it depends on. The whole subject chose the bucket's first token."""
    cdef uint32_t bucket = bucket_of(plane, acct, subject, n)
    if n <= SUBJECT_NEAR:
        memcpy(match.near, subject, n)
    else:
        if match.subject_cap < n:
            match.subject = <char*>realloc(match.subject, n)
            match.subject_cap = <uint16_t>n
        memcpy(match.subject, subject, n)
    match.subject_len = <uint16_t>n
    match.key = key_of(acct, bucket)
    match.generation = plane.generations[bucket]
    match.wild_generation = acct.wild_generation


cdef bint scratch_answers(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil:
    """Tell whether the last answer given once is that of all subjects of the account that begin like this one.

    It ends where a token begins; a subject with an empty token after that has an answer of its own.
    """
    cdef match_t* match = &plane.scratch
    return (
        match.subject_len and n > match.subject_len
        and memcmp(subject_of(match), subject, match.subject_len) == 0
        and match_is_current(plane, acct, match)
        and not has_empty_token(subject + match.subject_len, n - match.subject_len)
    )


cdef match_t* sublist_match_once(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil:
    """The answer for a subject that will not come again (an inbox, an ack): no cache entry is spent on it.

    Successive acks differ only in the numbers at their end, on which no subscription depends: the answer is kept for
    all subjects with the same prefix.
    """
    cdef match_t* match = &plane.scratch
    cdef Py_ssize_t used
    if scratch_answers(plane, acct, subject, n):
        return match
    used = fill(plane, acct, subject, n, match)
    if 0 < used < n:
        remember(plane, acct, match, subject, used)
    else:
        match.subject_len = 0
    return match


cdef match_t* sublist_match(plane_t* plane, acct_t* acct, const char* subject, Py_ssize_t n) noexcept nogil:
    """The answer for a subject, from the cache when it is current. Valid until the next change or call."""
    cdef uint64_t h
    cdef uint32_t tag, first, way
    cdef match_t* match
    if n > CACHE_SUBJECT_MAX or scratch_answers(plane, acct, subject, n):
        return sublist_match_once(plane, acct, subject, n)
    h = keyed_hash(subject, n, plane.seed ^ acct.salt)
    tag = <uint32_t>(h >> 32) | 1
    first = <uint32_t>h & (CACHE_ENTRIES - CACHE_WAYS)
    for way in range(CACHE_WAYS):
        if plane.cache_tags[first + way] == tag:
            match = &plane.cache[first + way]
            if match.subject_len == n and memcmp(subject_of(match), subject, n) == 0:
                if match_is_current(plane, acct, match):
                    return match
                break
    else:
        way = 0
        while way < CACHE_WAYS and plane.cache_tags[first + way]:
            way += 1
        if way == CACHE_WAYS:
            way = <uint32_t>(plane.cache_misses // CACHE_STEADY) % CACHE_WAYS
            if plane.cache_misses % CACHE_STEADY:
                plane.cache_misses += 1
                return sublist_match_once(plane, acct, subject, n)
    plane.cache_misses += 1
    plane.cache_tags[first + way] = tag
    match = &plane.cache[first + way]
    fill(plane, acct, subject, n, match)
    remember(plane, acct, match, subject, n)
    return match
