"""The protocol between a leaf node and its hub, from bytes to deliveries."""

from jetraft.api.plane._types cimport conn_t, plane_t

cdef enum LeafText:         # what is left to the Python part; api/leafnodes/texts.py has the numbers
    LEAF_CONNECT = 1
    LEAF_INFO = 2
    LEAF_ERR = 3
    LEAF_EARLY = 4          # a line that only a connection in an account may send
    LEAF_LOOP_CHECK = 5     # interest in `$LDS.x`: it comes back where servers are connected in a loop
    LEAF_DENIED = 6         # interest that the user at the other end may not have
    LEAF_DENIED_PUBLISH = 7 # a message that it may not send

cdef Py_ssize_t parse_leaf(plane_t* plane, conn_t* conn, const char* data, Py_ssize_t n) noexcept nogil
