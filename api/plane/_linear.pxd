"""Linear hashing: a table that grows by a bucket with each record, so that no turn distributes all of them again.

To distribute a million records over twice as many buckets at once would take 50 ms, since each of them has to be read.
Source: W. Litwin, Linear hashing: a new tool for file and table addressing, VLDB 1980.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport realloc


cdef inline bint one_bucket_more(void*** buckets, uint32_t* count, uint32_t* cap, uint32_t* mask, uint32_t start) noexcept nogil:
    """An empty bucket at the end, among `start` places at first; False: no memory. The kernel moves large tables.

    The caller moves the records that belong there: all of them are in the bucket `added & (mask >> 1)`.
    """
    cdef uint32_t wanted
    cdef void* moved
    if count[0] == cap[0]:
        wanted = cap[0] * 2 if cap[0] else start
        moved = realloc(buckets[0], wanted * sizeof(void*))
        if moved == NULL:
            return False
        buckets[0] = <void**>moved
        cap[0] = wanted
    buckets[0][count[0]] = NULL
    count[0] += 1
    if count[0] - 1 > mask[0]:
        mask[0] = mask[0] * 2 + 1
    return True
