# cython: language_level=3
"""The live messages of each block, for compaction: how many there are, and in which frames.

Reads the index only. Types: _liveness.pyi.
"""

from array import array

from libc.stdint cimport uint32_t, uint64_t

from jetraft.store.stream._chunks cimport Row
from jetraft.store.stream._index cimport Index
from jetraft.store.stream._spans cimport Span


cdef uint64_t _end_of(Index index, size_t position) noexcept:
    """The sequence after the last one of a block."""
    if position + 1 < index.spans.count:
        return index.spans.spans[position + 1].first_seq
    return index.last_seq + 1


def blocks(Index index not None):
    """[(block, number of sequences that it spans, number of live messages)], in order."""
    cdef size_t position
    cdef uint64_t end
    cdef Span *span
    found = []
    for position in range(index.spans.count):
        span = &index.spans.spans[position]
        end = _end_of(index, position)
        found.append((span.block, end - span.first_seq, index.chunks.count_live(span.first_seq, end - 1)))
    return found


def live_frames(Index index not None, uint32_t block):
    """(offsets of the frames with live messages, number of live messages in each, their sequences, their bytes).

    All empty for a block without live messages, and for an unknown block.
    """
    cdef size_t position, frame = 0
    cdef uint64_t seq, end, size = 0, count = 0
    cdef uint32_t offset
    cdef Row row
    cdef Span *span = NULL
    offsets, counts, seqs = array("I"), array("I"), array("Q")
    for position in range(index.spans.count):
        if index.spans.spans[position].block == block:
            span = &index.spans.spans[position]
            break
    if span == NULL:
        return offsets, counts, seqs, 0
    end = _end_of(index, position)
    seq = index.chunks.find_live(span.first_seq, end - 1)
    while seq:
        index.chunks.row(seq, &row)
        offset = row.offset[0]
        if frame + 1 < span.frame_count and span.frames[frame + 1] <= offset:
            if count:
                offsets.append(span.frames[frame])
                counts.append(count)
            count = 0
            while frame + 1 < span.frame_count and span.frames[frame + 1] <= offset:
                frame += 1
        count += 1
        size += row.size[0]
        seqs.append(seq)
        seq = index.chunks.find_live(seq + 1, end - 1) if seq + 1 < end else 0
    if count:
        offsets.append(span.frames[frame])
        counts.append(count)
    return offsets, counts, seqs, size
