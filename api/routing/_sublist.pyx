"""The subject tree and the cache of its answers.

Tokens live in one open-addressing table keyed by (parent node, token), so a step down the tree is one probe whatever
the fan-out. `*` and `>` children hang on the node itself. A cached answer stays valid until a subscription below the
same first token, or one that starts with a wildcard, comes or goes: 256 generation counters, chosen by the first
token, keep the churn of inbox subscriptions away from the answers for stream subjects.

The cache is for what is published again and again, and is no larger than what a processor keeps near: finding an answer
far away in memory costs more than walking the tree, whose upper nodes every message uses. So when more subjects are
published than it holds, most of them are walked for and leave it alone.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from jetraft.api.wire._text cimport jr_hash
from jetraft.api.wire._types cimport GENERATIONS, buf_t, group_t, match_t, node_t, plane_t, queue_t, route_t, sub_t
from jetraft.api.wire._writer cimport buf_reserve

cdef enum:
    SUBJECT_MAX = 8192          # a control line is shorter
    TABLE_START = 1024          # grows by doubling at 70%
    CACHE_ENTRIES = 1 << 14     # about 3 MB with their contents; nats-server caches 1024 per sublist
    CACHE_WAYS = 4              # entries where an answer may be; their tags lie side by side
    CACHE_STEADY = 8            # of so many misses that find their places taken, one replaces another answer
    ENTRY_ALIGN = 128           # two lines of the processor's cache, which come together
    SUBJECT_NEAR = 24           # bytes of a subject that stand in its answer
    SUBS_START = 4              # room of a node or queue group with a second member
    CACHE_SUBJECT_MAX = 256     # longer subjects are matched each time, so the cache stays bounded in bytes


cdef int sublist_init(plane_t* plane) except -1:
    plane.table = <node_t**>calloc(TABLE_START, sizeof(node_t*))
    plane.table_mask = TABLE_START - 1
    plane.cache_memory = calloc(CACHE_ENTRIES * sizeof(match_t) + ENTRY_ALIGN, 1)
    plane.cache = <match_t*>((<size_t>plane.cache_memory + ENTRY_ALIGN - 1) & ~<size_t>(ENTRY_ALIGN - 1))
    plane.cache_tags = <uint32_t*>calloc(CACHE_ENTRIES, sizeof(uint32_t))
    if plane.table == NULL or plane.cache_memory == NULL or plane.cache_tags == NULL:
        raise MemoryError
    return 0


cdef void free_match(match_t* match) noexcept:
    if match.subject != match.near:
        free(match.subject)
    if match.subs != &match.only:
        free(match.subs)
    free(match.groups)
    free(match.members)
    free(match.queues)
    memset(match, 0, sizeof(match_t))


cdef void sublist_free(plane_t* plane) noexcept:
    """Free the tree's own memory; the subscriptions belong to their owners and are gone already."""
    cdef uint32_t i
    for i in range(CACHE_ENTRIES if plane.cache_memory != NULL else 0):
        free_match(&plane.cache[i])
    free_match(&plane.scratch)
    free(plane.cache_memory)
    free(plane.cache_tags)
    free(plane.table)


# -- the token table

cdef inline uint64_t node_hash(plane_t* plane, node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    return jr_hash(token, n, plane.seed ^ (<uint64_t><size_t>parent) * 0x9E3779B97F4A7C15u)


cdef inline node_t* find_child(plane_t* plane, node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    cdef uint64_t h
    cdef uint32_t i
    cdef node_t* node
    if parent.children == 0:
        return NULL
    h = node_hash(plane, parent, token, n)
    i = <uint32_t>h & plane.table_mask
    while True:
        node = plane.table[i]
        if node == NULL:
            return NULL
        if node.hash == h and node.parent == parent and node.token_len == n and memcmp(node.token, token, n) == 0:
            return node
        i = (i + 1) & plane.table_mask


cdef void place(plane_t* plane, node_t* node) noexcept nogil:
    cdef uint32_t i = <uint32_t>node.hash & plane.table_mask
    while plane.table[i] != NULL:
        i = (i + 1) & plane.table_mask
    plane.table[i] = node


cdef void grow_table(plane_t* plane) noexcept nogil:
    cdef node_t** old = plane.table
    cdef uint32_t i, size = plane.table_mask + 1
    cdef node_t** table = <node_t**>calloc(size * 2, sizeof(node_t*))
    if table == NULL:
        return
    plane.table = table
    plane.table_mask = size * 2 - 1
    for i in range(size):
        if old[i] != NULL:
            place(plane, old[i])
    free(old)


cdef void unplace(plane_t* plane, node_t* node) noexcept nogil:
    """Take a node out of the table; later entries of its run move back, so no tombstones collect."""
    cdef uint32_t i = <uint32_t>node.hash & plane.table_mask, j, home
    while plane.table[i] != node:
        i = (i + 1) & plane.table_mask
    j = i
    while True:
        j = (j + 1) & plane.table_mask
        if plane.table[j] == NULL:
            break
        home = <uint32_t>plane.table[j].hash & plane.table_mask
        if ((j - home) & plane.table_mask) >= ((j - i) & plane.table_mask):
            plane.table[i] = plane.table[j]
            i = j
    plane.table[i] = NULL
    plane.table_used -= 1


cdef node_t* new_node(node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    """A node without subscriptions, its token behind it in the same piece of memory."""
    cdef node_t* node = <node_t*>calloc(1, sizeof(node_t) + n)
    node.parent = parent
    node.token = <char*>(node + 1)
    memcpy(node.token, token, n)
    node.token_len = <unsigned short>n
    return node


cdef node_t* child(plane_t* plane, node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    """The child for one token, made when it is missing."""
    cdef node_t* node
    if n == 1 and token[0] == c"*":
        if parent.star == NULL:
            parent.star = new_node(parent, token, n)
        return parent.star
    if n == 1 and token[0] == c">":
        if parent.rest == NULL:
            parent.rest = new_node(parent, token, n)
        return parent.rest
    node = find_child(plane, parent, token, n)
    if node != NULL:
        return node
    if plane.table_used * 10 >= (plane.table_mask + 1) * 7:
        grow_table(plane)
    node = new_node(parent, token, n)
    node.hash = node_hash(plane, parent, token, n)
    place(plane, node)
    plane.table_used += 1
    parent.children += 1
    return node


cdef void prune(plane_t* plane, node_t* node) noexcept nogil:
    """Free the node and its ancestors as long as nothing hangs on them."""
    cdef node_t* parent
    while node != &plane.root and not (node.count or node.queues != NULL or node.children or node.star != NULL or node.rest != NULL):
        parent = node.parent
        if parent.star == node:
            parent.star = NULL
        elif parent.rest == node:
            parent.rest = NULL
        else:
            unplace(plane, node)
            parent.children -= 1
        if node.subs != &node.only:
            free(node.subs)
        free(node)
        node = parent


cdef Py_ssize_t node_subject(plane_t* plane, node_t* node, char* out, Py_ssize_t cap) noexcept nogil:
    """Write the node's full subject at out and return its length (0 when it does not fit in cap bytes)."""
    cdef Py_ssize_t total = 0, at
    cdef node_t* step = node
    while step != &plane.root:
        total += step.token_len + (0 if step.parent == &plane.root else 1)
        step = step.parent
    if total > cap:
        return 0
    at = total
    step = node
    while step != &plane.root:
        at -= step.token_len
        memcpy(out + at, step.token, step.token_len)
        if step.parent != &plane.root:
            at -= 1
            out[at] = c"."
        step = step.parent
    return total


# -- change

cdef inline uint32_t bucket_of(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil:
    cdef const char* dot = <const char*>memchr(subject, c".", n)
    return <uint32_t>jr_hash(subject, n if dot == NULL else dot - subject, plane.seed) & (GENERATIONS - 1)


cdef void touch(plane_t* plane, node_t* node) noexcept nogil:
    """Forget the cached answers that a change at this node may alter."""
    while node.parent != &plane.root:
        node = node.parent
    if node.token_len == 1 and (node.token[0] == c"*" or node.token[0] == c">"):
        plane.wild_generation += 1
    else:
        plane.generations[<uint32_t>jr_hash(node.token, node.token_len, plane.seed) & (GENERATIONS - 1)] += 1


cdef void note_change(plane_t* plane, sub_t* sub) noexcept nogil:
    """Remember the subject of a subscription that comes or goes, for those who watch interest."""
    cdef char* w
    cdef uint16_t n
    if not plane.note_interest:
        return
    w = buf_reserve(&plane.interest_changes, 2 + SUBJECT_MAX)
    n = <uint16_t>node_subject(plane, sub.node, w + 2, SUBJECT_MAX)
    memcpy(w, &n, 2)
    plane.interest_changes.end += 2 + n


cdef queue_t* queue_of(plane_t* plane, node_t* node, const char* name, Py_ssize_t n) noexcept nogil:
    cdef uint64_t h = jr_hash(name, n, plane.seed)
    cdef queue_t* queue = node.queues
    while queue != NULL:
        if queue.hash == h and queue.name_len == n and memcmp(queue.name, name, n) == 0:
            return queue
        queue = queue.next
    queue = <queue_t*>calloc(1, sizeof(queue_t))
    queue.name = <char*>malloc(n + 1)
    memcpy(queue.name, name, n)
    queue.name_len = <unsigned short>n
    queue.hash = h
    queue.next = node.queues
    node.queues = queue
    return queue


cdef inline void push_sub(sub_t*** items, uint32_t* count, uint32_t* cap, sub_t* sub) noexcept nogil:
    if count[0] == cap[0]:
        cap[0] = cap[0] * 2 if cap[0] else SUBS_START
        items[0] = <sub_t**>realloc(items[0], cap[0] * sizeof(sub_t*))
    items[0][count[0]] = sub
    count[0] += 1


cdef inline void push_plain(sub_t*** items, uint32_t* count, uint32_t* cap, sub_t** only, sub_t* sub) noexcept nogil:
    """The same for a node's or an answer's plain subscriptions: most have one, which has its place there, at `only`."""
    if cap[0] == 0:
        items[0] = only
        cap[0] = 1
    elif items[0] == only and count[0] == 1:
        items[0] = <sub_t**>malloc(SUBS_START * sizeof(sub_t*))
        items[0][0] = only[0]
        cap[0] = SUBS_START
    push_sub(items, count, cap, sub)


cdef void drop_sub(sub_t** items, uint32_t* count, sub_t* sub) noexcept nogil:
    """Remove by keeping the order of the rest: members are chosen by index, tests rely on a stable order."""
    cdef uint32_t i, j
    for i in range(count[0]):
        if items[i] == sub:
            for j in range(i + 1, count[0]):
                items[j - 1] = items[j]
            count[0] -= 1
            return


cdef bint sublist_add(
    plane_t* plane, sub_t* sub, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn
) noexcept nogil:
    """Insert; the subject is valid. True when peers must be told: the first local interest, or a queue's new weight."""
    cdef node_t* node = &plane.root
    cdef const char* dot
    cdef bint tell = sub.kind != 2 and not sub.local_only
    while True:
        dot = <const char*>memchr(subject, c".", n)
        if dot == NULL:
            node = child(plane, node, subject, n)
            break
        node = child(plane, node, subject, dot - subject)
        n -= dot - subject + 1
        subject = dot + 1
    sub.node = node
    plane.sub_count += 1
    if qn:
        sub.queue = queue_of(plane, node, queue, qn)
        push_sub(&sub.queue.members, &sub.queue.count, &sub.queue.cap, sub)
        if tell:
            sub.queue.local_count += 1
    else:
        push_plain(&node.subs, &node.count, &node.cap, &node.only, sub)
        if tell:
            node.local_count += 1
            tell = node.local_count == 1
    touch(plane, node)
    note_change(plane, sub)
    return tell


cdef void sublist_remove(plane_t* plane, sub_t* sub) noexcept nogil:
    """Take the subscription out. The caller has told peers already, by the counts as they were before."""
    cdef node_t* node = sub.node
    cdef queue_t* queue = sub.queue
    cdef queue_t** link
    cdef bint tell = sub.kind != 2 and not sub.local_only
    touch(plane, node)
    note_change(plane, sub)
    plane.sub_count -= 1
    if queue != NULL:
        drop_sub(queue.members, &queue.count, sub)
        if tell:
            queue.local_count -= 1
        if queue.count == 0:
            link = &node.queues
            while link[0] != queue:
                link = &link[0].next
            link[0] = queue.next
            # A match result that is being walked may still name it: freed at the end of the turn.
            queue.next = plane.dead_queues
            plane.dead_queues = queue
    else:
        drop_sub(node.subs, &node.count, sub)
        if tell:
            node.local_count -= 1
    sub.node = NULL
    sub.queue = NULL
    prune(plane, node)


cdef sub_t* sublist_find_route(
    plane_t* plane, route_t* route, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn
) noexcept nogil:
    """The subscription that stands for a peer's interest in exactly this subject and queue, or NULL."""
    cdef node_t* node = &plane.root
    cdef queue_t* group
    cdef const char* dot
    cdef Py_ssize_t token
    cdef uint32_t i
    while node != NULL:
        dot = <const char*>memchr(subject, c".", n)
        token = n if dot == NULL else dot - subject
        if token == 1 and subject[0] == c"*":
            node = node.star
        elif token == 1 and subject[0] == c">":
            node = node.rest
        else:
            node = find_child(plane, node, subject, token)
        if dot == NULL:
            break
        n -= token + 1
        subject = dot + 1
    if node == NULL:
        return NULL
    if qn == 0:
        for i in range(node.count):
            if node.subs[i].route == route:
                return node.subs[i]
        return NULL
    group = node.queues
    while group != NULL:
        if group.name_len == qn and memcmp(group.name, queue, qn) == 0:
            for i in range(group.count):
                if group.members[i].route == route:
                    return group.members[i]
        group = group.next
    return NULL


# -- match

cdef void take(match_t* out, node_t* node) noexcept nogil:
    cdef uint32_t i
    cdef queue_t* queue = node.queues
    for i in range(node.count):
        push_plain(&out.subs, &out.count, &out.cap, &out.only, node.subs[i])
    while queue != NULL:
        if out.queue_count == out.queue_cap:
            out.queue_cap = out.queue_cap * 2 if out.queue_cap else 4
            out.queues = <queue_t**>realloc(out.queues, out.queue_cap * sizeof(queue_t*))
        out.queues[out.queue_count] = queue
        out.queue_count += 1
        queue = queue.next


cdef const char* walk(plane_t* plane, node_t* node, const char* s, Py_ssize_t n, match_t* out) noexcept nogil:
    """Collect below `node` for the tokens of s. Depth is the number of tokens, bounded by max_control_line / 2.

    Returns where the part of s ends that had a say: what follows, if anything does, could be anything.
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


cdef void group_queues(match_t* out) noexcept nogil:
    """Queue subscriptions of one name that match by different subjects form one group (server/sublist.go)."""
    cdef uint32_t i, j, k
    cdef queue_t* queue
    cdef group_t* group
    cdef bint known
    out.group_count = 0
    out.member_count = 0
    for i in range(out.queue_count):
        queue = out.queues[i]
        known = False
        for j in range(i):
            if out.queues[j].hash == queue.hash and out.queues[j].name_len == queue.name_len and memcmp(out.queues[j].name, queue.name, queue.name_len) == 0:
                known = True
                break
        if known:
            continue
        if out.group_count == out.group_cap:
            out.group_cap = out.group_cap * 2 if out.group_cap else 2
            out.groups = <group_t*>realloc(out.groups, out.group_cap * sizeof(group_t))
        group = &out.groups[out.group_count]
        out.group_count += 1
        group.name = queue.name
        group.name_len = queue.name_len
        group.first = out.member_count
        for j in range(i, out.queue_count):
            if out.queues[j].hash == queue.hash and out.queues[j].name_len == queue.name_len and memcmp(out.queues[j].name, queue.name, queue.name_len) == 0:
                for k in range(out.queues[j].count):
                    push_sub(&out.members, &out.member_count, &out.member_cap, out.queues[j].members[k])
        group.count = out.member_count - group.first


cdef Py_ssize_t fill(plane_t* plane, const char* subject, Py_ssize_t n, match_t* out) noexcept nogil:
    """Work the answer out; returns how many bytes of the subject it depends on."""
    cdef const char* end
    out.count = 0
    out.queue_count = 0
    end = walk(plane, &plane.root, subject, n, out)
    group_queues(out)
    return end - subject


cdef bint match_is_current(plane_t* plane, match_t* match) noexcept nogil:
    return match.wild_generation == plane.wild_generation and match.generation == plane.generations[match.bucket]


cdef inline void remember(plane_t* plane, match_t* match, const char* subject, Py_ssize_t n) noexcept nogil:
    """Note for which subject an answer is, and what it depends on. The whole subject chose the bucket's first token."""
    if match.subject_cap < n:
        if n <= SUBJECT_NEAR:
            match.subject = match.near
            match.subject_cap = SUBJECT_NEAR
        else:
            match.subject = <char*>realloc(NULL if match.subject == match.near else match.subject, n)
            match.subject_cap = <unsigned short>n
    memcpy(match.subject, subject, n)
    match.subject_len = <unsigned short>n
    match.bucket = bucket_of(plane, subject, n)
    match.generation = plane.generations[match.bucket]
    match.wild_generation = plane.wild_generation


cdef inline bint scratch_answers(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil:
    """Tell whether the last answer given once is that of all subjects that begin like this one."""
    cdef match_t* match = &plane.scratch
    return (
        match.subject_len and n > match.subject_len
        and memcmp(match.subject, subject, match.subject_len) == 0
        and match_is_current(plane, match)
    )


cdef match_t* sublist_match_once(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil:
    """The answer for a subject that will not come again (an inbox, an ack): no cache entry is spent on it.

    Acks come in rows that differ only in the numbers at their end, on which no subscription depends: the answer is
    kept for all subjects that begin alike. Valid until the next call.
    """
    cdef match_t* match = &plane.scratch
    cdef Py_ssize_t used
    if scratch_answers(plane, subject, n):
        return match
    used = fill(plane, subject, n, match)
    if 0 < used < n:
        remember(plane, match, subject, used)
    else:
        match.subject_len = 0
    return match


cdef match_t* sublist_match(plane_t* plane, const char* subject, Py_ssize_t n) noexcept nogil:
    """The answer for a subject, from the cache when it is current. Valid until the next change or call."""
    cdef uint64_t h
    cdef uint32_t tag, first, way
    cdef match_t* match
    if n > CACHE_SUBJECT_MAX or scratch_answers(plane, subject, n):
        return sublist_match_once(plane, subject, n)
    h = jr_hash(subject, n, plane.seed)
    tag = <uint32_t>(h >> 32) | 1
    first = <uint32_t>h & (CACHE_ENTRIES - CACHE_WAYS)
    for way in range(CACHE_WAYS):
        if plane.cache_tags[first + way] == tag:
            match = &plane.cache[first + way]
            if match.subject_len == n and memcmp(match.subject, subject, n) == 0:
                if match_is_current(plane, match):
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
                return sublist_match_once(plane, subject, n)
    plane.cache_misses += 1
    plane.cache_tags[first + way] = tag
    match = &plane.cache[first + way]
    fill(plane, subject, n, match)
    remember(plane, match, subject, n)
    return match
