"""The verbs of the client protocol, found in a header that the parser inlines."""

cdef enum Verb:
    VERB_UNKNOWN = 0
    VERB_MORE = 1       # a prefix of some verb: more bytes are needed
    VERB_PUB = 2
    VERB_HPUB = 3
    VERB_SUB = 4
    VERB_UNSUB = 5
    VERB_PING = 6
    VERB_PONG = 7
    VERB_CONNECT = 8
    VERB_INFO = 9
    VERB_OK = 10
    VERB_ERR = 11


cdef inline bint same_verb(const char* p, Py_ssize_t n, const char* verb, Py_ssize_t length) noexcept nogil:
    """Compare the bytes that are there, at most `length`, with a verb in lower case, ignoring case."""
    cdef Py_ssize_t i
    for i in range(n if n < length else length):
        if (p[i] | 0x20) != verb[i] and p[i] != verb[i]:
            return False
    return True


cdef inline Verb verb_at(const char* p, Py_ssize_t n, Py_ssize_t* skip) noexcept nogil:
    """The verb at p; `skip` becomes its length, with the following space or tab if one is required."""
    cdef Verb verb = VERB_UNKNOWN
    cdef const char* text
    cdef Py_ssize_t length
    cdef bint blank = True
    cdef char c = p[0] | 0x20
    if c == c"p":
        if n < 2:
            return VERB_MORE
        c = p[1] | 0x20
        if c == c"u":
            verb, text, length = VERB_PUB, b"pub", 3
        elif c == c"i":
            verb, text, length, blank = VERB_PING, b"ping", 4, False
        else:
            verb, text, length, blank = VERB_PONG, b"pong", 4, False
    elif c == c"h":
        verb, text, length = VERB_HPUB, b"hpub", 4
    elif c == c"s":
        verb, text, length = VERB_SUB, b"sub", 3
    elif c == c"u":
        verb, text, length = VERB_UNSUB, b"unsub", 5
    elif c == c"c":
        verb, text, length, blank = VERB_CONNECT, b"connect", 7, False
    elif c == c"i":
        verb, text, length = VERB_INFO, b"info", 4
    elif p[0] == c"+":
        verb, text, length, blank = VERB_OK, b"+ok", 3, False
    elif p[0] == c"-":
        verb, text, length, blank = VERB_ERR, b"-err", 4, False
    else:
        return VERB_UNKNOWN
    if not same_verb(p, n, text, length):
        return VERB_UNKNOWN
    if n < length + blank:
        return VERB_MORE
    if blank and p[length] != c" " and p[length] != c"\t":
        return VERB_UNKNOWN
    skip[0] = length + blank
    return verb
