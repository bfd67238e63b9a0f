"""Subject transforms, compiled."""

from jetraft.api.plane._types cimport plane_t, transform_t

cdef enum PieceKind:        # store/model/mapping/transforms.py
    PIECE_LITERAL = 0
    PIECE_WILDCARD = 1
    PIECE_PARTITION = 2
    PIECE_SPLIT_FROM_LEFT = 3
    PIECE_SPLIT_FROM_RIGHT = 4
    PIECE_SLICE_FROM_LEFT = 5
    PIECE_SLICE_FROM_RIGHT = 6
    PIECE_SPLIT = 7
    PIECE_LEFT = 8
    PIECE_RIGHT = 9
    PIECE_RANDOM = 10

cdef transform_t* transform_new(object transform) except NULL
cdef void transform_free(transform_t* transform) noexcept nogil
cdef Py_ssize_t transform_subject(plane_t* plane, transform_t* transform, const char* s, Py_ssize_t n, char* out) noexcept nogil
cdef bint covers(const char* pattern, Py_ssize_t pattern_len, const char* s, Py_ssize_t n) noexcept nogil
