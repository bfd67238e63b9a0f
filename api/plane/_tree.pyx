"""The subject trees, one for each account: which subscriptions add_plain where.

Tokens live in one open-addressing table keyed by (parent node, token), or in the one before while it grows, so a step down a tree is one probe whatever
the fan-out, and the trees share it: an account is a root. `*` and `>` children add_plain on the node itself. What a subject's answer is, is found out in _sublist.pyx.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcpy, memmove

from jetraft.api.plane._queues cimport find_queue, queue_of, unlink_queue
from jetraft.api.plane._tree cimport find_child, node_hash
from jetraft.api.plane._types cimport (
    GENERATIONS,
    SUB_ROUTE,
    acct_t,
    plain_subs,
    node_t,
    plane_t,
    queue_t,
    route_t,
    slot_t,
    sub_t,
    token_of,
)
from jetraft.api.plane._writer cimport buf_reserve
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef enum:
    SUBJECT_MAX = 8192          # a control line is shorter
    TABLE_START = 1024          # grows by doubling at 70%
    MOVES_PER_NODE = 8          # places of the table before that are looked at for each node that is added
    SUBS_START = 4              # room of a node or queue group with a second member
    IN_ORDER_MAX = 64           # subscriptions of a node, or members of a group, that stay in order when one of them ends


cdef int tree_init(plane_t* plane) except -1:
    plane.table = <slot_t*>calloc(TABLE_START, sizeof(slot_t))
    plane.table_mask = TABLE_START - 1
    if plane.table == NULL:
        raise MemoryError
    return 0


cdef void tree_free(plane_t* plane) noexcept:
    """Free the table and the slabs. Nodes and long sids are not freed: a plane lives as long as the process."""
    cdef uint32_t i
    for i in range(plane.sub_slabs.count):
        free(plane.sub_slabs.items[i])
    free(plane.sub_slabs.items)
    free(plane.queues)
    free(plane.table)
    free(plane.table_before)


# -- the token table

cdef inline void place(plane_t* plane, node_t* node, uint32_t hash) noexcept nogil:
    cdef uint32_t i = hash & plane.table_mask
    while plane.table[i].node != NULL:
        i = (i + 1) & plane.table_mask
    plane.table[i].node = node
    plane.table[i].hash = hash


cdef void grow_table(plane_t* plane) noexcept nogil:
    """Begin a table of twice the size. The nodes move when others are added: a million at once took 50 ms."""
    cdef uint32_t size = plane.table_mask + 1
    cdef slot_t* table
    if plane.table_before != NULL:
        move_nodes(plane, plane.table_before_mask + 1)
    table = <slot_t*>calloc(<size_t>size * 2, sizeof(slot_t))
    if table == NULL:
        return
    plane.table_before = plane.table
    plane.table_before_mask = plane.table_mask
    plane.table_moved = 0
    plane.table = table
    plane.table_mask = size * 2 - 1


cdef void move_nodes(plane_t* plane, uint32_t places) noexcept nogil:
    """Move the nodes of so many places of the table before; they stay occupied there, as others were probed beyond them.

    No node is read: places in both tables follow each other, nodes are all over the memory.
    """
    cdef slot_t* slot
    cdef uint32_t end = plane.table_before_mask + 1
    if places < end - plane.table_moved:
        end = plane.table_moved + places
    while plane.table_moved < end:
        slot = &plane.table_before[plane.table_moved]
        if slot.node != NULL and slot.node != &plane.gone:
            place(plane, slot.node, slot.hash)
            slot.node = &plane.gone
        plane.table_moved += 1
    if plane.table_moved > plane.table_before_mask:
        free(plane.table_before)
        plane.table_before = NULL


cdef void unplace(plane_t* plane, node_t* node) noexcept nogil:
    """Remove a node from its table; later entries of its run move back in the newer one, so it needs no tombstones."""
    cdef uint32_t i = node.hash & plane.table_mask, j, home
    plane.table_used -= 1
    while plane.table[i].node != node and plane.table[i].node != NULL:
        i = (i + 1) & plane.table_mask
    if plane.table[i].node == NULL:
        i = node.hash & plane.table_before_mask
        while plane.table_before[i].node != node:
            i = (i + 1) & plane.table_before_mask
        plane.table_before[i].node = &plane.gone
        return
    j = i
    while True:
        j = (j + 1) & plane.table_mask
        if plane.table[j].node == NULL:
            break
        home = plane.table[j].hash & plane.table_mask
        if ((j - home) & plane.table_mask) >= ((j - i) & plane.table_mask):
            plane.table[i] = plane.table[j]
            i = j
    plane.table[i].node = NULL


cdef node_t* new_node(node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    """Allocate a node without subscriptions; its token follows it in the same allocation."""
    cdef node_t* node = <node_t*>calloc(1, sizeof(node_t) + n)
    node.parent = parent
    memcpy(token_of(node), token, n)
    node.token_len = <uint16_t>n
    return node


cdef node_t* child(plane_t* plane, node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    """The child for one token, which is created if it is missing."""
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
    if <uint64_t>plane.table_used * 10 >= (<uint64_t>plane.table_mask + 1) * 7:
        grow_table(plane)
    if plane.table_before != NULL:
        move_nodes(plane, MOVES_PER_NODE)
    node = new_node(parent, token, n)
    node.hash = <uint32_t>node_hash(plane, parent, token, n)
    place(plane, node, node.hash)
    plane.table_used += 1
    parent.children += 1
    return node


cdef void prune(plane_t* plane, node_t* node) noexcept nogil:
    """Free the node and its ancestors up to the first that is in use."""
    cdef node_t* parent
    while node.parent != NULL and not (node.count or node.queues != NULL or node.children or node.star != NULL or node.rest != NULL):
        parent = node.parent
        if parent.star == node:
            parent.star = NULL
        elif parent.rest == node:
            parent.rest = NULL
        else:
            unplace(plane, node)
            parent.children -= 1
        if node.cap:
            free(node.plain.subs)
        free(node)
        node = parent


cdef Py_ssize_t node_subject(node_t* node, char* out, Py_ssize_t cap) noexcept nogil:
    """Write the node's full subject at out and return its length (0 when it does not fit in cap bytes)."""
    cdef Py_ssize_t total = 0, at
    cdef node_t* step = node
    while step.parent != NULL:
        total += step.token_len + (0 if step.parent.parent == NULL else 1)
        step = step.parent
    if total > cap:
        return 0
    at = total
    step = node
    while step.parent != NULL:
        at -= step.token_len
        memcpy(out + at, token_of(step), step.token_len)
        if step.parent.parent != NULL:
            at -= 1
            out[at] = c"."
        step = step.parent
    return total


# -- changes

cdef void touch(plane_t* plane, acct_t* acct, node_t* node) noexcept nogil:
    """Forget the cached answers that a change at this node of the account may alter."""
    while node.parent != &acct.root:
        node = node.parent
    if node.token_len == 1 and (token_of(node)[0] == c"*" or token_of(node)[0] == c">"):
        acct.wild_generation += 1
    else:
        plane.generations[<uint32_t>keyed_hash(token_of(node), node.token_len, plane.seed ^ acct.salt) & (GENERATIONS - 1)] += 1


cdef void note_change(plane_t* plane, sub_t* sub) noexcept nogil:
    """Record the subject of a subscription that is added or removed, for watches of interest."""
    cdef char* w
    cdef uint16_t n
    if not plane.note_interest:
        return
    w = buf_reserve(&plane.interest_changes, 6 + SUBJECT_MAX)
    n = <uint16_t>node_subject(sub.node, w + 6, SUBJECT_MAX)
    memcpy(w, &sub.acct.id, 4)
    memcpy(w + 4, &n, 2)
    plane.interest_changes.end += 6 + n


cdef void push_sub(sub_t*** items, uint32_t* count, uint32_t* cap, sub_t* sub) noexcept nogil:
    """Append to a growing array."""
    if count[0] == cap[0]:
        cap[0] = cap[0] * 2 if cap[0] else SUBS_START
        items[0] = <sub_t**>realloc(items[0], cap[0] * sizeof(sub_t*))
    items[0][count[0]] = sub
    count[0] += 1


cdef void add_plain(node_t* node, sub_t* sub) noexcept nogil:
    """Add a plain subscription to its node. Most nodes have one, which is stored in the node itself."""
    cdef sub_t** subs
    sub.place = node.count
    if node.cap == 0:
        if node.count == 0:
            node.plain.only = sub
            node.count = 1
            return
        subs = <sub_t**>malloc(SUBS_START * sizeof(sub_t*))
        subs[0] = node.plain.only
        node.plain.subs = subs
        node.cap = SUBS_START
    push_sub(&node.plain.subs, &node.count, &node.cap, sub)


cdef void drop_sub(sub_t** items, uint32_t* count, sub_t* sub) noexcept nogil:
    """Remove from an array: few keep their order, of many the last one takes the place that is free.

    So one is never behind its `place`, and exactly there unless that is among the first IN_ORDER_MAX: to look for it
    takes that many steps at most.
    """
    cdef uint32_t i = min(sub.place, count[0] - 1), last = count[0] - 1
    while items[i] != sub:
        i -= 1
    if count[0] > IN_ORDER_MAX:
        items[i] = items[last]
        items[i].place = i
    else:
        memmove(&items[i], &items[i + 1], (last - i) * sizeof(sub_t*))
    count[0] = last


cdef bint sublist_add(
    plane_t* plane, acct_t* acct, sub_t* sub, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn
) noexcept nogil:
    """Insert; the subject is valid. True when peers must be told: the first local interest, or a queue's new weight."""
    cdef node_t* node = &acct.root
    cdef const char* dot
    cdef bint tell = sub.kind != SUB_ROUTE and not sub.local_only
    while True:
        dot = <const char*>memchr(subject, c".", n)
        if dot == NULL:
            node = child(plane, node, subject, n)
            break
        node = child(plane, node, subject, dot - subject)
        n -= dot - subject + 1
        subject = dot + 1
    sub.acct = acct
    sub.node = node
    plane.sub_count += 1
    acct.inserts += 1
    if sub.kind == SUB_ROUTE:
        acct.peer_subs += 1
    else:
        acct.own_subs += 1
    if qn:
        sub.queue = queue_of(plane, node, queue, qn)
        sub.place = sub.queue.count
        push_sub(&sub.queue.members, &sub.queue.count, &sub.queue.cap, sub)
        if tell:
            sub.queue.local_count += sub.weight
    else:
        add_plain(node, sub)
        if tell:
            node.local_count += 1
            tell = node.local_count == 1 or plane.tellings != 0     # the first may go before it is told of
    touch(plane, acct, node)
    note_change(plane, sub)
    if acct.leafs != NULL:
        plane.on_interest(plane, sub, True)
    return tell


cdef void sublist_remove(plane_t* plane, sub_t* sub) noexcept nogil:
    """Remove a subscription. The caller has told peers already, using the counts before the removal."""
    cdef node_t* node = sub.node
    cdef queue_t* queue = sub.queue
    cdef bint tell = sub.kind != SUB_ROUTE and not sub.local_only
    touch(plane, sub.acct, node)
    note_change(plane, sub)
    if sub.acct.leafs != NULL:
        plane.on_interest(plane, sub, False)
    plane.sub_count -= 1
    if sub.kind == SUB_ROUTE:
        sub.acct.peer_subs -= 1
    else:
        sub.acct.own_subs -= 1
    if sub.acct.own_subs == 0:
        plane.accts_idle = 1
    if queue != NULL:
        drop_sub(queue.members, &queue.count, sub)
        if tell:
            queue.local_count -= sub.weight
        if queue.count == 0:
            unlink_queue(plane, queue)
            # A match result in use may still point to it: freed at the end of the turn.
            queue.next = plane.dead_queues
            plane.dead_queues = queue
    else:
        drop_sub(plain_subs(node), &node.count, sub)
        if tell:
            node.local_count -= 1
    sub.node = NULL
    sub.queue = NULL
    prune(plane, node)


cdef sub_t* sublist_find_route(
    plane_t* plane, acct_t* acct, route_t* route, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn
) noexcept nogil:
    """The subscription that stands for a peer's interest in exactly this subject and queue, or NULL."""
    cdef node_t* node = &acct.root
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
            if plain_subs(node)[i].of.route == route and plain_subs(node)[i].kind == SUB_ROUTE:
                return plain_subs(node)[i]
        return NULL
    group = find_queue(plane, node, queue, qn)
    for i in range(0 if group == NULL else group.count):
        if group.members[i].of.route == route and group.members[i].kind == SUB_ROUTE:
            return group.members[i]
    return NULL
