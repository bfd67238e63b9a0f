"""The arguments of a control line, of clients and of leaf nodes."""

from jetraft.api.plane._text cimport is_blank, jr_blank
from jetraft.api.plane._types cimport text_t


cdef inline int split(const char* p, Py_ssize_t n, text_t* args, int args_max) noexcept nogil:
    """Split at white space; returns the number of arguments, `args_max` at most."""
    cdef int count = 0
    cdef const char* end = p + n
    while p < end and count < args_max:
        if is_blank(p[0]):
            p += 1
            continue
        args[count].p = p
        p = jr_blank(p, end)
        args[count].n = p - args[count].p
        count += 1
    return count
