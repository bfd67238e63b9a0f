"""Queries on a stream that the index answers without reading the log.

A missing message is None; filters are bytes with `*` and `>`, and an empty set of filters means every message.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from jetraft.store.log.compaction import Live
from jetraft.store.stream import _liveness
from jetraft.store.stream._index import Index
from jetraft.store.stream._runs import Runs
from jetraft.store.stream._search import LastOfEachSearch, LastSearch, NextSearch
from jetraft.store.stream._select import FilterSet
from jetraft.store.stream._seqset import PackedRanges
from jetraft.store.stream.retention import SizeModel

FILTER_SETS_MAX: Final = 1024  # cached with their verdicts; nats-server's default for consumers of a stream is 1,000
DELETED_MAX: Final = 100_000  # listed individually: a gap can have up to 2**62 sequences
VERDICT_BYTES_MAX: Final = 64 << 20  # of all sets: one byte for each subject and set


class IndexedStream:
    """The queries. StreamStore, a subclass, changes the index."""

    _index: Index  # from `_begin` on

    def __init__(self, size_model: SizeModel) -> None:
        self._size_model = size_model
        self._filter_sets: dict[tuple[bytes, ...], FilterSet] = {}  # the least recently used first

    def _begin(self, first_seq: int) -> None:
        """Start with an empty index."""
        self._forget_filter_sets()
        self._index = Index(
            overhead_bytes=self._size_model.overhead_bytes,
            hdr_overhead_bytes=self._size_model.hdr_overhead_bytes,
            first_seq=first_seq,
        )

    # -- messages and subjects ------------------------------------------------------------------------------------

    @property
    def messages(self) -> int:
        """Live messages."""
        return self._index.messages

    @property
    def message_bytes_total(self) -> int:
        """The bytes that the live messages count for max_bytes."""
        return self._index.message_bytes

    @property
    def first_seq(self) -> int:
        """The lowest live sequence; last_seq + 1 when there is none."""
        return self._index.first_seq

    @property
    def last_seq(self) -> int:
        """The highest sequence ever used; the initial first sequence - 1 when there was none."""
        return self._index.last_seq

    @property
    def absent(self) -> int:
        """How many sequences from 1 to the last one have no live message."""
        return self._index.last_seq - self._index.messages

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

    def deleted(self) -> list[int]:
        """The sequences from first_seq to last_seq that are not live, ascending: the first DELETED_MAX of them."""
        seqs = (seq for low, high in self.deleted_ranges() for seq in range(low, high + 1))
        return list(islice(seqs, DELETED_MAX))

    def deleted_ranges(self) -> list[tuple[int, int]]:
        """The same as runs (first, last)."""
        return PackedRanges(self.packed_deleted(), self._index.first_seq).to_list()

    def packed_deleted(self) -> bytes:
        """All of them as a RangePacker has packed them from `first_seq` on: some 2 bytes for each that stands alone."""
        return self._index.pack_deleted()

    def subjects(self, subject_filter: bytes, *, offset: int = 0, limit: int | None = None) -> dict[bytes, int]:
        """The matching subjects with their counts, in byte order: `limit` of them from the `offset`-th on."""
        return self.page_of_subjects(subject_filter, offset=offset, limit=limit)[1]

    def page_of_subjects(
        self, subject_filter: bytes, *, offset: int = 0, limit: int | None = None
    ) -> tuple[int, dict[bytes, int]]:
        """How many subjects match, and a page of them as `subjects` has it.

        All subjects are compared with the filter, some 50 ns each; only those of the page become objects, 500 ns each.
        """
        tree = self._index.tree
        found = tree.match(subject_filter)
        page = found[offset : None if limit is None else offset + limit]
        return len(found), {tree.name_of(subject_id): tree.count_of(subject_id) for subject_id in page}

    def count_for(self, subject: bytes) -> int:
        """Live messages of a literal subject."""
        found = self._index.subject_state(subject)
        return found[0] if found else 0

    def bytes_for(self, subject: bytes) -> int:
        """The bytes that the live messages of a literal subject count for its limit; 0 without one."""
        return self._index.subject_bytes(subject)

    def first_for(self, subject: bytes) -> int | None:
        """The lowest live sequence of a literal subject."""
        found = self._index.subject_state(subject)
        return found[1] if found else None

    def last_for(self, subject: bytes) -> int | None:
        """The highest live sequence of a literal subject."""
        found = self._index.subject_state(subject)
        return found[2] if found else None

    @property
    def is_live(self) -> Callable[[int], bool]:
        """Whether the stream has a message of a sequence: the index's own method, for those who ask a million times."""
        return self._index.is_live

    def subject_of(self, seq: int) -> bytes | None:
        """The subject of a message, without reading it; None when it is not live."""
        return self._index.subject_at(seq)

    def count_live(self, seqs: Runs, above: int) -> int:
        """How many of these sequences above one have a live message."""
        return self._index.count_live(seqs, above)

    def live_of(self, seqs: Runs, above: int, count: int) -> Runs:
        """The first of these sequences above one that have a live message, so many at most."""
        return self._index.live_of(seqs, above, count)

    def place(self, seq: int) -> tuple[int, int, int] | None:
        """(block, offset of the frame, offset of the record) of a message; None when it is not live."""
        return self._index.place(seq)

    def block_fill(self) -> list[tuple[int, int, int]]:
        """[(block, number of sequences that it spans, number of live messages)], in order."""
        return _liveness.blocks(self._index)

    def live_in(self, block: int) -> Live:
        """The live messages in a block of the log."""
        offsets, counts, seqs, message_bytes = _liveness.live_frames(self._index, block)
        return Live(offsets=offsets, counts=counts, seqs=seqs, message_bytes=message_bytes)

    def message_bytes(self, subject_len: int, hdr_len: int, payload_len: int) -> int:
        """The bytes that a message counts for max_bytes and in the stream's state."""
        return self._size_model.message_bytes(subject_len, hdr_len, payload_len)

    def hide(self, prefix: bytes | None) -> None:
        """Let only filters that begin with `$` admit the subjects that begin so; None hides nothing.

        No filter at all admits everything, hidden or not: see `visible`.
        """
        if prefix != self._index.hidden:
            self._forget_filter_sets()
            self._index.hide(prefix)

    def visible(self, filters: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Filters for what is not hidden, of those of a reader who may have none."""
        return (b">",) if not filters and self._index.hidden is not None else filters

    # -- filters --------------------------------------------------------------------------------------------------

    def next_match(self, filters: Sequence[bytes], from_seq: int) -> int | None:
        """The lowest live sequence at or above `from_seq` that the filters admit."""
        if not filters:
            return self._index.next_from(from_seq)
        return self._filter_set(filters).next_match(from_seq)

    def next_matches(self, filters: Sequence[bytes], from_seq: int, count: int) -> list[int]:
        """The first `count` such sequences; fewer only when there are no more up to last_seq."""
        return self._filter_set(filters).next_matches(from_seq, count)

    def next_runs(self, filters: Sequence[bytes], from_seq: int, count: int) -> Runs:
        """The same sequences as runs, without an object for each message."""
        return self._filter_set(filters).next_runs(from_seq, count)

    def num_pending(self, filters: Sequence[bytes], from_seq: int) -> int:
        """The exact number of live messages at or above `from_seq` that the filters admit."""
        if not filters:
            return self._index.count_from(from_seq)
        return self._filter_set(filters).num_pending(from_seq)

    def next_and_left(self, filters: Sequence[bytes], from_seq: int, count: int) -> tuple[int, Runs]:
        """(`num_pending`, `next_runs`), with one look-up of the filters."""
        found = self._filter_set(filters)
        return found.num_pending(from_seq), found.next_runs(from_seq, count)

    def last_match(self, filters: Sequence[bytes]) -> int | None:
        """The highest live sequence that the filters admit."""
        return self._filter_set(filters).last_match()

    def last_per_subject(self, filters: Sequence[bytes], up_to_seq: int | None = None) -> Runs:
        """The last message (at or below `up_to_seq`) of each subject that the filters admit."""
        up_to_seq = self._index.last_seq if up_to_seq is None else up_to_seq
        return self._filter_set(filters).last_per_subject(up_to_seq)

    # -- searches in steps, for what clients ask once --------------------------------------------------------------

    def search_last(self, filters: Sequence[bytes]) -> LastSearch:
        """A search for `last_match`."""
        return LastSearch(self._index, filters)

    def search_last_of_each(self, filters: Sequence[bytes], up_to_seq: int, *, count_max: int) -> LastOfEachSearch:
        """A search for `last_per_subject`."""
        return LastOfEachSearch(self._index, filters, up_to_seq, count_max)

    def search_next(self, filters: Sequence[bytes], from_seq: int) -> NextSearch:
        """A search for `next_match`; close it when it is over."""
        return NextSearch(self._index, filters, from_seq)

    def _forget_filter_sets(self) -> None:
        for filters in self._filter_sets.values():
            filters.close()
        self._filter_sets.clear()

    def _filter_set(self, filters: Sequence[bytes]) -> FilterSet:
        """The cached set with its verdicts and count; a new one replaces the least recently used."""
        key = tuple(filters)
        found = self._filter_sets.pop(key, None)
        if found is None:
            room = max(1, min(FILTER_SETS_MAX, VERDICT_BYTES_MAX // (self.num_subjects + 1)))
            while len(self._filter_sets) >= room:
                self._filter_sets.pop(next(iter(self._filter_sets))).close()
            found = FilterSet(self._index, key)
        self._filter_sets[key] = found
        return found
