# cython: language_level=3
"""The messages of each subject as a singly linked chain through the chunks, and searches for the next or last of them.

A message has the distance to the next message of its subject; the subject has its first and last one (_subjtree.pyx).
There are no backward links, and removing a message does not unlink it.

Invariant: the `next` of a live message leads to the next live message of its subject, possibly over removed ones, which
keep their `next`. The chain breaks only when a chunk is freed or packed; then a scan finds the next message and repairs
the link. Scans skip ranges that were never stored in constant time.
"""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.store.stream._chunks cimport FAR, Row

cdef enum:
    SCAN_STEP = 64          # messages scanned for each link followed, where both searches run in turn


cdef class Chains:
    """The live messages by sequence and by subject. `Index` adds and removes them."""

    cdef uint64_t last_live(self) noexcept:
        """The highest live sequence, 0 when there is none."""
        cdef uint64_t seq = self.last_seq
        if self.messages == 0:
            return 0
        while self.chunks.subject_of(seq) == 0:
            seq = self.chunks.held_upto(seq - 1)
        return seq

    cdef uint64_t count_all(self, uint64_t low) noexcept:
        """The number of live messages at or above `low`: in constant time without gaps, else by the shorter side."""
        low = max(low, self.first_seq)
        if low > self.last_seq:
            return 0
        if self.messages == self.last_seq - self.first_seq + 1:
            return self.last_seq - low + 1
        if low - self.first_seq < self.last_seq - low:
            return self.messages - self.chunks.count_live(self.first_seq, low - 1)
        return self.chunks.count_live(low, self.last_seq)

    cdef uint64_t follow(self, uint64_t seq, uint32_t subject_id) noexcept:
        """The subject's next live message after `seq`, which is a message of it (live or not); 0 when there is none.

        Links over removed messages are shortened for the next search.
        """
        cdef uint64_t at = seq, found = 0
        cdef uint64_t last = self.tree.at(subject_id).last_seq
        cdef Row row
        cdef uint32_t distance
        if seq >= last:
            return 0
        while True:
            distance = row.next[0] if self.chunks.row(at, &row) else 0
            if distance == 0 or distance == FAR:
                found = self.chunks.find_subject(at + 1, last, subject_id)
                break
            at += distance
            if self.chunks.subject_of(at) == subject_id:
                found = at
                break
        if found and self.chunks.row(seq, &row):
            row.next[0] = <uint32_t>(found - seq) if found - seq < FAR else FAR
        return found

    cdef uint64_t first_from(self, uint32_t subject_id, uint64_t low) noexcept:
        """The subject's first live message at or above `low`, 0 when there is none.

        Two searches run in turn, along the chain from the subject's first message and a scan from `low`, so the cost is
        at most twice that of the shorter one.
        """
        cdef uint64_t chain, scan = low, end, last
        chain = self.tree.at(subject_id).first_seq
        last = self.tree.at(subject_id).last_seq
        if low > last:
            return 0
        if low > self.first_seq and self.chunks.subject_of(low - 1) == subject_id:
            return self.follow(low - 1, subject_id)
        while chain < low:
            scan = self.chunks.held_from(scan)
            end = scan + SCAN_STEP - 1
            scan = self.chunks.find_subject(scan, end, subject_id)
            if scan:
                return scan
            scan = end + 1
            chain = self.follow(chain, subject_id)
        return chain

    cdef uint64_t last_upto(self, uint32_t subject_id, uint64_t high) noexcept:
        """The subject's last live message at or below `high`, 0 when there is none. Searches as in `first_from`."""
        cdef uint64_t chain, following, scan
        cdef int step
        chain = self.tree.at(subject_id).first_seq
        if high >= self.tree.at(subject_id).last_seq:
            # Also called while the last message itself is being removed: then `chain` is live and below it.
            if self.chunks.subject_of(self.tree.at(subject_id).last_seq) == subject_id:
                return self.tree.at(subject_id).last_seq
            high = self.tree.at(subject_id).last_seq
        if chain > high:
            return 0
        scan = high
        while True:
            scan = self.chunks.held_upto(scan)
            for step in range(SCAN_STEP):
                if scan <= chain:
                    return chain
                if self.chunks.subject_of(scan) == subject_id:
                    return scan
                scan -= 1
            following = self.follow(chain, subject_id)
            if following == 0 or following > high:
                return chain
            chain = following
