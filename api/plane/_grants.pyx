"""Lists of permissions: trees of tokens, so that an answer does not depend on how many entries there are."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from jetraft.api.plane._types cimport grant_t, queue_name_t, text_t


cdef grant_t* new_grant(const char* token, Py_ssize_t n) except NULL:
    cdef grant_t* node = <grant_t*>calloc(1, sizeof(grant_t) + n)
    if node == NULL:
        raise MemoryError
    node.token = <char*>(node + 1)
    node.n = n
    memcpy(node.token, token, n)
    return node


cdef uint32_t place_of(grant_t* node, const char* token, Py_ssize_t n, bint* found) noexcept nogil:
    """Where a literal child is, or would be."""
    cdef uint32_t low = 0, high = node.count, middle
    cdef grant_t* child
    cdef int order
    while low < high:
        middle = (low + high) // 2
        child = node.children[middle]
        order = -1 if child.n < n else 1 if child.n > n else memcmp(child.token, token, n)
        if order == 0:
            found[0] = True
            return middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    found[0] = False
    return low


cdef grant_t* below(grant_t* node, const char* token, Py_ssize_t n) except NULL:
    """The child for a token of an entry, made when it is missing."""
    cdef bint found = False
    cdef uint32_t at
    if n == 1 and token[0] == c"*":
        if node.star == NULL:
            node.star = new_grant(token, n)
        return node.star
    if n == 1 and token[0] == c">":
        if node.rest == NULL:
            node.rest = new_grant(token, n)
        return node.rest
    at = place_of(node, token, n, &found)
    if not found:
        if (node.count & (node.count - 1)) == 0:
            node.children = <grant_t**>realloc(node.children, max(1, 2 * node.count) * sizeof(grant_t*))
        memmove(node.children + at + 1, node.children + at, (node.count - at) * sizeof(grant_t*))
        node.children[at] = new_grant(token, n)
        node.count += 1
    return node.children[at]


cdef grant_t* list_of(entries) except? NULL:
    """The tree of some entries, each a subject and the queue behind it or b""; NULL for none."""
    cdef grant_t* root
    cdef grant_t* node
    cdef queue_name_t* queue
    if entries is None:
        return NULL
    root = new_grant(b"", 0)
    for subject, name in entries:
        node = root
        for token in subject.split(b"."):
            node = below(node, token, len(token))
        if not name:
            node.plain = 1
            continue
        queue = <queue_name_t*>calloc(1, sizeof(queue_name_t) + len(name))
        if queue == NULL:
            raise MemoryError
        queue.name = <char*>(queue + 1)
        queue.n = len(name)
        memcpy(queue.name, <const char*>name, queue.n)
        queue.next = node.queues
        node.queues = queue
    return root


cdef void free_list(grant_t* node) noexcept:
    cdef queue_name_t* queue
    cdef uint32_t i
    if node == NULL:
        return
    free_list(node.star)
    free_list(node.rest)
    for i in range(node.count):
        free_list(node.children[i])
    while node.queues != NULL:
        queue = node.queues
        node.queues = queue.next
        free(queue)
    free(node.children)
    free(node)


# -- looking a subject up

cdef bint name_fits(const char* pattern, Py_ssize_t pn, const char* name, Py_ssize_t n) noexcept nogil:
    """Whether a queue is one that an entry names, which may have wildcards."""
    cdef const char* dot
    cdef Py_ssize_t want, have
    if pn == n and memcmp(pattern, name, n) == 0:
        return True
    while True:
        if pn == 1 and pattern[0] == c">":
            return n > 0
        dot = <const char*>memchr(pattern, c".", pn)
        want = pn if dot == NULL else dot - pattern
        dot = <const char*>memchr(name, c".", n)
        have = n if dot == NULL else dot - name
        if have == 0 or (have == 1 and name[0] == c">"):
            return False
        if not (want == 1 and pattern[0] == c"*") and not (want == have and memcmp(pattern, name, want) == 0):
            return False
        if want == pn or have == n:
            return want == pn and have == n
        pattern += want + 1
        pn -= want + 1
        name += have + 1
        n -= have + 1


cdef void count_hits(grant_t* node, text_t queue, hits_t* hits) noexcept nogil:
    cdef queue_name_t* named = node.queues
    if node.plain:
        hits.plain = True
    while named != NULL:
        hits.queued = True
        if queue.n and name_fits(named.name, named.n, queue.p, queue.n):
            hits.fits = True
        named = named.next


cdef void count_partly(grant_t* node, text_t queue, hits_t* hits) noexcept nogil:
    """Count an entry whose last token is `*` for a subject that ends with `>`: it allows no more, and its queues count."""
    cdef hits_t some
    some.plain = some.queued = some.fits = False
    count_hits(node, queue, &some)
    if some.queued:
        hits.queued = True
    if some.fits:
        hits.fits_partly = True


cdef void walk(grant_t* node, const char* s, Py_ssize_t n, int mode, text_t queue, hits_t* hits) noexcept nogil:
    """Count the entries below `node` that match the tokens of s. Each node is visited once at most."""
    cdef const char* dot = <const char*>memchr(s, c".", n)
    cdef Py_ssize_t token = n if dot == NULL else dot - s
    cdef bint found = False
    cdef uint32_t at = place_of(node, s, token, &found) if node.count else 0
    if node.rest != NULL:
        count_hits(node.rest, queue, hits)
    if dot != NULL:
        if found:
            walk(node.children[at], dot + 1, n - token - 1, mode, queue, hits)
        if node.star != NULL:
            walk(node.star, dot + 1, n - token - 1, mode, queue, hits)
        return
    if found:
        count_hits(node.children[at], queue, hits)
    if node.star == NULL:
        return
    if mode & WHOLE_TAIL and token == 1 and s[0] == c">":
        count_partly(node.star, queue, hits)
    else:
        count_hits(node.star, queue, hits)


cdef hits_t look_up(grant_t* root, const char* s, Py_ssize_t n, int mode, text_t queue) noexcept nogil:
    """Which entries of a list match a subject. One with an empty token matches none, unless the mode says otherwise."""
    cdef hits_t hits
    cdef Py_ssize_t i
    hits.plain = hits.queued = hits.fits = hits.fits_partly = False
    if not mode & EMPTY_TOKENS:
        for i in range(n):
            if s[i] == c"." and (i == 0 or i + 1 == n or s[i + 1] == c"."):
                return hits
    walk(root, s, n, mode, queue, &hits)
    return hits


cdef inline bint ends(grant_t* node) noexcept nogil:
    return node != NULL and (node.plain or node.queues != NULL)


cdef bint overlaps(grant_t* node, const char* s, Py_ssize_t n) noexcept nogil:
    """Whether some subject matches both a subscription and an entry below `node`."""
    cdef const char* dot = <const char*>memchr(s, c".", n)
    cdef Py_ssize_t token = n if dot == NULL else dot - s
    cdef bint found = False
    cdef uint32_t i, at
    if node.rest != NULL:
        return True
    if token == 1 and s[0] == c">":
        return node.star != NULL or node.count > 0
    if dot == NULL:
        if ends(node.star):
            return True
    elif node.star != NULL and overlaps(node.star, dot + 1, n - token - 1):
        return True
    if token == 1 and s[0] == c"*":
        for i in range(node.count):
            if ends(node.children[i]) if dot == NULL else overlaps(node.children[i], dot + 1, n - token - 1):
                return True
        return False
    at = place_of(node, s, token, &found)
    return found and (ends(node.children[at]) if dot == NULL else overlaps(node.children[at], dot + 1, n - token - 1))
