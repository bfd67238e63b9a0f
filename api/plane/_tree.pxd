"""The subject trees: subscriptions by account and subject."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from jetraft.api.plane._types cimport acct_t, node_t, plane_t, queue_t, route_t, slot_t, sub_t, token_of
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef int tree_init(plane_t* plane) except -1
cdef void tree_free(plane_t* plane) noexcept
cdef void push_sub(sub_t*** items, uint32_t* count, uint32_t* cap, sub_t* sub) noexcept nogil
cdef bint sublist_add(plane_t* plane, acct_t* acct, sub_t* sub, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn) noexcept nogil
cdef void sublist_remove(plane_t* plane, sub_t* sub) noexcept nogil
cdef Py_ssize_t node_subject(node_t* node, char* out, Py_ssize_t cap) noexcept nogil
cdef sub_t* sublist_find_route(plane_t* plane, acct_t* acct, route_t* route, const char* subject, Py_ssize_t n, const char* queue, Py_ssize_t qn) noexcept nogil


cdef inline uint64_t node_hash(plane_t* plane, node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    """The hash of a node's child for one token; the table uses its low half."""
    return keyed_hash(token, n, plane.seed ^ (<uint64_t><size_t>parent) * 0x9E3779B97F4A7C15u)


cdef inline bint is_child(node_t* node, node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    return node.parent == parent and node.token_len == n and memcmp(token_of(node), token, n) == 0


cdef inline node_t* child_in(
    slot_t* table, uint32_t mask, uint32_t h, node_t* parent, const char* token, Py_ssize_t n
) noexcept nogil:
    """The same in one table, for a token with this hash."""
    cdef uint32_t i = h & mask
    cdef slot_t* slot
    while True:
        slot = &table[i]
        if slot.node == NULL or (slot.hash == h and is_child(slot.node, parent, token, n)):
            return slot.node
        i = (i + 1) & mask


cdef inline node_t* find_child(plane_t* plane, node_t* parent, const char* token, Py_ssize_t n) noexcept nogil:
    """The child of a node for one literal token, or NULL."""
    cdef uint32_t h
    cdef node_t* node
    if parent.children == 0:
        return NULL
    h = <uint32_t>node_hash(plane, parent, token, n)
    node = child_in(plane.table, plane.table_mask, h, parent, token, n)
    if node == NULL and plane.table_before != NULL:
        node = child_in(plane.table_before, plane.table_before_mask, h, parent, token, n)
    return node
