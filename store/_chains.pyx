# cython: language_level=3
"""The messages of each subject as a chain through the chunks, and the ways to find the next one, or the last, on it.

A message has the distance to the next one of its subject; the subject has its first and its last (_subjtree.pyx). Nothing
points back, and nothing is unlinked when a message is removed.

Invariants: for a live message, `next` leads to the next live message of its subject or to a place on the way to it: removed
messages keep their `next`, so the chain stays whole until the chunk goes or is packed, and then a scan finds the way again and
repairs it. Scans pass over what was never stored at once.
"""

from libc.stdint cimport uint32_t, uint64_t

from jetraft.store._chunks cimport FAR, Row

cdef enum:
    SCAN_STEP = 64          # messages looked at for each link of a chain followed, where both ways lead to the answer


cdef class Chains:
    """What is live, by sequence and by subject. `Index` adds and removes."""

    cdef uint64_t last_live(self) noexcept:
        """The highest live sequence, 0 when there is none."""
        cdef uint64_t seq = self.last_seq
        if self.messages == 0:
            return 0
        while self.chunks.subject_of(seq) == 0:
            seq = self.chunks.held_upto(seq - 1)
        return seq

    cdef uint64_t count_all(self, uint64_t low) noexcept:
        """Live messages at or above `low`: at once when nothing between is missing, else by the shorter side."""
        low = max(low, self.first_seq)
        if low > self.last_seq:
            return 0
        if self.messages == self.last_seq - self.first_seq + 1:
            return self.last_seq - low + 1
        if low - self.first_seq < self.last_seq - low:
            return self.messages - self.chunks.count_live(self.first_seq, low - 1)
        return self.chunks.count_live(low, self.last_seq)

    cdef uint64_t follow(self, uint64_t seq, uint32_t subject_id) noexcept:
        """The subject's next live message after `seq`, which was its message (live or not); 0 when there is none.

        Shortens the way for the next walk when removed messages lay on it.
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

        Two ways lead there, the chain from the subject's first message and a scan from `low`; both are walked in turn,
        so the cost is twice that of the shorter one.
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
        """The subject's last live message at or below `high`, 0 when there is none. Both ways, as in `first_from`."""
        cdef uint64_t chain, following, scan
        cdef int step
        chain = self.tree.at(subject_id).first_seq
        if high >= self.tree.at(subject_id).last_seq:
            # Also asked while the last message itself is being removed: then `chain` is live and below it.
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
