"""The queue groups of all subjects by node and name, in a table that grows by a bucket with each (_linear.pxd).

A subject may have as many groups as a client makes names for. A list of them was gone through for each subscription: the
end of 20,000 took 0.3 s, and four times that for twice as many.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memcmp, memcpy

from jetraft.api.plane._linear cimport one_bucket_more
from jetraft.api.plane._types cimport node_t, plane_t, queue_t
from jetraft.store.model._keyed_hash cimport keyed_hash

cdef enum:
    QUEUES_START = 64       # places for buckets


cdef inline uint32_t bucket_of(plane_t* plane, queue_t* queue) noexcept nogil:
    """The bucket of a queue; there is at least one."""
    cdef uint32_t h = spread(queue.hash, queue.node)
    cdef uint32_t bucket = h & plane.queue_mask
    return bucket if bucket < plane.queue_buckets else h & (plane.queue_mask >> 1)


cdef inline uint32_t spread(uint64_t hash, node_t* node) noexcept nogil:
    """Groups of one name are at many subjects: the node counts as the name does."""
    return <uint32_t>(((hash ^ <uint64_t><size_t>node) * 0x9E3779B97F4A7C15u) >> 32)


cdef queue_t* find(plane_t* plane, node_t* node, const char* name, Py_ssize_t n, uint64_t hash) noexcept nogil:
    cdef uint32_t h = spread(hash, node), bucket
    cdef queue_t* queue
    if plane.queue_buckets == 0:
        return NULL
    bucket = h & plane.queue_mask
    if bucket >= plane.queue_buckets:
        bucket = h & (plane.queue_mask >> 1)
    queue = plane.queues[bucket]
    while queue != NULL:
        if queue.hash == hash and queue.node == node and queue.name_len == n and memcmp(queue.name, name, n) == 0:
            return queue
        queue = queue.next_in_bucket
    return NULL


cdef queue_t* find_queue(plane_t* plane, node_t* node, const char* name, Py_ssize_t n) noexcept nogil:
    """The group of a subject that has this name, or NULL."""
    return NULL if node.queues == NULL else find(plane, node, name, n, keyed_hash(name, n, plane.seed))


cdef bint add_bucket(plane_t* plane) noexcept nogil:
    """One bucket more, with its part of what is in another one; False: no memory."""
    cdef uint32_t added = plane.queue_buckets
    cdef queue_t** link
    cdef queue_t* queue
    if not one_bucket_more(
        <void***>&plane.queues, &plane.queue_buckets, &plane.queue_buckets_cap, &plane.queue_mask, QUEUES_START
    ):
        return False
    if added == 0:
        return True
    link = &plane.queues[added & (plane.queue_mask >> 1)]
    while link[0] != NULL:
        queue = link[0]
        if bucket_of(plane, queue) == added:
            link[0] = queue.next_in_bucket
            queue.next_in_bucket = plane.queues[added]
            plane.queues[added] = queue
        else:
            link = &queue.next_in_bucket
    return True


cdef queue_t* queue_of(plane_t* plane, node_t* node, const char* name, Py_ssize_t n) noexcept nogil:
    """The group of a subject that has this name, made when it is missing."""
    cdef uint64_t hash = keyed_hash(name, n, plane.seed)
    cdef queue_t* queue = NULL if node.queues == NULL else find(plane, node, name, n, hash)
    cdef uint32_t bucket
    if queue != NULL:
        return queue
    if plane.queue_count >= plane.queue_buckets:
        add_bucket(plane)
    queue = <queue_t*>calloc(1, sizeof(queue_t))
    queue.name = <char*>malloc(n + 1)
    memcpy(queue.name, name, n)
    queue.name_len = <unsigned short>n
    queue.hash = hash
    queue.node = node
    queue.next = node.queues
    if queue.next != NULL:
        queue.next.prev = queue
    node.queues = queue
    bucket = bucket_of(plane, queue)
    queue.next_in_bucket = plane.queues[bucket]
    plane.queues[bucket] = queue
    plane.queue_count += 1
    return queue


cdef void unlink_queue(plane_t* plane, queue_t* queue) noexcept nogil:
    """Take a group without members from its subject. An answer that is in use may still point to it."""
    cdef queue_t** link = &plane.queues[bucket_of(plane, queue)]
    cdef uint32_t i
    while link[0] != queue:
        link = &link[0].next_in_bucket
    link[0] = queue.next_in_bucket
    plane.queue_count -= 1
    if queue.untold:
        for i in range(plane.untold_queues.count):
            if plane.untold_queues.items[i] == queue:
                plane.untold_queues.items[i] = NULL
    if queue.prev != NULL:
        queue.prev.next = queue.next
    else:
        queue.node.queues = queue.next
    if queue.next != NULL:
        queue.next.prev = queue.prev
