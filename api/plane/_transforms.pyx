"""Subject transforms: store/model/mapping/transforms.py parses them, here they are carried out.

A subject is read again for each token that a destination names: subjects are short, and nothing is kept between messages.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

from jetraft.api.plane._text cimport jr_utoa
from jetraft.api.plane._types cimport SUBJECT_ROOM, next_random, piece_t, plane_t, transform_t

cdef enum:
    NUMBER_ROOM = 20        # digits


cdef struct out_t:
    char* p
    Py_ssize_t n
    bint full


cdef transform_t* transform_new(object transform) except NULL:
    """Compile a Transform. Raises MemoryError."""
    cdef transform_t* made = <transform_t*>calloc(1, sizeof(transform_t))
    cdef piece_t* piece
    cdef Py_ssize_t i, k
    cdef bytes text
    if made == NULL:
        raise MemoryError
    made.tail = -1 if transform.tail is None else transform.tail
    made.pieces = <piece_t*>calloc(max(len(transform.pieces), 1), sizeof(piece_t))
    if made.pieces == NULL:
        free(made)
        raise MemoryError
    for i, found in enumerate(transform.pieces):
        piece = &made.pieces[i]
        made.count += 1
        text, sources = found.text, found.sources
        piece.kind = found.kind
        piece.number = found.number
        piece.text_len = <uint16_t>PyBytes_GET_SIZE(text)
        piece.text = <char*>malloc(piece.text_len + 1)
        piece.source_count = <uint16_t>len(sources)
        piece.sources = <uint16_t*>malloc((piece.source_count + 1) * sizeof(uint16_t))
        if piece.text == NULL or piece.sources == NULL:
            transform_free(made)
            raise MemoryError
        memcpy(piece.text, PyBytes_AS_STRING(text), piece.text_len)
        for k in range(piece.source_count):
            piece.sources[k] = sources[k]
    return made


cdef void transform_free(transform_t* transform) noexcept nogil:
    cdef uint16_t i
    if transform == NULL:
        return
    for i in range(transform.count):
        free(transform.pieces[i].text)
        free(transform.pieces[i].sources)
    free(transform.pieces)
    free(transform)


# -- reading

cdef inline const char* skip_tokens(const char* s, const char* end, uint32_t count) noexcept nogil:
    """Where the token behind `count` others begins; `end` when there is none."""
    cdef const char* dot
    while count:
        dot = <const char*>memchr(s, c".", end - s)
        if dot == NULL:
            return end
        s = dot + 1
        count -= 1
    return s


cdef inline Py_ssize_t token_len(const char* s, const char* end) noexcept nogil:
    cdef const char* dot = <const char*>memchr(s, c".", end - s)
    return (end if dot == NULL else dot) - s


cdef bint covers(const char* pattern, Py_ssize_t pattern_len, const char* s, Py_ssize_t n) noexcept nogil:
    """Whether a subject matches a pattern."""
    cdef const char* pattern_end = pattern + pattern_len
    cdef const char* end = s + n
    cdef Py_ssize_t wanted, given
    while True:
        wanted = token_len(pattern, pattern_end)
        if wanted == 1 and pattern[0] == c">":
            return True
        given = token_len(s, end)
        if not (wanted == 1 and pattern[0] == c"*") and (wanted != given or memcmp(pattern, s, wanted) != 0):
            return False
        pattern += wanted
        s += given
        if pattern == pattern_end or s == end:
            return pattern == pattern_end and s == end
        pattern += 1
        s += 1


# -- writing

cdef inline void put(out_t* out, const char* p, Py_ssize_t n) noexcept nogil:
    if out.n + n > SUBJECT_ROOM:
        out.full = True
        return
    memcpy(out.p + out.n, p, n)
    out.n += n


cdef inline void put_number(out_t* out, uint64_t number) noexcept nogil:
    cdef char digits[NUMBER_ROOM]
    put(out, digits, jr_utoa(digits, number))


cdef inline void put_parts(out_t* out, const char* p, Py_ssize_t n, Py_ssize_t at) noexcept nogil:
    """A token in two at a place inside it, else whole."""
    if 0 < at < n:
        put(out, p, at)
        put(out, b".", 1)
        put(out, p + at, n - at)
    else:
        put(out, p, n)


cdef void put_slices(out_t* out, const char* p, Py_ssize_t n, Py_ssize_t first, Py_ssize_t size) noexcept nogil:
    """A token in slices of a size, but for the first."""
    cdef Py_ssize_t at = 0, length = first
    while at < n:
        if at:
            put(out, b".", 1)
        put(out, p + at, min(length, n - at))
        at += length
        length = size


cdef void put_split(out_t* out, const char* p, Py_ssize_t n, const char* by, Py_ssize_t by_len) noexcept nogil:
    """A token split at each delimiter. As in nats-server, a part is followed by a dot when the next is not empty."""
    cdef Py_ssize_t at = 0, end = 0, following
    cdef bint first = True
    if by_len == 0:
        put_slices(out, p, n, 1, 1)
        return
    while True:
        end = next_delimiter(p, n, at, by, by_len)
        put(out, p + at, end - at)
        if end == n:
            return
        following = next_delimiter(p, n, end + by_len, by, by_len)
        if following > end + by_len and not (first and end == at):
            put(out, b".", 1)
        at = end + by_len
        first = False


cdef Py_ssize_t next_delimiter(const char* p, Py_ssize_t n, Py_ssize_t at, const char* by, Py_ssize_t by_len) noexcept nogil:
    while at + by_len <= n:
        if memcmp(p + at, by, by_len) == 0:
            return at
        at += 1
    return n


cdef uint32_t fnv32a(uint32_t h, const char* p, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        h = (h ^ <uint8_t>p[i]) * 16777619u
    return h


cdef uint32_t partition_of(piece_t* piece, const char* s, const char* end) noexcept nogil:
    """A number below that of partitions, from the tokens that are named, or the whole subject."""
    cdef uint32_t h = 2166136261u
    cdef const char* token
    cdef uint16_t i
    if piece.number <= 0:
        return 0
    if piece.source_count == 0:
        h = fnv32a(h, s, end - s)
    for i in range(piece.source_count):
        token = skip_tokens(s, end, piece.sources[i])
        h = fnv32a(h, token, token_len(token, end))
    return h % <uint32_t>piece.number


cdef void put_piece(plane_t* plane, out_t* out, piece_t* piece, const char* s, const char* end) noexcept nogil:
    cdef const char* p = s
    cdef Py_ssize_t n = 0
    cdef int64_t number = piece.number
    if piece.kind == PIECE_LITERAL:
        put(out, piece.text, piece.text_len)
        return
    if piece.kind == PIECE_PARTITION:
        put_number(out, partition_of(piece, s, end))
        return
    if piece.kind == PIECE_RANDOM:
        put_number(out, next_random(plane) % <uint64_t>number if number > 0 else 0)
        return
    p = skip_tokens(s, end, piece.sources[0])
    n = token_len(p, end)
    if piece.kind == PIECE_SPLIT:
        put_split(out, p, n, piece.text, piece.text_len)
    elif piece.kind == PIECE_WILDCARD or number <= 0 or number >= n:
        put(out, p, n)
    elif piece.kind == PIECE_SPLIT_FROM_LEFT:
        put_parts(out, p, n, number)
    elif piece.kind == PIECE_SPLIT_FROM_RIGHT:
        put_parts(out, p, n, n - number)
    elif piece.kind == PIECE_SLICE_FROM_LEFT:
        put_slices(out, p, n, number, number)
    elif piece.kind == PIECE_SLICE_FROM_RIGHT:
        put_slices(out, p, n, n % number if n % number else number, number)
    elif piece.kind == PIECE_LEFT:
        put(out, p, number)
    elif piece.kind == PIECE_RIGHT:
        put(out, p + n - number, number)


cdef Py_ssize_t transform_subject(plane_t* plane, transform_t* transform, const char* s, Py_ssize_t n, char* out) noexcept nogil:
    """Write what a subject that matches the source becomes, SUBJECT_ROOM bytes at most; 0: it does not fit."""
    cdef out_t made
    cdef const char* end = s + n
    cdef const char* rest
    cdef uint16_t i
    made.p = out
    made.n = 0
    made.full = False
    for i in range(transform.count):
        if i:
            put(&made, b".", 1)
        put_piece(plane, &made, &transform.pieces[i], s, end)
    if transform.tail >= 0:
        if transform.count:
            put(&made, b".", 1)
        rest = skip_tokens(s, end, transform.tail)
        put(&made, rest, end - rest)
    return 0 if made.full else made.n
