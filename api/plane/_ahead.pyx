"""Prefetches the memory that the next publishes of a connection will read.

With many subscriptions a message waits for memory four times in a row: for its answer's tag, the answer, or the slot
and the node of its last token, and the subscription. These waits overlap for AHEAD_MAX messages, because each step is
done for all of them before the next step (store/stream/_lookahead.pyx does the same for subjects of a stream).

Nothing is decided or kept: the parser looks everything up again. A malformed line ends the look-ahead; the parser
reports the error.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr

from jetraft.api.plane._sublist cimport CACHE_ENTRIES, CACHE_WAYS, match_is_current, scratch_answers
from jetraft.api.plane._tree cimport find_child, node_hash
from jetraft.api.plane._text cimport is_blank
from jetraft.api.plane._types cimport acct_t, match_t, node_t, plane_t
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef extern from * nogil:
    """
    #define jr_fetch(place) __builtin_prefetch(place)
    """
    void fetch "jr_fetch"(const void* place)

cdef enum:
    AHEAD_MAX = 12      # messages; a core can load 10 to 16 cache lines at a time
    AHEAD_MIN = 3       # fewer do not repay the cost
    VERB_BYTES = 4      # "PUB "
    SIZE_DIGITS_MAX = 9


cdef struct scout_t:            # one message ahead
    const char* subject
    Py_ssize_t length
    uint64_t hash               # of the subject
    match_t* match              # its answer, if the cache has one
    node_t* parent              # of its last token's node
    const char* token
    Py_ssize_t token_len
    uint32_t token_hash


cdef Py_ssize_t read_line(const char* p, Py_ssize_t n, scout_t* scout) noexcept nogil:
    """Read the subject of the PUB or HPUB at p; returns the length of line and message, 0 for anything else."""
    cdef const char* end
    cdef const char* blank
    cdef Py_ssize_t at, size = 0, unit = 1
    cdef int digits = 0
    if n > 0 and (p[0] | 0x20) == c"h":
        p += 1
        n -= 1
        at = 1
    else:
        at = 0
    if n < VERB_BYTES or (p[0] | 0x20) != c"p" or (p[1] | 0x20) != c"u" or p[3] != c" ":
        return 0
    end = <const char*>memchr(p + VERB_BYTES, c"\n", n - VERB_BYTES)
    if end == NULL:
        return 0
    blank = <const char*>memchr(p + VERB_BYTES, c" ", end - p - VERB_BYTES)
    if blank == NULL:
        return 0
    scout.subject = p + VERB_BYTES
    scout.length = blank - scout.subject
    at += end + 1 - p
    end -= 1
    while end > blank and is_blank(end[0]):
        end -= 1
    while end > blank and digits < SIZE_DIGITS_MAX and c"0" <= end[0] <= c"9":
        size += unit * (end[0] - c"0")
        unit *= 10
        digits += 1
        end -= 1
    return 0 if digits == 0 or scout.length == 0 else at + size + 2


cdef uint32_t read_lines(const char* p, Py_ssize_t n, scout_t* scouts, Py_ssize_t* seen) noexcept nogil:
    """Read successive messages in p[0:n]; returns their number and sets `seen` to the offset after the last."""
    cdef uint32_t count = 0
    cdef Py_ssize_t at = 0, length
    while count < AHEAD_MAX and at < n:
        length = read_line(p + at, n - at, &scouts[count])
        if length == 0:
            break
        at += length
        count += 1
    seen[0] = at
    return count


cdef void find_answer(plane_t* plane, acct_t* acct, scout_t* scout) noexcept nogil:
    """The cache's answer by its tag, and fetch it; or the slot of the last token, below nodes that many messages use."""
    cdef uint32_t tag = <uint32_t>(scout.hash >> 32) | 1, first = <uint32_t>scout.hash & (CACHE_ENTRIES - CACHE_WAYS), way
    cdef const char* dot
    cdef const char* s = scout.subject
    cdef Py_ssize_t n = scout.length
    scout.match = NULL
    scout.parent = NULL
    for way in range(CACHE_WAYS):
        if plane.cache_tags[first + way] == tag:
            scout.match = &plane.cache[first + way]
            fetch(scout.match)
            return
    scout.parent = &acct.root
    while True:
        dot = <const char*>memchr(s, c".", n)
        if dot == NULL:
            break
        scout.parent = find_child(plane, scout.parent, s, dot - s)
        if scout.parent == NULL:
            return
        n -= dot - s + 1
        s = dot + 1
    scout.token = s
    scout.token_len = n
    scout.token_hash = <uint32_t>node_hash(plane, scout.parent, s, n)
    fetch(&plane.table[scout.token_hash & plane.table_mask])


cdef node_t* node_of(plane_t* plane, scout_t* scout) noexcept nogil:
    """The node whose hash is that of the last token, or NULL."""
    cdef uint32_t i = scout.token_hash & plane.table_mask
    while plane.table[i].node != NULL:
        if plane.table[i].hash == scout.token_hash:
            return plane.table[i].node
        i = (i + 1) & plane.table_mask
    return NULL


cdef Py_ssize_t look_ahead(plane_t* plane, acct_t* acct, const char* p, Py_ssize_t n) noexcept nogil:
    """Fetch for the messages that p begins with; returns how many bytes they have, those of the first one at least."""
    cdef scout_t scouts[AHEAD_MAX]
    cdef node_t* nodes[AHEAD_MAX]
    cdef Py_ssize_t seen
    cdef uint32_t i, count = read_lines(p, n, scouts, &seen)
    if count < AHEAD_MIN or scratch_answers(plane, acct, scouts[0].subject, scouts[0].length):
        return seen
    for i in range(count):
        scouts[i].hash = keyed_hash(scouts[i].subject, scouts[i].length, plane.seed ^ acct.salt)
        fetch(&plane.cache_tags[<uint32_t>scouts[i].hash & (CACHE_ENTRIES - CACHE_WAYS)])
    for i in range(count):
        find_answer(plane, acct, &scouts[i])
    for i in range(count):
        nodes[i] = NULL
        if scouts[i].match != NULL:
            if scouts[i].match.count == 1 and match_is_current(plane, acct, scouts[i].match):
                fetch(scouts[i].match.only)
        elif scouts[i].parent != NULL:
            nodes[i] = node_of(plane, &scouts[i])
            if nodes[i] != NULL:
                fetch(nodes[i])
    for i in range(count):
        if nodes[i] != NULL and nodes[i].count == 1 and nodes[i].cap == 0:
            fetch(nodes[i].plain.only)
    return seen
