"""The messages of one stream: derived state over one group's log, the same on every replica at the same applied index.

The log keeps the bytes; this keeps what is live and where it is (`_index.pyx`), which subjects there are
(`_subjtree.pyx`) and answers what consumers and readers ask (`_select.pyx`). Nothing here is written to disk: a restart
restores the last checkpoint's `snapshot()`, reads the frames that the log still has, and applies what came after.

Everything is synchronous, and belongs to the turn that calls it. Changes must come from applied entries only; what is
applied is never refused. Sequences never go back: purging everything leaves first_seq = last_seq + 1. A sequence of 0
and a missing message are None here; filters are bytes with `*` and `>`, an empty set of filters means every message.

Source of the semantics: nats-server filestore.go, memstore.go (limits, Compact, PurgeEx, size of a message), measured
against 2.15.1 where the tests say so.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol, runtime_checkable

import attrs
import msgpack

from jetraft.store import _liveness
from jetraft.store._frame import parse_header
from jetraft.store._index import Index
from jetraft.store._records import RecordReader, StoredMessage
from jetraft.store._runs import Runs
from jetraft.store._select import FilterSet
from jetraft.store._seqset import PackedRanges
from jetraft.store.compaction import Live
from jetraft.store.format import Kind
from jetraft.store.model.state import LostStreamData, StreamState
from jetraft.store.port import Entry, GroupLog, StoreCorrupt
from jetraft.store.retention import SizeModel, StoreLimits

__all__ = ["StoreLimits", "StoreStatistics", "StoredMessage", "StreamStore"]

SNAPSHOT_VERSION: Final = 1
FILTER_SETS_MAX: Final = (
    1024  # remembered with their verdicts; nats-server's default for consumers of a stream is 1,000
)
VERDICT_BYTES_MAX: Final = 64 << 20  # of them together: one byte for each subject and set
LOST_SEQS_MAX: Final = 10_000  # listed in stream info: a range that ends with a guess can be long
EVERYTHING: Final = b">"
NO_FRAME: Final = 1 << 63  # above every sequence


@runtime_checkable
class RecordEraser(Protocol):
    """A log that can overwrite a record in place."""

    def erase_record(self, block: int, frame_offset: int, record_offset: int) -> None:
        """Rewrite the frame with the record's payload gone and a new checksum."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class StoreStatistics:
    """Figures of one store."""

    messages: int
    message_bytes: int  # what max_bytes counts
    subjects: int
    frames: int  # that the index knows
    index_bytes: int  # allocated for the index and the subjects
    filter_sets: int
    verdict_bytes: int


class StreamStore:
    """The live messages of one stream replica."""

    def __init__(
        self,
        log: GroupLog,
        limits: StoreLimits,
        *,
        size_model: SizeModel = SizeModel.FILE,
        first_seq: int = 1,
        on_damage: Callable[[StoreCorrupt], None] = lambda _error: None,
    ) -> None:
        """An empty store; apply entries or `restore` next. The first message gets `first_seq` at the earliest.

        `on_damage` hears of every frame that a read finds damaged, before the reader gets the error.
        """
        self._log = log
        self._on_damage = on_damage
        self._limits = limits
        self._size_model = size_model
        self._applied_index = 0  # of the last MESSAGES entry
        self._oldest: tuple[int, int] = (0, 0)  # (a sequence, its timestamp): first_seq when last asked for
        self._lost: list[tuple[int, int]] = []
        self._start(first_seq, limits)

    # -- changes, all from applied entries -----------------------------------------------------------------------

    def apply_messages(self, entry: Entry) -> int:
        """Add the messages of an entry that stands in the log, enforce the limits, return last_seq.

        Limits are enforced after each message: first the subject's, then the totals, by dropping the oldest.
        """
        place = self._log.locate(entry.index)
        assert place is not None, f"entry {entry.index} is not in the log"
        before = self._index.last_seq
        header = parse_header(entry.frame)
        self._index.apply(entry.frame, place.block, place.offset)
        self._applied_index = entry.index
        if header.first_stream_seq > before + 1:  # entries in between were damaged on every member
            if not header.record_count:
                self._index.finish_load(header.first_stream_seq - 1, self._index.last_ts_ns)
            self._note_lost([(before + 1, header.first_stream_seq - 1)])
        return self._index.last_seq

    def set_limits(self, limits: StoreLimits) -> int:
        """Change the limits and enforce them: subjects first, then totals. Returns how many messages were dropped."""
        self._limits = limits
        return self._index.limit(
            max_msgs=limits.max_msgs, max_bytes=limits.max_bytes, max_msgs_per_subject=limits.max_msgs_per_subject
        )

    def remove(self, seqs: Iterable[int], *, erase: bool = False) -> list[int]:
        """Remove messages, return the sequences that were live.

        With `erase` their bytes are overwritten too, where the log can do that; otherwise they stay in the block
        until it is dropped.
        """
        if not (erase and isinstance(self._log, RecordEraser)):
            return self._index.remove_many(seqs)
        removed = []
        for seq in seqs:
            place = self._index.place(seq)
            if place is not None:
                self._log.erase_record(*place)
                self._index.remove(seq)
                removed.append(seq)
        self.records.forget()
        return removed

    def remove_below(self, seq: int) -> int:
        """Remove every message below `seq`, return how many. last_seq stays, also when `seq` lies beyond it."""
        removed = self._index.remove_below(seq)
        self._forget_lost_below(seq)
        return removed

    def purge(self, *, subject: bytes | None = None, below_seq: int | None = None, keep: int | None = None) -> int:
        """Remove the messages of a subject (with wildcards; None: all) below a sequence, or all but the last `keep`.

        Returns how many. Without a subject a `below_seq` beyond the end moves the stream there: the next message gets
        it (nats-server: Compact). 0 means the same as None, as on the wire.
        """
        assert not (below_seq and keep)
        if subject is None or subject == EVERYTHING:
            if keep:
                subject = EVERYTHING
            else:
                return self._purge_to(below_seq or self._index.last_seq + 1)
        filters = self._filter_set((subject,))
        count_max = max(0, filters.num_pending(0) - keep) if keep else self._index.messages
        return filters.remove_matching(below_seq or self._index.last_seq + 1, count_max)

    def skip_to(self, seq: int, ts_ns: int) -> int:
        """Give the next message this sequence: those between never have one. Without effect when it lies behind.

        `ts_ns` becomes the time of the last message, unless it is 0. Returns last_seq.
        """
        if seq > self._index.last_seq + 1:
            self._index.finish_load(seq - 1, ts_ns or self._index.last_ts_ns)
        return self._index.last_seq

    # -- compaction -----------------------------------------------------------------------------------------------

    def block_fill(self) -> list[tuple[int, int, int]]:
        """[(block, sequences that it spans, messages of them that live)], in order."""
        return _liveness.blocks(self._index)

    def live_in(self, block: int) -> Live:
        """What lives in a block of the log."""
        offsets, counts, seqs, message_bytes = _liveness.live_frames(self._index, block)
        return Live(offsets=offsets, counts=counts, seqs=seqs, message_bytes=message_bytes)

    # -- what there is --------------------------------------------------------------------------------------------

    @property
    def messages(self) -> int:
        """Live messages."""
        return self._index.messages

    @property
    def message_bytes_total(self) -> int:
        """What the live messages count for max_bytes."""
        return self._index.message_bytes

    @property
    def first_seq(self) -> int:
        """The lowest live sequence; last_seq + 1 when there is none."""
        return self._index.first_seq

    @property
    def last_seq(self) -> int:
        """The highest sequence ever used; one less than the first to use when there was none."""
        return self._index.last_seq

    @property
    def last_ts_ns(self) -> int:
        """The timestamp of the last message ever applied, 0 when there was none."""
        return self._index.last_ts_ns

    @property
    def num_subjects(self) -> int:
        """Subjects with live messages."""
        return len(self._index.tree)

    @property
    def num_deleted(self) -> int:
        """Sequences from first_seq to last_seq that are not live."""
        return self._index.last_seq + 1 - self._index.first_seq - self._index.messages

    @property
    def limits(self) -> StoreLimits:
        """What is enforced."""
        return self._limits

    @property
    def state(self) -> StreamState:
        """The figures of stream info, as nats-server reports them: an unused stream has first_seq 0."""
        index = self._index
        return StreamState(
            messages=index.messages,
            bytes=index.message_bytes,
            first_seq=index.first_seq if index.last_seq else 0,
            first_ts_ns=self._first_ts_ns(),
            last_seq=index.last_seq,
            last_ts_ns=index.last_ts_ns,
            num_subjects=self.num_subjects,
            num_deleted=self.num_deleted,
            lost=self._lost_data(),
        )

    def _first_ts_ns(self) -> int:
        """The time of the first message; 0 when there is none, or when it cannot be read now."""
        try:
            return self.oldest_ts_ns() or 0
        except StoreCorrupt:
            return 0

    def _lost_data(self) -> LostStreamData | None:
        runs = self.lost()
        if not runs:
            return None
        seqs = (seq for low, high in runs for seq in range(low, high + 1))
        return LostStreamData(msgs=tuple(islice(seqs, LOST_SEQS_MAX)))

    def deleted(self) -> list[int]:
        """The sequences from first_seq to last_seq that are not live, ascending; as many as `num_deleted` says."""
        return [seq for low, high in self.deleted_ranges() for seq in range(low, high + 1)]

    def deleted_ranges(self) -> list[tuple[int, int]]:
        """The same as runs (first, last)."""
        return PackedRanges(self._index.pack_deleted(), self._index.first_seq).to_list()

    def subjects(self, subject_filter: bytes, *, offset: int = 0, limit: int | None = None) -> dict[bytes, int]:
        """The subjects that match, with their counts, in byte order: a page of `limit` from the `offset`-th on."""
        tree = self._index.tree
        page = tree.match(subject_filter)[offset : None if limit is None else offset + limit]
        return {tree.name_of(subject_id): tree.count_of(subject_id) for subject_id in page}

    def count_for(self, subject: bytes) -> int:
        """Live messages of a literal subject."""
        found = self._index.subject_state(subject)
        return found[0] if found else 0

    def first_for(self, subject: bytes) -> int | None:
        """The lowest live sequence of a literal subject."""
        found = self._index.subject_state(subject)
        return found[1] if found else None

    def last_for(self, subject: bytes) -> int | None:
        """The highest live sequence of a literal subject."""
        found = self._index.subject_state(subject)
        return found[2] if found else None

    def subject_of(self, seq: int) -> bytes | None:
        """The subject of a message, without reading it; None when it is not live."""
        return self._index.subject_at(seq)

    def place(self, seq: int) -> tuple[int, int, int] | None:
        """(block, offset of the frame, offset of the record) of a message; None when it is not live."""
        return self._index.place(seq)

    def lost(self) -> list[tuple[int, int]]:
        """Runs (first, last) of sequences whose messages are damaged on every member, until something removes them.

        They count neither as messages nor for any limit.
        """
        first_seq = self._index.first_seq
        if first_seq != self._lost_first_seq:  # something removed the beginning of the stream since they were noted
            self._lost = [(max(low, first_seq), high) for low, high in self._lost if high >= first_seq]
        return self._lost

    def is_lost(self, seq: int) -> bool:
        """Whether a message was there and is damaged on every member."""
        return any(low <= seq <= high for low, high in self.lost())

    def _note_lost(self, runs: Sequence[tuple[int, int]]) -> None:
        self._lost = [*self.lost(), *runs]
        self._lost_first_seq = self._index.first_seq

    def _forget_lost_below(self, seq: int) -> None:
        self._lost = [(max(low, seq), high) for low, high in self._lost if high >= seq]
        self._lost_first_seq = self._index.first_seq

    # -- reading --------------------------------------------------------------------------------------------------

    def load(self, seq: int) -> StoredMessage | None:
        """The message, None when it is not live. Raises StoreCorrupt when its frame is damaged."""
        try:
            found = self.records.load(seq)
        except StoreCorrupt as error:
            self._on_damage(error)
            raise
        if found is None and self._lost and self.is_lost(seq):
            raise StoreCorrupt(f"the message of sequence {seq} is damaged")
        return found

    def load_many(self, seqs: Iterable[int]) -> list[StoredMessage]:
        """The messages of those sequences that are live, in the order given: fastest when that is ascending."""
        return self.records.load_many(seqs)

    def next_match(self, filters: Sequence[bytes], from_seq: int) -> int | None:
        """The lowest live sequence at or above `from_seq` that the filters admit."""
        if not filters:
            return self._index.next_from(from_seq)
        return self._filter_set(filters).next_match(from_seq)

    def next_matches(self, filters: Sequence[bytes], from_seq: int, count: int) -> list[int]:
        """The first `count` of them; fewer only when there are no more, so the reader has then seen up to last_seq."""
        return self._filter_set(filters).next_matches(from_seq, count)

    def next_runs(self, filters: Sequence[bytes], from_seq: int, count: int) -> Runs:
        """The same sequences as runs: no object for a message."""
        return self._filter_set(filters).next_runs(from_seq, count)

    def num_pending(self, filters: Sequence[bytes], from_seq: int) -> int:
        """How many live messages at or above `from_seq` the filters admit: exact."""
        if not filters:
            return self._index.count_from(from_seq)
        return self._filter_set(filters).num_pending(from_seq)

    def last_match(self, filters: Sequence[bytes]) -> int | None:
        """The highest live sequence that the filters admit."""
        return self._filter_set(filters).last_match()

    def last_per_subject(self, filters: Sequence[bytes], up_to_seq: int | None = None) -> list[int]:
        """The last message (at or below `up_to_seq`) of each subject that the filters admit, ascending."""
        return self._filter_set(filters).last_per_subject(self._index.last_seq if up_to_seq is None else up_to_seq)

    def seq_at_time(self, ts_ns: int) -> int:
        """The first live sequence with a timestamp at or after `ts_ns` (Unix), last_seq + 1 when there is none.

        Raises StoreCorrupt when a frame that must be looked into is damaged, as does `oldest_ts_ns`.
        """
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

    def message_bytes(self, subject_len: int, hdr_len: int, payload_len: int) -> int:
        """What a message counts for max_bytes and in the stream's bytes."""
        return self._size_model.message_bytes(subject_len, hdr_len, payload_len)

    # -- restart --------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """What the frames in the log do not tell: limits, what was removed, how far the sequences have come."""
        index = self._index
        packed: bytes = msgpack.packb(
            (
                SNAPSHOT_VERSION,
                self._applied_index,
                (self._limits.max_msgs, self._limits.max_bytes, self._limits.max_msgs_per_subject),
                (index.first_seq, index.last_seq, index.last_ts_ns, index.messages, index.message_bytes),
                index.pack_deleted(),
            )
        )
        return packed

    def restore(self, state: bytes) -> None:
        """Become what `snapshot` was taken of, by reading the frames that the log still has up to that entry.

        A log that was trimmed after the snapshot lacks its oldest messages. They are left out here: entries that follow
        the snapshot remove them in any case, and every limit drops the oldest first, so nothing above them comes out
        differently. Raises StoreCorrupt when a message above the oldest frame kept is missing: the index is derived,
        so this loses nothing, and an older checkpoint or a peer can still be used.
        """
        version, applied_index, limits, figures, deleted = msgpack.unpackb(state)
        if version != SNAPSHOT_VERSION:
            raise StoreCorrupt(f"snapshot version {version} of a stream")
        first_seq, last_seq, last_ts_ns, messages, message_bytes = figures
        max_msgs, max_bytes, max_msgs_per_subject = limits
        self._applied_index = applied_index
        for filters in self._filter_sets.values():
            filters.close()
        self._start(first_seq, StoreLimits())
        oldest_kept = self._load_frames(applied_index, PackedRanges(deleted, first_seq)) if messages else last_seq + 1
        self._index.finish_load(last_seq, last_ts_ns)
        if (self._index.messages, self._index.message_bytes) == (messages, message_bytes):
            pass
        elif self._log.lost:
            self._note_lost(self._missing(first_seq, PackedRanges(deleted, first_seq).to_list()))
        else:
            expected = _live_from(max(first_seq, oldest_kept), last_seq, PackedRanges(deleted, first_seq).to_list())
            if self._index.messages != expected or oldest_kept <= first_seq:
                raise StoreCorrupt(
                    f"the snapshot at entry {applied_index} tells of {messages} messages of {message_bytes} bytes, "
                    f"the frames hold {self._index.messages} of {self._index.message_bytes}"
                )
        self.set_limits(StoreLimits(max_msgs=max_msgs, max_bytes=max_bytes, max_msgs_per_subject=max_msgs_per_subject))

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
        """Begin with an empty index."""
        self._index = Index(
            overhead_bytes=self._size_model.overhead_bytes,
            hdr_overhead_bytes=self._size_model.hdr_overhead_bytes,
            first_seq=first_seq,
        )
        self.records = RecordReader(self._index, self._log)
        self._filter_sets: dict[tuple[bytes, ...], FilterSet] = {}  # the least recently used first
        self._lost = []
        self._lost_first_seq = self._index.first_seq  # when they were noted
        self.set_limits(limits)

    def _load_frames(self, last_index: int, dead: PackedRanges) -> int:
        """Index the messages of the frames kept up to an entry; return the sequence that the oldest one starts with."""
        oldest_kept = None
        for place, entry in self._log.frames(1, last_index):
            if entry.kind == Kind.MESSAGES:
                self._index.load(entry.frame, place.block, place.offset, dead)
                header = parse_header(entry.frame)
                if header.record_count:
                    oldest_kept = oldest_kept or header.first_stream_seq
        return NO_FRAME if oldest_kept is None else oldest_kept

    def _missing(self, first_seq: int, dead: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Runs of sequences from `first_seq` on that were live in the snapshot and are in no frame."""
        gone = [(first_seq, self._index.first_seq - 1), *self.deleted_ranges()]
        missing = []
        for first, last in gone:
            low = first
            for dead_first, dead_last in dead:
                if low < dead_first <= last:
                    missing.append((low, dead_first - 1))
                if dead_first <= last and dead_last >= low:
                    low = dead_last + 1
            if low <= last:
                missing.append((low, last))
        return missing

    def _filter_set(self, filters: Sequence[bytes]) -> FilterSet:
        """The set with its verdicts and its count; the least recently used one is forgotten for a new one."""
        key = tuple(filters)
        found = self._filter_sets.pop(key, None)
        if found is None:
            room = max(1, min(FILTER_SETS_MAX, VERDICT_BYTES_MAX // (self.num_subjects + 1)))
            while len(self._filter_sets) >= room:
                self._filter_sets.pop(next(iter(self._filter_sets))).close()
            found = FilterSet(self._index, key)
        self._filter_sets[key] = found
        return found

    def _purge_to(self, seq: int) -> int:
        """Remove everything below `seq`; beyond the end, go on there."""
        removed = self._index.remove_below(seq)
        self._forget_lost_below(seq)
        if seq > self._index.last_seq + 1:
            self._index.skip_to(seq)
        return removed

    def _ts_of(self, seq: int) -> int:
        try:
            ts_ns = self.records.ts_of(seq)
        except StoreCorrupt as error:
            self._on_damage(error)
            raise
        assert ts_ns is not None
        return ts_ns


def _live_from(low: int, last_seq: int, dead: Sequence[tuple[int, int]]) -> int:
    """How many of low..last_seq are in none of the runs."""
    gone = sum(max(0, last - max(first, low) + 1) for first, last in dead)
    return max(0, last_seq - low + 1) - gone
