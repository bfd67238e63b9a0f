"""The messages of one stream: state derived from one group's log, equal on all replicas at the same applied index.

The log has the bytes; the store has the live messages and their places (`_index.pyx`), the subjects (`_subjtree.pyx`),
and answers queries of consumers and readers (`indexed_stream.py`). Nothing here is written to disk: a restart restores
the `snapshot()` of the last checkpoint, reads the frames that the log still has, and applies the later entries.

All methods are synchronous. Only applied entries change the store, and an applied entry is never refused. Sequences
never go back: purging everything leaves first_seq = last_seq + 1.

Source of the semantics: nats-server filestore.go, memstore.go (limits, Compact, PurgeEx, size of a message), measured
against 2.15.1 where the tests say so.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol, runtime_checkable

import attrs
import msgpack

from jetraft.store.frames._frame import parse_header
from jetraft.store.frames._holes import holes
from jetraft.store.frames.format import (
    FRAME_COUNT_AND_FIRST_SEQ,
    FRAME_COUNT_AT,
    FRAME_FLAGS_AT,
    FRAME_HOLED,
)
from jetraft.store.frames.placeholder import MESSAGES_MAX, is_placeholder
from jetraft.store.model.files.index_ranges import merged
from jetraft.store.model.state import LostStreamData, StreamState
from jetraft.store.port import Entry, FrameRef, FrameRun, GroupLog, StoreCorrupt, StoreError, run_of_one
from jetraft.store.stream._records import RecordReader, StoredMessage
from jetraft.store.stream._seqset import PackedRanges
from jetraft.store.stream.indexed_stream import IndexedStream
from jetraft.store.stream.lost_messages import LostMessages, Runs, missing_runs
from jetraft.store.stream.retention import UNLIMITED, SizeModel, StoreLimits

__all__ = ["Liveness", "StoreLimits", "StoreStatistics", "StoredMessage", "StreamStore"]

SNAPSHOT_VERSION: Final = 1
LOST_SEQS_MAX: Final = 10_000  # listed in stream info: a range with an estimated end can be long
EVERYTHING: Final = b">"
TS_NS_MAX: Final = (1 << 63) - 1  # a message's time has 64 bits, with a sign
NO_FRAME: Final = 1 << 63  # above every sequence
SEQ_MAX: Final = 1 << 62  # a stream starts, or is moved by a purge, at most here, so that sequences never overflow


@runtime_checkable
class RecordEraser(Protocol):
    """A log that can overwrite a record in place."""

    def erase_record(self, block: int, frame_offset: int, record_offset: int) -> None:
        """Rewrite the frame with the record's payload zeroed and a new checksum."""
        ...

    def drop_copies(self) -> None:
        """Remove what is kept of damaged bytes: what was erased may be among them."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class StoreStatistics:
    """A snapshot of a store's figures."""

    messages: int
    message_bytes: int  # as counted for max_bytes
    subjects: int
    frames: int  # in the index
    index_bytes: int  # allocated for the index and the subjects
    filter_sets: int
    verdict_bytes: int


@attrs.frozen(kw_only=True, slots=True)
class Liveness:
    """Which sequences are live at one moment: those from first_seq to last_seq that are not in `dead`."""

    first_seq: int
    last_seq: int
    dead: bytes  # as PackedRanges reads it


class StreamStore(IndexedStream):
    """The live messages of one stream replica."""

    def __init__(
        self,
        log: GroupLog,
        limits: StoreLimits,
        *,
        size_model: SizeModel = SizeModel.FILE,
        first_seq: int = 0,
        on_damage: Callable[[StoreError | OSError], None] = lambda _error: None,
    ) -> None:
        """An empty store; apply entries or `restore` next. The first message gets `first_seq`, 0: 1, at most SEQ_MAX.

        `on_damage` is called for every frame that a read finds damaged, before the reader gets the error. Applying has
        no one to give an error to: `on_damage` alone hears of it then, and has the log repaired and applied again.
        """
        self._log = log
        self._on_damage = on_damage
        self._limits = limits
        super().__init__(size_model)
        self._applied_index = 0  # of the last MESSAGES entry
        self._oldest: tuple[int, int] = (0, 0)  # (a sequence, its timestamp): first_seq when last asked for
        self._has_placeholders = False  # in the frames that were read by the last restore
        self._has_given_begin = first_seq > 0
        self.pause: Callable[[], None] = lambda: None  # called between pieces of a restore; may raise, to end it
        self._start(min(max(first_seq, 1), SEQ_MAX), limits)

    @contextmanager
    def pausing(self, pause: Callable[[], None]) -> Iterator[None]:
        """Call this between pieces of a restore instead; it may raise, to end it."""
        former, self.pause = self.pause, pause
        try:
            yield
        finally:
            self.pause = former

    # -- changes, only from applied entries ----------------------------------------------------------------------

    def apply_messages(self, entry: Entry) -> int:
        """Add the messages of an entry of the log, enforce the limits, return last_seq.

        Limits are enforced after each message: first the subject's, then the totals, by dropping the oldest.
        """
        place = self._log.locate(entry.index)
        assert place is not None, f"entry {entry.index} is not in the log"
        frame, index, lost = entry.frame, self._index, self._lost
        count, first_seq = FRAME_COUNT_AND_FIRST_SEQ.unpack_from(frame, FRAME_COUNT_AT)
        if not count and is_placeholder(parse_header(frame)):
            lost.entries_at_end += 1
        elif lost.entries_at_end:
            lost.entries_at_end = 0
        before = index.last_seq
        index.apply(frame, place.block, place.offset)
        self._applied_index = entry.index
        if first_seq > before + 1:  # the entries in between are damaged on every member
            if not count:
                index.finish_load(first_seq - 1, index.last_ts_ns)
            lost.note([(before + 1, first_seq - 1)], index.first_seq)
        if frame[FRAME_FLAGS_AT] & FRAME_HOLED:
            seqs = [first_seq + number for number in holes(frame)]
            lost.note(merged((seq, seq) for seq in seqs), index.first_seq)
        return index.last_seq

    def set_limits(self, limits: StoreLimits) -> int:
        """Change the limits and enforce them: subjects first, then totals. Returns how many messages were dropped."""
        self._limits = limits
        self._lost.noted(self._index.first_seq)
        self._lost.drops_oldest = (limits.max_msgs, limits.max_bytes) != (UNLIMITED, UNLIMITED)
        return self._index.limit(
            max_msgs=limits.max_msgs,
            max_bytes=limits.max_bytes,
            max_msgs_per_subject=limits.max_msgs_per_subject,
            max_bytes_per_subject=limits.max_bytes_per_subject,
        )

    def above_totals(self, limits: StoreLimits, count_max: int) -> list[int]:
        """The oldest messages for which other totals would leave no room, so many at most."""
        return self._index.above_totals(max_msgs=limits.max_msgs, max_bytes=limits.max_bytes, count_max=count_max)

    def above_subjects(self, limits: StoreLimits, first: int, *, visits: int, count_max: int) -> tuple[list[int], int]:
        """The same for the limits of subjects, of those from a number on; and the number to go on with, 0 for none.

        `visits` bounds the subjects and messages that are looked at: some 10 ns each.
        """
        return self._index.above_subjects(
            first,
            max_msgs_per_subject=limits.max_msgs_per_subject,
            max_bytes_per_subject=limits.max_bytes_per_subject,
            visits=visits,
            count_max=count_max,
        )

    @property
    def has_remains(self) -> bool:
        """Whether there is memory that a removal of nearly everything has left."""
        return bool(self._index.remains)

    def free_remains(self) -> bool:
        """Free a part of the memory that a removal of nearly everything has left; True when there is more."""
        return self._index.shed()

    def remove(self, seqs: Iterable[int], *, erase: bool = False) -> list[int]:
        """Remove messages, return the sequences that were live.

        With `erase` their bytes are overwritten too, if the log supports that; otherwise they stay in the block until
        it is dropped. Where the bytes cannot be overwritten now, `on_damage` hears of it, and the entry counts as
        applied: it is applied again, before any checkpoint, once the log is repaired.
        """
        if not self._lost:
            return self._remove(seqs, erase=erase)
        wanted = list(seqs)
        self._lost.noted(self.first_seq)
        removed = self._remove(wanted, erase=erase)
        self._lost.removed(wanted, self.first_seq)
        return removed

    def _remove(self, seqs: Iterable[int], *, erase: bool) -> list[int]:
        if not (erase and isinstance(self._log, RecordEraser)):
            return self._index.remove_many(seqs)
        self._log.drop_copies()  # also of a message that is lost: what was damaged of it is kept there
        removed = []
        for seq in seqs:
            place = self._index.place(seq)
            if place is not None:
                try:
                    self._log.erase_record(*place)
                except (StoreError, OSError) as error:
                    self._on_damage(error)
                self._index.remove(seq)
                removed.append(seq)
        self.records.forget()
        return removed

    def remove_below(self, seq: int) -> int:
        """Remove every message below `seq`, return how many. last_seq stays, even if `seq` is above it."""
        self._lost.noted(self._index.first_seq)
        removed = self._index.remove_below(seq)
        self._lost.forget_below(seq, self._index.first_seq)
        return removed

    def purge(self, *, subject: bytes | None = None, below_seq: int | None = None, keep: int | None = None) -> int:
        """Remove the messages of a subject (with wildcards; None: all) below a sequence, or all but the last `keep`.

        Returns how many. Without a subject, a `below_seq` above last_seq becomes the next sequence (nats-server:
        Compact). 0 means the same as None, as in the protocol. With both, what either of them keeps stays.
        """
        if subject is None or subject == EVERYTHING:
            if keep:
                subject = EVERYTHING
            else:
                return self._purge_to(below_seq or self._index.last_seq + 1)
        filters = self._filter_set((subject,))
        count_max = max(0, filters.num_pending(0) - keep) if keep else self._index.messages
        return filters.remove_matching(below_seq or self._index.last_seq + 1, count_max)

    def skip_to(self, seq: int, ts_ns: int) -> int:
        """Use this sequence for the next message; the ones in between stay empty. No effect if it is in the past.

        `ts_ns` becomes the time of the last message, unless it is 0. Returns last_seq.
        """
        if seq > self._index.last_seq + 1:
            self._index.finish_load(seq - 1, ts_ns or self._index.last_ts_ns)
        return self._index.last_seq

    @property
    def next_seq(self) -> int:
        """The sequence of the next message: above the last one, and above all that lost entries may have used."""
        return self._index.last_seq + 1 + self._lost.entries_at_end * MESSAGES_MAX

    @property
    def limits(self) -> StoreLimits:
        """The limits that are enforced."""
        return self._limits

    @property
    def state(self) -> StreamState:
        """The figures of stream info, as nats-server reports them: unused, first_seq is the given one or 0."""
        index = self._index
        return StreamState(
            messages=index.messages,
            bytes=index.message_bytes,
            first_seq=index.first_seq if index.last_seq or self._has_given_begin else 0,
            first_ts_ns=self._first_ts_ns(),
            last_seq=index.last_seq,
            last_ts_ns=index.last_ts_ns,
            num_subjects=self.num_subjects,
            num_deleted=self.num_deleted,
            lost=self._lost_data(),
        )

    def _first_ts_ns(self) -> int:
        """The time of the first message; 0 when there is none, or when it cannot be read."""
        try:
            return self.oldest_ts_ns() or 0
        except StoreCorrupt:
            return 0

    def _lost_data(self) -> LostStreamData | None:
        runs = self.lost()
        if not runs and not self.forgotten_ns:
            return None
        seqs = (seq for low, high in runs for seq in range(low, high + 1))
        return LostStreamData(msgs=tuple(islice(seqs, LOST_SEQS_MAX)), forgotten_ns=self.forgotten_ns or None)

    def lost(self) -> list[tuple[int, int]]:
        """Runs (first, last) of sequences whose messages are damaged on every member, until they are removed.

        They do not count as messages, nor for limits.
        """
        runs, last_seq = self._lost.noted(self._index.first_seq), self._index.last_seq
        return [*runs, (last_seq + 1, self.next_seq - 1)] if self._lost.entries_at_end else runs

    @property
    def forgotten_ns(self) -> int:
        """When a majority of the members had lost this stream, so that messages may be lost (Unix time); 0: never."""
        return self._lost.forgotten_ns

    @property
    def forgotten_by_all(self) -> bool:
        """Whether all members had lost it, so that everything up to then is lost."""
        return self._lost.forgotten_by_all

    def note_forgotten(self, ts_ns: int, *, by_all: bool) -> None:
        """Record that a majority of the members has lost the stream: an unknown number may be lost. 0: clear it."""
        self._lost.forgotten_ns, self._lost.forgotten_by_all = ts_ns, by_all

    def is_lost(self, seq: int) -> bool:
        """Whether the message of this sequence is damaged on every member."""
        return any(low <= seq <= high for low, high in self.lost())

    # -- reading --------------------------------------------------------------------------------------------------

    def load(self, seq: int) -> StoredMessage | None:
        """The message, None when it is not live. Raises StoreCorrupt when its frame is damaged."""
        try:
            found = self.records.load(seq)
        except StoreCorrupt as error:
            self._on_damage(error)
            raise
        if found is None and self._lost and self.is_lost(seq):
            raise StoreCorrupt(f"the message of sequence {seq} is damaged on every member")
        return found

    def load_many(self, seqs: Iterable[int]) -> list[StoredMessage]:
        """The messages of those sequences that are live, in the order given; fastest if ascending."""
        return self.records.load_many(seqs)

    def seq_at_time(self, ts_ns: int) -> int:
        """The first live sequence with a timestamp at or after `ts_ns` (Unix), last_seq + 1 when there is none.

        Accepts any integer: clients send times above 64 bits, which no message has. Raises StoreCorrupt when a frame
        that must be read is damaged, as does `oldest_ts_ns`.
        """
        ts_ns = min(max(ts_ns, 0), TS_NS_MAX)
        window = self._index.spans.time_window(ts_ns) or (0, None)
        low = max(self._index.first_seq, window[0])
        high = self._index.last_seq + 1 if window[1] is None else window[1]
        found = None
        while low < high:
            middle = (low + high) // 2
            live = self._index.next_from(middle)
            if live is None or live >= high:
                high = middle
            elif self._ts_of(live) >= ts_ns:
                found, high = live, middle
            else:
                low = live + 1
        if found is None:
            found = self._index.next_from(low)
        return self._index.last_seq + 1 if found is None else found

    def oldest_ts_ns(self) -> int | None:
        """The timestamp of the oldest message, None when the stream is empty."""
        if self._index.messages == 0:
            return None
        seq, ts_ns = self._oldest
        if seq != self._index.first_seq:
            seq = self._index.first_seq
            ts_ns = self._ts_of(seq)
            self._oldest = (seq, ts_ns)
        return ts_ns

    def distrust(self, error: StoreError | OSError) -> None:
        """Report damage that was met while an entry was applied."""
        self._on_damage(error)

    def liveness(self) -> Liveness:
        """Which sequences are live now."""
        index = self._index
        return Liveness(first_seq=index.first_seq, last_seq=index.last_seq, dead=index.pack_deleted())

    # -- restart --------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The state that is not in the frames of the log: limits, removed and lost messages, the last sequence.

        Lost messages are not live in the index, and a trim drops the block that shows the damage, so only the runs of
        lost messages distinguish them from removed ones.
        """
        index = self._index
        fields = (
            SNAPSHOT_VERSION,
            self._applied_index,
            _packed_limits(self._limits),
            (index.first_seq, index.last_seq, index.last_ts_ns, index.messages, index.message_bytes),
            index.pack_deleted(),
        )
        forgotten = self._lost.forgotten_ns, self._lost.forgotten_by_all
        lost = (self._lost.entries_at_end, self._lost.noted(index.first_seq), *forgotten)
        packed: bytes = msgpack.packb((*fields, *lost) if any(lost) else fields)
        return packed

    def restore(self, state: bytes) -> None:
        """Restore the state of a `snapshot`, by reading the frames that the log still has up to its entry.

        A log that was trimmed after the snapshot lacks its oldest messages. They are left out: later entries remove
        them, and limits drop the oldest messages first, so the messages above them are not affected. Raises
        StoreCorrupt when a message above the oldest frame is missing: nothing is lost, because the index is derived,
        and an older checkpoint or a peer can be used.
        """
        version, applied_index, limits, figures, deleted, *lost = msgpack.unpackb(state)
        if version != SNAPSHOT_VERSION:
            raise StoreCorrupt(f"stream: unknown snapshot version {version}")
        first_seq, last_seq, last_ts_ns, messages, message_bytes = figures
        self._applied_index = applied_index
        self._start(first_seq, StoreLimits())
        lost = [*lost, *(0, (), 0, False)[len(lost) :]]  # older servers wrote only the first one or two of these
        self._lost.entries_at_end, known, self._lost.forgotten_ns, self._lost.forgotten_by_all = lost
        missing: Runs = ()
        oldest_kept = self._load_frames(applied_index, PackedRanges(deleted, first_seq)) if messages else last_seq + 1
        self._index.finish_load(last_seq, last_ts_ns)
        if (self._index.messages, self._index.message_bytes) == (messages, message_bytes):
            pass
        elif self._log.lost or self._has_placeholders:
            gone = [(first_seq, self._index.first_seq - 1), *self.deleted_ranges()]
            missing = missing_runs(gone, PackedRanges(deleted, first_seq).to_list())
        else:
            expected = _live_from(max(first_seq, oldest_kept), last_seq, PackedRanges(deleted, first_seq).to_list())
            if self._index.messages != expected or oldest_kept <= first_seq:
                raise StoreCorrupt(
                    f"the snapshot at entry {applied_index} has {messages} messages of {message_bytes} bytes, "
                    f"the frames {self._index.messages} of {self._index.message_bytes}"
                )
        self._lost.note(merged([*((low, high) for low, high in known), *missing]), self._index.first_seq)
        self.set_limits(_unpacked_limits(*limits))

    def statistics(self) -> StoreStatistics:
        """Figures for monitoring and tests."""
        return StoreStatistics(
            messages=self._index.messages,
            message_bytes=self._index.message_bytes,
            subjects=self.num_subjects,
            frames=self._index.spans.frames,
            index_bytes=self._index.memory_bytes,
            filter_sets=len(self._filter_sets),
            verdict_bytes=sum(filters.memory_bytes for filters in self._filter_sets.values()),
        )

    # -- helpers --------------------------------------------------------------------------------------------------

    def _start(self, first_seq: int, limits: StoreLimits) -> None:
        """Start with an empty index."""
        self._begin(first_seq)
        self.records = RecordReader(self._index, self._log)
        self._lost = LostMessages(first_seq)
        self.set_limits(limits)

    def _load_frames(self, last_index: int, dead: PackedRanges) -> int:
        """Index the messages of the log's frames up to an entry; return the first sequence of the oldest frame."""
        oldest_kept, self._has_placeholders = 0, False
        for run in self._log.runs(1, last_index):
            self.pause()
            done = 0
            while done < len(run.indexes):
                loaded, first_seq, stands_in = self._load_run(run, done, dead)
                oldest_kept = oldest_kept or first_seq
                self._has_placeholders = self._has_placeholders or stands_in
                done += loaded
        return oldest_kept or NO_FRAME

    def _load_run(self, run: FrameRun, done: int, dead: PackedRanges) -> tuple[int, int, bool]:
        """Index frames of a run from the `done`-th on, at least one. Raises StoreCorrupt for one that is damaged."""
        found = self._index.load_run(
            run.data, run.places[done:], run.offsets[done:], run.indexes[done:], run.block, run.incarnation, dead
        )
        if found[0]:
            return found
        index = run.indexes[done]
        _, entry = next(self._log.frames(index, index))  # it is sealed, packed or thin; or this raises
        alone = run_of_one(entry, FrameRef(run.block, run.offsets[done]))
        found = self._index.load_run(alone.data, alone.places, alone.offsets, alone.indexes, alone.block, None, dead)
        assert found[0], f"entry {index} is not open"
        return found

    def _purge_to(self, seq: int) -> int:
        """Remove everything below `seq`; if it is above last_seq, continue there."""
        self._lost.noted(self._index.first_seq)
        removed = self._index.remove_below(seq)
        self._lost.forget_below(seq, self._index.first_seq)
        if seq > self._index.last_seq + 1:
            self._index.skip_to(seq)
        return removed

    def _ts_of(self, seq: int) -> int:
        try:
            ts_ns = self.records.ts_of(seq)
        except (StoreCorrupt, OSError) as error:
            self._on_damage(error)
            raise
        assert ts_ns is not None
        return ts_ns


def _packed_limits(limits: StoreLimits) -> tuple[int, ...]:
    """As a snapshot has them; the last one only where it is, so that earlier servers read it."""
    found: tuple[int, ...] = (limits.max_msgs, limits.max_bytes, limits.max_msgs_per_subject)
    return found if limits.max_bytes_per_subject == UNLIMITED else (*found, limits.max_bytes_per_subject)


def _unpacked_limits(
    max_msgs: int, max_bytes: int, max_msgs_per_subject: int, max_bytes_per_subject: int = UNLIMITED
) -> StoreLimits:
    return StoreLimits(
        max_msgs=max_msgs,
        max_bytes=max_bytes,
        max_msgs_per_subject=max_msgs_per_subject,
        max_bytes_per_subject=max_bytes_per_subject,
    )


def _live_from(low: int, last_seq: int, dead: Sequence[tuple[int, int]]) -> int:
    """The number of sequences in low..last_seq that are in none of the runs."""
    gone = sum(max(0, last - max(first, low) + 1) for first, last in dead)
    return max(0, last_seq - low + 1) - gone
