# cython: language_level=3
"""Prefetches the memory that the next records of a frame access (decision 35).

With many subjects, each message accesses a slot of the hash table, a subject, and the row of the subject's previous
message: three dependent cache misses of about 100 ns. Here 32 records, or removals, go through these steps together, so
that the misses of each step overlap.

Prefetches are hints: they change nothing, and one that is outdated when it is used costs a miss.
Source: group prefetching for hash joins (Chen, Ailamaki, Gibbons, Mowry, ICDE 2004).
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jetraft.store.stream._chunks cimport CHUNK_MASK, CHUNK_MESSAGES, ChunkTable, Row, Shelf, packed_rows
from jetraft.store.frames._frame cimport Record, read_record
from jetraft.store.stream._subjtree cimport Subject, SubjectTree

cdef extern from * nogil:
    void fetch "__builtin_prefetch" (const void *address)


cdef uint32_t look_ahead(const uint8_t *frame, size_t size, size_t *at, uint32_t count, SubjectTree tree,
                         Upcoming *upcoming) noexcept:
    """Unpack up to `count` records from the offset at[0] on, which is advanced, and find their subjects.

    Returns their number: fewer than `count` only when a record is damaged; at[0] is then its offset.
    """
    cdef uint32_t i, slot, found = 0
    cdef size_t following
    cdef Record *record
    while found < count:
        record = &upcoming[found].record
        following = read_record(frame, size, at[0], record)
        if following == 0 or record.subject_len == 0:
            break
        at[0] = following
        upcoming[found].code = tree.code_of(<const char *>record.subject, record.subject_len)
        fetch(&tree.slots[upcoming[found].code & tree.slot_mask])
        found += 1
    for i in range(found):
        slot = upcoming[i].code & tree.slot_mask
        while tree.slots[slot].id and tree.slots[slot].hash != upcoming[i].code:
            slot = (slot + 1) & tree.slot_mask
        upcoming[i].subject_id = tree.slots[slot].id
        if upcoming[i].subject_id:
            fetch(tree.at(upcoming[i].subject_id))
    return found


cdef void fetch_chains(const Upcoming *upcoming, uint32_t count, SubjectTree tree, ChunkTable chunks,
                       uint64_t count_max) noexcept:
    """Prefetch the last message of each subject and, for a subject with `count_max` messages, the one to be dropped."""
    cdef uint32_t i
    cdef Subject *subject
    for i in range(count):
        if upcoming[i].subject_id == 0:
            continue
        subject = tree.at(upcoming[i].subject_id)
        fetch_next(subject.last_seq, chunks)
        if subject.count >= count_max:
            fetch_row(subject.first_seq, chunks)


cdef void fetch_doomed(const uint64_t *seqs, size_t count, SubjectTree tree, ChunkTable chunks) noexcept:
    """Prefetch for the removal of messages: their rows, then their subjects and the next rows of their chains."""
    cdef size_t i
    cdef Row row
    for i in range(count):
        fetch_row(seqs[i], chunks)
    for i in range(count):
        if chunks.row(seqs[i], &row) and row.subject[0]:
            fetch(tree.at(row.subject[0]))
            fetch_row(seqs[i] + row.next[0], chunks)


cdef void fetch_oldest(uint64_t seq, uint32_t count, SubjectTree tree, ChunkTable chunks) noexcept:
    """Prefetch for dropping the oldest messages: their subjects, and the messages that become the first ones."""
    cdef uint64_t seqs[LOOKAHEAD_RECORDS]
    cdef uint32_t i
    assert count <= LOOKAHEAD_RECORDS
    for i in range(count):
        seqs[i] = seq + i
    fetch_doomed(seqs, count, tree, chunks)


cdef inline void fetch_row(uint64_t seq, ChunkTable chunks) noexcept:
    cdef Shelf *shelf = chunks.shelf_of(seq)
    cdef uint32_t *cells
    if shelf == NULL or shelf.cells == NULL:
        return
    if shelf.width != CHUNK_MESSAGES:
        fetch(packed_rows(shelf))
        return
    cells = shelf.cells + (seq & CHUNK_MASK)
    fetch(cells)
    fetch(cells + 2 * CHUNK_MESSAGES)
    fetch(cells + 3 * CHUNK_MESSAGES)


cdef inline void fetch_next(uint64_t seq, ChunkTable chunks) noexcept:
    cdef Shelf *shelf = chunks.shelf_of(seq)
    if shelf == NULL or shelf.cells == NULL:
        return
    if shelf.width != CHUNK_MESSAGES:
        fetch(packed_rows(shelf))
    else:
        fetch(shelf.cells + 2 * CHUNK_MESSAGES + (seq & CHUNK_MASK))
