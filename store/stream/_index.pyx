# cython: language_level=3
"""The index of one stream: sequence -> place of the record, subject and size; subject -> chain of its messages.

A message takes 16 bytes (offset in the block, subject id, distance to the subject's next message, size) and a frame 4,
in chunks of 256 sequences (decision 17). A chunk without live messages is freed and one with few is packed, so memory
is proportional to the live messages, however far apart their sequences are.

The index can be rebuilt from the frames of the log. It enforces the limits message by message, in sequence order, so
the result does not depend on the leader's batches: first the limit of the subject, then the two totals, each by
dropping the oldest message (nats-server: filestore.go, storeRawMsg).

Invariants: first_seq <= every live sequence <= last_seq; first_seq is live, or last_seq + 1 when the stream is empty;
last_seq never decreases; the invariant of the chains (_chains.pyx).
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from array import array

from jetraft.store.stream._chains cimport Chains
from jetraft.store.stream._chunks cimport CHUNK_BITS, FAR, ChunkTable, Row, Stretch
from jetraft.store.frames._frame cimport (
    FRAME_HEADER_BYTES, FRAME_HOLED, FrameHeader, Record, frame_is, read_header, read_record, sums_bytes,
)
from jetraft.store.stream._lookahead cimport (
    LOOKAHEAD_RECORDS, Upcoming, fetch_chains, fetch_doomed, fetch_oldest, look_ahead,
)
from jetraft.store.stream._quota cimport Quota
from jetraft.store.stream._runs cimport Runs
from jetraft.store.stream._seqset cimport PackedRanges, RangePacker
from jetraft.store.stream._shelves cimport Shelf
from jetraft.store.stream._spans cimport Place, SpanTable
from jetraft.store.stream._subjtree cimport Subject, SubjectTree, text_of
from jetraft.store.stream._verdicts cimport Verdicts


cdef enum:                            # as in store/frames/format.py, which a server without streams does not load
    MESSAGES_KIND = 3                 # Kind.MESSAGES
    NOT_OPEN = 1 | 2 | 4              # FRAME_SEALED, FRAME_THIN, FRAME_PACKED: readers get these frames in another form

    LARGE = 4_096                     # messages: when fewer go, each is removed by itself
    ANEW_KEPT_MAX = 1_024             # messages that are taken along
    SHED_STRETCHES = 16               # of subjects, 256 each, that are freed at a time
    SHED_CHUNKS = 1_024               # the same

cdef uint64_t SEQ_MAX = 1 << 62  # a purge moves a stream at most here: later sequences cannot overflow 64 bits


cdef uint64_t limit_of(value) except? 0:
    """A configured limit; the largest number when there is none (-1)."""
    return UINT64_MAX if value < 0 else value


cdef class Index(Chains):
    """Sequences, subjects and limits of one stream. Deterministic: the same calls leave the same live messages."""

    def __cinit__(self, *, uint32_t overhead_bytes, uint32_t hdr_overhead_bytes, uint64_t first_seq=1):
        assert first_seq >= 1
        self.tree = SubjectTree()
        self.chunks = ChunkTable()
        self.spans = SpanTable()
        self.watchers = []
        self.remains = []
        self.large = LARGE
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.overhead_bytes = overhead_bytes
        self.hdr_overhead_bytes = hdr_overhead_bytes
        self.max_msgs = self.max_bytes = self.max_msgs_per_subject = UINT64_MAX

    def __dealloc__(self):
        free(self.removed)

    # -- changes ---------------------------------------------------------------------------------------------------

    def apply(self, bytes frame, uint32_t block, uint32_t frame_offset):
        """Index the records of a MESSAGES frame, enforce the limits, and return how many messages were dropped.

        The sequences must be above last_seq; the sequences of a gap never had a message.
        """
        cdef uint64_t before = self.tree.removals
        if self.remains:
            self.shed()
        self.load_frame(<const uint8_t *><char *>frame, len(frame), block, frame_offset, None)
        return self.tree.removals - before

    def shed(self):
        """Free a part of what is left of before the index began anew; True when there is more."""
        cdef SubjectTree tree
        cdef ChunkTable chunks
        if self.remains:
            tree, chunks = self.remains[len(self.remains) - 1]
            if chunks.count > chunks.start:
                chunks.drop_below(min(chunks.start + SHED_CHUNKS, chunks.count))
            elif not tree.shed(SHED_STRETCHES):
                self.remains.pop()
        return bool(self.remains)

    def limit(self, *, max_msgs, max_bytes, max_msgs_per_subject, max_bytes_per_subject=-1):
        """Set the limits (-1 = none), enforce them, return how many messages were dropped."""
        cdef uint64_t before = self.tree.removals
        cdef bint tighter = limit_of(max_msgs_per_subject) < self.max_msgs_per_subject
        cdef uint32_t subject_id
        self.max_msgs = limit_of(max_msgs)
        self.max_bytes = limit_of(max_bytes)
        self.max_msgs_per_subject = limit_of(max_msgs_per_subject)
        self.set_quota(max_bytes_per_subject)
        if tighter or self.quota is not None:
            # Subjects are independent: the order of the ids, which differs between replicas, does not matter.
            for subject_id in range(1, self.tree.id_end):
                if self.tree.at(subject_id).count:
                    self.enforce_subject(subject_id)
        self.enforce_totals()
        return self.tree.removals - before

    def remove(self, uint64_t seq):
        """Remove one message; False when it is not live."""
        if self.chunks.subject_of(seq) == 0:
            return False
        self.drop(seq)
        return True

    def remove_many(self, seqs):
        """Remove messages; return those that were live, in the order given."""
        cdef uint64_t some[LOOKAHEAD_RECORDS]
        cdef list out = []
        cdef uint64_t seq
        cdef size_t count = 0
        for seq in seqs:
            some[count] = seq
            count += 1
            if count == LOOKAHEAD_RECORDS:
                self.drop_some(some, count, out)
                count = 0
        self.drop_some(some, count, out)
        return out

    def remove_below(self, uint64_t seq):
        """Remove every message below `seq`; return how many. last_seq stays.

        Where few are left the index begins anew with them: the cost follows the smaller part.
        """
        cdef uint64_t messages = self.messages, kept
        if self.first_seq < seq and self.messages >= self.large:
            kept = self.count_all(seq)
            if kept <= ANEW_KEPT_MAX and self.messages - kept >= self.large:
                self.begin_anew(seq)
        while self.messages and self.first_seq < seq:
            if (messages - self.messages) % LOOKAHEAD_RECORDS == 0:
                fetch_oldest(self.first_seq, LOOKAHEAD_RECORDS, self.tree, self.chunks)
            self.drop_first()
        return messages - self.messages

    def skip_to(self, uint64_t seq):
        """Let an empty stream continue at `seq`, which is above last_seq and at most SEQ_MAX."""
        assert self.messages == 0
        assert seq > self.last_seq
        self._skip_to(max(self.last_seq + 1, min(seq, SEQ_MAX)))

    def load(self, bytes frame, uint32_t block, uint32_t frame_offset, PackedRanges dead):
        """Index a frame after a restart, without limits and without the sequences in `dead` and below first_seq."""
        self.load_frame(<const uint8_t *><char *>frame, len(frame), block, frame_offset, dead)

    def load_run(self, bytes data, const uint32_t[::1] places, const uint32_t[::1] offsets, indexes, uint32_t block,
                 incarnation, PackedRanges dead):
        """Index frames as `load` does, and return how many: it ends at the first one that is damaged or not open.

        Checksums are computed without the interpreter lock. Also returns the first sequence of the first of those
        frames that has a record (0: none has), and whether one of them stands for lost messages.
        """
        cdef const uint8_t *start = <const uint8_t *><char *>data
        cdef size_t size = len(data)
        cdef Py_ssize_t count = places.shape[0], sound = 0, i
        cdef bint verify = incarnation is not None
        cdef uint64_t expected = incarnation if verify else 0
        cdef uint64_t[::1] entries = array("Q", indexes)
        cdef FrameHeader header
        cdef uint64_t first_seq = 0
        cdef bint stands_in = False
        with nogil:
            while sound < count and places[sound] < size:
                if not verify:
                    if not read_header(start + places[sound], size - places[sound], &header):
                        break
                elif not frame_is(start + places[sound], size - places[sound], entries[sound], expected, &header):
                    break
                if header.flags & NOT_OPEN:
                    break
                sound += 1
        for i in range(sound):
            read_header(start + places[i], size - places[i], &header)
            if header.kind != MESSAGES_KIND:
                continue
            self.load_frame(start + places[i], header.length, block, offsets[i], dead)
            if header.count:
                first_seq = first_seq or header.first_stream_seq
            elif header.first_stream_seq == 0:
                stands_in = True
            if header.flags & FRAME_HOLED:
                stands_in = True
        return sound, first_seq, stands_in

    def finish_load(self, uint64_t last_seq, int64_t last_ts_ns):
        """End a load; `last_seq` is the last sequence that was used."""
        if last_seq < self.last_seq:
            raise ValueError(f"a frame has sequence {self.last_seq}, above the last one of the snapshot, {last_seq}")
        if last_seq > self.last_seq:
            self._skip_to(last_seq + 1)
        self.last_ts_ns = last_ts_ns

    # -- questions -------------------------------------------------------------------------------------------------

    def above_totals(self, *, max_msgs, max_bytes, Py_ssize_t count_max):
        """The oldest messages for which these totals leave no room, so many at most."""
        cdef uint64_t msgs_max = limit_of(max_msgs), bytes_max = limit_of(max_bytes)
        cdef uint64_t messages = self.messages, size = self.message_bytes, at = self.first_seq
        cdef list out = []
        cdef Row row
        while messages and (messages > msgs_max or size > bytes_max) and len(out) < count_max:
            self.chunks.row(at, &row)
            messages -= 1
            size -= row.size[0]
            out.append(at)
            at = self.chunks.find_live(at + 1, self.last_seq)
        return out

    def above_subjects(self, uint32_t first_id, *, max_msgs_per_subject, max_bytes_per_subject, int64_t visits,
                       Py_ssize_t count_max):
        """([oldest messages for which these limits leave no room], the id to go on with, 0 for none).

        Of the subjects from an id on, as long as messages and subjects looked at are not more than `visits`.
        """
        cdef uint64_t msgs_max = limit_of(max_msgs_per_subject), bytes_max = limit_of(max_bytes_per_subject)
        cdef uint64_t count, size, at
        cdef uint32_t subject_id = max(first_id, <uint32_t>1)
        cdef Subject *subject
        cdef list out = []
        cdef Row row
        while subject_id < self.tree.id_end:
            if visits <= 0 or len(out) >= count_max:
                return out, subject_id
            visits -= 1
            subject = self.tree.at(subject_id)
            count, at, size = subject.count, subject.first_seq, 0
            if count and bytes_max != UINT64_MAX:
                size = self._bytes_of(subject_id, &visits)
            while count > msgs_max or (count > 1 and size > bytes_max):
                if len(out) >= count_max:
                    return out, subject_id
                self.chunks.row(at, &row)
                count -= 1
                size -= min(size, <uint64_t>row.size[0])
                out.append(at)
                visits -= 1
                at = self.follow(at, subject_id)
            subject_id += 1
        return out, 0

    def is_live(self, uint64_t seq):
        """Whether a sequence has a live message."""
        return self.chunks.subject_of(seq) != 0

    def count_live(self, Runs seqs not None, uint64_t above):
        """How many of these sequences above one have a live message."""
        cdef size_t i
        cdef uint64_t low, high, found = 0
        for i in range(seqs.run_count):
            low, high = max(seqs.runs[i].first, above + 1), seqs.runs[i].first + seqs.runs[i].count - 1
            if low <= high:
                found += self.chunks.count_live(low, high)
        return found

    def live_of(self, Runs seqs not None, uint64_t above, size_t count):
        """The first of these sequences above one that have a live message, so many at most."""
        cdef Runs out = Runs()
        cdef size_t i
        cdef uint64_t low, high, live, dead
        for i in range(seqs.run_count):
            low, high = max(seqs.runs[i].first, above + 1), seqs.runs[i].first + seqs.runs[i].count - 1
            while low <= high and count:
                live = self.chunks.find_live(low, high)
                if not live:
                    break
                dead = self.chunks.find_dead(live, min(high, live + count - 1))
                low = dead if dead else min(high, live + count - 1) + 1
                out.put(live, low - live)
                count -= low - live
        return out

    def place(self, uint64_t seq):
        """(block, offset of the frame in the block, offset of the record in the frame), None when it is not live."""
        cdef Place place
        if not self.place_of(seq, &place):
            return None
        return place.block, place.frame_offset, place.record_offset

    def size_of(self, uint64_t seq):
        """The bytes that a live message counts for max_bytes."""
        cdef Row row
        assert self.chunks.subject_of(seq)
        self.chunks.row(seq, &row)
        return row.size[0]

    def subject_at(self, uint64_t seq):
        """The subject of a live message, None when it is not live."""
        cdef uint32_t subject_id = self.chunks.subject_of(seq)
        return self.tree.name_of(subject_id) if subject_id else None

    def subject_state(self, bytes subject):
        """(count, first, last) of a literal subject, None when it has no message."""
        cdef uint32_t subject_id = self.tree.find(subject, len(subject))
        if subject_id == 0:
            return None
        return (
            self.tree.at(subject_id).count,
            self.tree.at(subject_id).first_seq,
            self.tree.at(subject_id).last_seq,
        )

    def subject_bytes(self, bytes subject):
        """The bytes of a literal subject; 0 where no limit counts them."""
        return 0 if self.quota is None else self.quota.of(self.tree.find(subject, len(subject)))

    def next_from(self, uint64_t seq):
        """The lowest live sequence at or above `seq`, None when there is none."""
        cdef uint64_t found = self.chunks.find_live(seq, self.last_seq)
        return found if found else None

    def count_from(self, uint64_t seq):
        """Live messages at or above `seq`."""
        return self.count_all(seq)

    def pack_deleted(self):
        """The sequences from first_seq to last_seq that are not live, as pairs of varints (gap, run)."""
        cdef RangePacker out = RangePacker(self.first_seq)
        cdef uint64_t low, high
        low = self.first_seq
        while low <= self.last_seq:
            high = self.chunks.find_live(low, self.last_seq)
            if high == 0:
                high = self.last_seq + 1
            if high > low:
                out.add(low, high)
            # Now `high` is live, or past the end: skip the run of live ones.
            low = self.chunks.find_dead(high, self.last_seq)
            if low == 0:
                break
        return out.packed()

    @property
    def memory_bytes(self):
        """Bytes allocated, the subjects included."""
        cdef size_t total = self.chunks.memory_bytes
        cdef SubjectTree tree
        cdef ChunkTable chunks
        if self.removed != NULL:
            total += REMOVED_LOG_MESSAGES * sizeof(Removed)
        for tree, chunks in self.remains:
            total += tree.memory_bytes + chunks.memory_bytes
        return total + self.spans.memory_bytes + self.tree.memory_bytes

    def hide(self, bytes prefix):
        """Hide the subjects that begin so from filter sets that are made from now on; None: no subject."""
        self.hidden = prefix

    def watch(self, Verdicts watcher):
        """Notify a filter set, from now on, when a subject id is reused for another subject."""
        self.watchers.append(watcher)

    def unwatch(self, Verdicts watcher):
        """Undo `watch`."""
        self.watchers.remove(watcher)

    # -- in C: finding ---------------------------------------------------------------------------------------------

    cdef bint place_of(self, uint64_t seq, Place *out) noexcept:
        """Find the record of a message; False when it is not live."""
        cdef Row row
        if not self.chunks.row(seq, &row) or row.subject[0] == 0:
            return False
        return self.spans.find(seq, row.offset[0], out)

    cdef uint64_t _bytes_of(self, uint32_t subject_id, int64_t *visits) noexcept:
        """The bytes of a subject, known or counted."""
        cdef uint64_t size = 0, at = self.tree.at(subject_id).first_seq
        cdef Row row
        if self.quota is not None:
            return self.quota.of(subject_id)
        while at:
            self.chunks.row(at, &row)
            size += row.size[0]
            visits[0] -= 1
            at = self.follow(at, subject_id)
        return size

    # -- in C: changing --------------------------------------------------------------------------------------------

    cdef int watch_removals(self) except -1:
        """Start the log of removals, for filter sets that maintain a count."""
        if self.removed == NULL:
            self.removed = <Removed *>calloc(REMOVED_LOG_MESSAGES, sizeof(Removed))
            if self.removed == NULL:
                raise MemoryError
        return 0

    cdef int load_frame(self, const uint8_t *frame, size_t size, uint32_t block, uint32_t frame_offset,
                        PackedRanges dead) except -1:
        """Index the records of a frame; with `dead`, without limits: see `load`."""
        cdef FrameHeader header
        cdef Record record
        cdef Upcoming upcoming[LOOKAHEAD_RECORDS]
        cdef uint64_t seq
        cdef uint32_t i, found, left
        cdef size_t at = FRAME_HEADER_BYTES
        if not read_header(frame, size, &header):
            raise ValueError("not a frame")
        seq = header.first_stream_seq
        if header.count == 0:
            return 0
        if header.length < FRAME_HEADER_BYTES + sums_bytes(&header):
            raise ValueError("the frame is too short for the checksums of its records")
        size = header.length - sums_bytes(&header)
        if seq > UINT64_MAX // 2:
            raise ValueError(f"sequence {seq} is out of range")
        if dead is None or seq + header.count > self.first_seq:
            if seq <= self.last_seq and (dead is None or self.messages):
                raise ValueError(f"sequence {seq} follows {self.last_seq}")
            if read_record(frame, size, at, &record) == 0:
                raise ValueError(f"the record of sequence {seq} is damaged")
            if dead is None and seq > self.last_seq + 1:
                self._skip_to(seq)
            self.spans.enter(seq, record.ts_ns, block, frame_offset)
        left = header.count
        while left:
            found = look_ahead(frame, size, &at, min(left, LOOKAHEAD_RECORDS), self.tree, upcoming)
            fetch_chains(upcoming, found, self.tree, self.chunks, self.max_msgs_per_subject)
            if self.messages >= self.max_msgs or self.message_bytes >= self.max_bytes:
                fetch_oldest(self.first_seq, found, self.tree, self.chunks)
            for i in range(found):
                if dead is None:
                    self.put(seq, frame_offset, &upcoming[i])
                    self.last_ts_ns = upcoming[i].record.ts_ns
                elif seq >= self.first_seq and not dead.covers(seq):
                    self.put(seq, frame_offset, &upcoming[i])
                seq += 1
            if found < min(left, LOOKAHEAD_RECORDS):
                at = read_record(frame, size, at, &record) if header.flags & FRAME_HOLED else 0
                if at == 0 or record.subject_len:
                    raise ValueError(f"the record of sequence {seq} is damaged")
                if dead is None:
                    self._skip_to(seq + 1)  # a hole (store/frames/_holes.pyx): the message is lost
                seq += 1
                found += 1
            left -= found
        return 0

    cdef int put(self, uint64_t seq, uint32_t frame_offset, const Upcoming *upcoming) except -1:
        """Add the message `seq`, above all others, and enforce the limits."""
        cdef const Record *record = &upcoming.record
        cdef uint32_t subject_id = self.tree.intern(<const char *>record.subject, record.subject_len, upcoming.code)
        cdef uint32_t size = self.overhead_bytes + record.subject_len + record.hdr_len + record.payload_len
        cdef uint64_t distance
        cdef Row before
        cdef Verdicts watcher
        if record.hdr_len:
            size += self.hdr_overhead_bytes
        self.chunks.put(seq, subject_id, frame_offset + <uint32_t>record.offset, size)
        if self.tree.at(subject_id).count == 0:
            for watcher in self.watchers:
                if subject_id < watcher.verdict_end:
                    watcher.verdicts[subject_id] = 0
            self.tree.at(subject_id).first_seq = seq
        else:
            distance = seq - self.tree.at(subject_id).last_seq
            self.chunks.row(self.tree.at(subject_id).last_seq, &before)
            before.next[0] = <uint32_t>distance if distance < FAR else FAR
        self.tree.at(subject_id).last_seq = seq
        self.tree.at(subject_id).count += 1
        if self.messages == 0:
            self.first_seq = seq
        self.last_seq = seq
        self.messages += 1
        self.message_bytes += size
        if self.quota is not None and self.quota.add(subject_id, size):
            self.enforce_subject(subject_id)
        if self.tree.at(subject_id).count > self.max_msgs_per_subject:
            self.enforce_subject(subject_id)
        if self.messages > self.max_msgs or self.message_bytes > self.max_bytes:
            self.enforce_totals()
        return 0

    cdef int drop(self, uint64_t seq) except -1:
        """Remove a live message."""
        cdef Row row
        cdef uint32_t subject_id
        cdef uint64_t following
        cdef Removed *entry
        cdef bint held = self.chunks.row(seq, &row)
        assert held
        subject_id = row.subject[0]
        assert subject_id
        self.messages -= 1
        self.message_bytes -= row.size[0]
        if self.quota is not None:
            self.quota.take(subject_id, row.size[0])
        self.chunks.drop(&row)
        if self.removed != NULL:
            entry = &self.removed[self.tree.removals % REMOVED_LOG_MESSAGES]
            entry.seq = seq
            entry.subject = subject_id
        self.tree.removals += 1
        self.tree.at(subject_id).count -= 1
        if self.tree.at(subject_id).count == 0:
            self.tree.release(subject_id)
        elif seq == self.tree.at(subject_id).first_seq:
            self.tree.at(subject_id).first_seq = self.follow(seq, subject_id)
        elif seq == self.tree.at(subject_id).last_seq:
            self.tree.at(subject_id).last_seq = self.last_upto(subject_id, seq)
        if self.messages == 0:
            self._forget_before(self.last_seq + 1)
        elif seq == self.first_seq:
            following = seq + 1
            if self.chunks.subject_of(following) == 0:
                following = self.chunks.find_live(following, self.last_seq)
            self._forget_before(following)
        else:
            self.chunks.give_back(row.shelf)
        return 0

    cdef int begin_anew(self, uint64_t seq) except -1:
        """Leave only the messages from `seq` on, which are few: the others are not looked at."""
        cdef SubjectTree tree = SubjectTree(), before = self.tree
        cdef ChunkTable chunks = ChunkTable()
        cdef Quota quota = None if self.quota is None else Quota()
        cdef Subject *subject
        cdef Subject *taken
        cdef Row row, last
        cdef Verdicts watcher
        cdef uint32_t subject_id
        cdef uint64_t first = 0, messages = 0, size = 0, at = self.chunks.find_live(seq, self.last_seq)
        if quota is not None:
            quota.bytes_max = self.quota.bytes_max
        while at:
            self.chunks.row(at, &row)
            subject = before.at(row.subject[0])
            subject_id = tree.intern(text_of(subject), subject.length, tree.code_of(text_of(subject), subject.length))
            taken = tree.at(subject_id)
            chunks.put(at, subject_id, row.offset[0], row.size[0])
            if taken.count:
                chunks.row(taken.last_seq, &last)
                last.next[0] = <uint32_t>(at - taken.last_seq) if at - taken.last_seq < FAR else FAR
            else:
                taken.first_seq = at
            taken.last_seq = at
            taken.count += 1
            if quota is not None:
                quota.add(subject_id, row.size[0])
            first = first or at
            messages += 1
            size += row.size[0]
            at = self.chunks.find_live(at + 1, self.last_seq) if at < self.last_seq else 0
        # Counts from before are made anew: the log of removals has none of these.
        tree.removals = before.removals + max(self.messages - messages, <uint64_t>REMOVED_LOG_MESSAGES + 1)
        self.remains.append((before, self.chunks))
        self.tree, self.chunks, self.quota = tree, chunks, quota
        self.messages, self.message_bytes = messages, size
        self.anew += 1
        for watcher in self.watchers:
            watcher.forget()
        self._forget_before(first or self.last_seq + 1)
        return 0

    cdef uint64_t drop_subject(self, uint32_t subject_id, uint64_t below_seq) except? 0:
        """Remove the messages of a subject below a sequence; return how many.

        One by one along the chain that is 25 ns each; a scan removes them in 2 ns, and looks at the others in 1.
        """
        cdef Stretch stretch
        cdef Subject *subject = self.tree.at(subject_id)
        cdef uint64_t low = subject.first_seq, high = min(subject.last_seq, below_seq - 1), removed = 0, size = 0
        cdef size_t place
        cdef uint32_t *sizes
        if low >= below_seq:
            return 0
        while self.chunks.stretch_from(low, high, &stretch):
            sizes = <uint32_t *>stretch.subject + 3 * <size_t>stretch.shelf.width
            for place in range(stretch.count):
                if stretch.subject[place] == subject_id:
                    (<uint32_t *>stretch.subject)[place] = 0
                    (<Shelf *>stretch.shelf).live -= 1
                    size += sizes[place]
                    removed += 1
            low = stretch.end
            self.chunks.give_back(<Shelf *>stretch.shelf)
        self.messages -= removed
        self.message_bytes -= size
        # Counts from before are made anew: the log of removals has none of these.
        self.tree.removals += max(removed, <uint64_t>REMOVED_LOG_MESSAGES + 1)
        subject.count -= removed
        if self.quota is not None:
            self.quota.totals[subject_id] -= size
        if subject.count == 0:
            self.tree.release(subject_id)
        else:
            subject.first_seq = self.chunks.find_subject(below_seq, subject.last_seq, subject_id)
        if self.messages == 0:
            self._forget_before(self.last_seq + 1)
        elif self.chunks.subject_of(self.first_seq) == 0:
            self._forget_before(self.chunks.find_live(self.first_seq, self.last_seq))
        return removed

    cdef int drop_some(self, const uint64_t *seqs, size_t count, list dropped) except -1:
        """Remove those of these sequences that are live, and add them to `dropped`."""
        cdef size_t i
        fetch_doomed(seqs, count, self.tree, self.chunks)
        for i in range(count):
            if self.chunks.subject_of(seqs[i]):
                self.drop(seqs[i])
                dropped.append(seqs[i])
        return 0

    cdef int drop_first(self) except -1:
        """Remove the oldest message."""
        return self.drop(self.first_seq)

    cdef int enforce_subject(self, uint32_t subject_id) except -1:
        """Drop the subject's oldest messages until it is within its limits; that of bytes leaves it the last one."""
        while self.tree.at(subject_id).count > self.max_msgs_per_subject:
            self.drop(self.tree.at(subject_id).first_seq)
        if self.quota is not None:
            while self.tree.at(subject_id).count > 1 and self.quota.of(subject_id) > self.quota.bytes_max:
                self.drop(self.tree.at(subject_id).first_seq)
        return 0

    cdef int set_quota(self, bytes_max) except -1:
        """Limit the bytes of each subject from now on, or no more (-1); counts what there is, once."""
        cdef Row row
        cdef uint64_t seq = self.first_seq
        if bytes_max < 0:
            self.quota = None
            return 0
        if self.quota is None:
            self.quota = Quota()
            while self.messages and seq:
                self.chunks.row(seq, &row)
                self.quota.add(row.subject[0], row.size[0])
                seq = self.chunks.find_live(seq + 1, self.last_seq)
        self.quota.bytes_max = bytes_max
        return 0

    cdef int enforce_totals(self) except -1:
        """Drop the oldest messages until both totals are within their limits."""
        cdef uint32_t done = 0
        while self.messages and (self.messages > self.max_msgs or self.message_bytes > self.max_bytes):
            # Publishing drops one or two at a time, which are prefetched; a new limit drops many.
            if done and done % LOOKAHEAD_RECORDS == 0:
                fetch_oldest(self.first_seq, LOOKAHEAD_RECORDS, self.tree, self.chunks)
            self.drop_first()
            done += 1
        return 0

    cdef void _forget_before(self, uint64_t seq) noexcept:
        """Move first_seq up to `seq` and free the chunks below."""
        if seq >> CHUNK_BITS != self.first_seq >> CHUNK_BITS:
            self.chunks.forget_before(seq)
        self.spans.forget_before(seq)
        self.first_seq = seq

    cdef void _skip_to(self, uint64_t seq) noexcept:
        """Advance last_seq to `seq` - 1 without messages."""
        self.last_seq = seq - 1
        if self.messages == 0:
            self._forget_before(seq)
