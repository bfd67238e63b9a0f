"""Many subject patterns in a tree, as C sees them. See _patterns.pyx."""

cdef class Branch:
    cdef dict branches   # by token, the wildcards not among them; None: there are none
    cdef Branch star     # behind `*`
    cdef list here       # the values of the patterns that end here; None: there are none
    cdef list tail       # the values of the patterns that end here with `>`
    cdef Py_ssize_t begin_here, begin_tail  # where `any_of` begins: at the value that it found last

    cdef bint goes_on(self) noexcept
    cdef bint has_more(self) noexcept
    cdef bint is_bare(self) noexcept

cdef class PatternTree:
    cdef Branch root
    cdef Py_ssize_t count        # of patterns, with each of their values
    cdef Py_ssize_t branches     # of the tree
    cdef Py_ssize_t width_bound  # of the branches to which a literal subject can lead

    cdef bint admits(self, bytes subject) except -1
    cdef list _values_of(self, bytes subject)
