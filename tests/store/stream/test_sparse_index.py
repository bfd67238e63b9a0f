"""Sequences far apart, and few messages left of many: memory follows what is stored, and every answer stays right."""

from itertools import pairwise
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jetraft.store.log.mem_log import MemLog
from jetraft.store.stream._index import Index
from jetraft.store.stream._select import FilterSet
from jetraft.store.stream.retention import SizeModel, StoreLimits
from jetraft.store.stream.stream_store import StreamStore
from tests.store.naive_stream import Message, NaiveStream, append_messages
from tests.store.stream.test_select import extend, index_of

CHUNK = 256
CHUNK_BYTES = 16 * CHUNK
ALONE_BYTES = 128  # a message that is alone in its chunk, with its shelf, in arrays that have doubled
SUBJECTS = (b"a", b"b.c", b"b.d", b"cold.1", b"cold.2")
FILTERS = ((), (b"a",), (b"b.*",), (b"b.c", b"cold.*"), (b"cold.2",), (b"none",))
GAPS = st.sampled_from([0, 0, 0, 1, CHUNK - 1, 3 * CHUNK, 9 * CHUNK, 1 << 20, 1 << 33, 1 << 55])


class SparseStream(RuleBasedStateMachine):
    """Long runs, gaps of every length, removals that leave little of a chunk; beside a dictionary."""

    @initialize(keep=st.sampled_from([-1, -1, 1, 3]), large=st.sampled_from([4096, 1, 20, 300]))
    def start(self, keep: int, large: int) -> None:
        limits = StoreLimits(max_msgs_per_subject=keep)
        self.log = MemLog(block_bytes=20_000)
        self.store = StreamStore(self.log, limits)
        self.model = NaiveStream(limits, SizeModel.FILE)
        self.keep = keep
        self.store._index.large = self.large = large
        self.unique = 0

    def seqs(self, seed: int) -> list[int]:
        """Sequences worth asking about."""
        live = sorted(self.model.live)
        some = Random(seed).sample(live, min(len(live), 3))
        places = [seq + step for seq in (*some, *live[:1], *live[-1:]) for step in (-CHUNK, -1, 0, 1, CHUNK)]
        return [seq for seq in (0, *places, self.model.last_seq + 1) if seq >= 0]

    @rule(gap=GAPS, count=st.sampled_from([1, 2, 40, CHUNK, 700]), spread=st.integers(1, 8))
    def publish(self, gap: int, count: int, spread: int) -> None:
        first_seq = self.store.last_seq + 1 + gap
        if first_seq > 1 << 61:
            return
        messages = []
        for place in range(count):
            self.unique += 1
            subject = SUBJECTS[place % spread % len(SUBJECTS)] if place % 7 else b"b.%d" % self.unique
            messages.append(Message(subject, b"", b"", 1))
        self.store.skip_to(first_seq, 1)
        self.store.apply_messages(append_messages(self.log, first_seq, messages))
        self.model.live.update(enumerate(messages, first_seq))
        self.model.first_unused = first_seq + count
        by_subject: dict[bytes, list[int]] = {}
        for seq, message in self.model.live.items():
            by_subject.setdefault(message.subject, []).append(seq)
        for seqs in by_subject.values() if self.keep > 0 else ():
            for seq in seqs[: -self.keep]:
                del self.model.live[seq]

    @precondition(lambda self: self.model.live)
    @rule(seed=st.integers(0, 1 << 32), one_in=st.sampled_from([2, 9, 30, 200, 2000]), ordered=st.booleans())
    def thin_out(self, seed: int, one_in: int, *, ordered: bool) -> None:
        """Keep one message in so many, of a part of the stream."""
        random = Random(seed)
        low, high = sorted(random.choices(sorted(self.model.live), k=2))
        doomed = [seq for seq in sorted(self.model.live) if low <= seq <= high and random.randrange(one_in)]
        if not ordered:
            random.shuffle(doomed)
        assert self.store.remove(doomed) == doomed
        for seq in doomed:
            del self.model.live[seq]

    @precondition(lambda self: self.model.live)
    @rule(data=st.data())
    def remove_below(self, data: Any) -> None:
        low = data.draw(st.sampled_from(sorted(self.model.live)[:1000]))
        self.store.remove_below(low)
        self.model.live = {seq: one for seq, one in self.model.live.items() if seq >= low}

    @rule(subject=st.sampled_from(SUBJECTS))
    def purge(self, subject: bytes) -> None:
        self.store.purge(subject=subject)
        self.model.live = {seq: one for seq, one in self.model.live.items() if one.subject != subject}

    @rule()
    def restart(self) -> None:
        restored = StreamStore(self.log, StoreLimits())
        restored.restore(self.store.snapshot())
        self.store = restored
        self.store._index.large = self.large

    @rule(data=st.data())
    def roll_up(self, data: Any) -> None:
        """As a message does that takes the place of all before it, or of those of its subject."""
        subject = data.draw(st.sampled_from([None, *SUBJECTS]))
        below = self.store.last_seq - data.draw(st.sampled_from([0, 0, 1, 3, 500, 2000]))
        if below > 0:
            gone = {seq for seq in self.model.matching(() if subject is None else (subject,)) if seq < below}
            assert self.store.purge(subject=subject, below_seq=below) == len(gone)
            self.model.live = {seq: one for seq, one in self.model.live.items() if seq not in gone}

    @rule()
    def shed(self) -> None:
        self.store._index.shed()

    @rule(seed=st.integers(0, 1 << 32))
    def ask(self, seed: int) -> None:
        store, model, index = self.store, self.model, self.store._index
        for filters in FILTERS:
            everything = model.matching(filters)
            assert store.last_match(filters) == max(everything, default=None)
            for seq in self.seqs(seed):
                expected = [one for one in everything if one >= seq]
                assert store.next_match(filters, seq) == min(expected, default=None)
                assert store.num_pending(filters, seq) == len(expected)
                assert store.next_matches(filters, seq, 2) == expected[:2]
            assert store.next_matches(filters, seq, 600) == expected[:600]
            assert list(store.last_per_subject(filters, seq)) == model.last_per_subject(filters, seq)
        for seq in self.seqs(seed):
            message = model.live.get(seq)
            assert index.is_live(seq) == (message is not None)
            assert index.subject_at(seq) == (message.subject if message else None)
            assert message is None or index.size_of(seq) == model.size(message)
            assert (index.place(seq) is not None) == (message is not None)

    @invariant()
    def figures_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        store, model = self.store, self.model
        live = sorted(model.live)
        assert (store.messages, store.first_seq, store.last_seq) == (len(live), model.first_seq, model.last_seq)
        assert store.message_bytes_total == model.total_bytes
        ends = [model.first_seq - 1, *live, model.last_seq + 1]
        gaps = [(low + 1, high - 1) for low, high in pairwise(ends) if high - low > 1]
        assert store.deleted_ranges() == gaps
        for subject in SUBJECTS:
            mine = [seq for seq in live if model.live[seq].subject == subject]
            assert (store.first_for(subject), store.last_for(subject)) == (
                (mine[0], mine[-1]) if mine else (None, None)
            )

    @invariant()
    def memory_follows_what_is_stored(self) -> None:
        """A chunk of which more than an eighth lives is held whole; so are the newest two."""
        if not hasattr(self, "store"):
            return
        counts: dict[int, int] = {}
        for seq in self.model.live:
            counts[seq // CHUNK] = counts.get(seq // CHUNK, 0) + 1
        newest = self.model.last_seq // CHUNK
        head = self.model.first_seq // CHUNK  # packed when something is removed that is not the first message
        whole = sum(count > CHUNK // 8 or number in (newest, head) for number, count in counts.items()) + 2
        cells = whole * CHUNK_BYTES + sum(34 * count for count in counts.values() if count <= CHUNK // 8)
        peak = getattr(self, "peak", 0)
        self.peak = max(peak, len(counts))
        assert self.store._index.chunks.memory_bytes <= cells + 24 * 4 * (self.peak + 16)


TestSparseStream = SparseStream.TestCase
TestSparseStream.settings = settings(
    max_examples=150, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)


def isolated(count: int, distance: int, *subjects: bytes) -> Index:
    """Messages that far apart, in turn of these subjects."""
    log, index = index_of(b"first")
    for number in range(1, count):
        extend(log, index, subjects[number % len(subjects)], first_seq=1 + number * distance)
    return index


@pytest.mark.parametrize("distance", [CHUNK, 20 * CHUNK, 1 << 36, 1 << 50])
def test_messages_far_apart_cost_what_they_are_and_not_their_distance(distance: int) -> None:
    index = isolated(2000, distance, b"a", b"b")
    assert index.chunks.memory_bytes < 2 * CHUNK_BYTES + 2000 * ALONE_BYTES
    assert index.next_from(distance + 2) == 1 + 2 * distance
    assert index.count_from(1000 * distance + 1) == 1000


def test_a_stream_restored_with_a_huge_last_sequence_is_small_and_works() -> None:
    """What a poisoned archive asks for: one message, a skip to the end of the numbers, and one more."""
    log, index = index_of(b"a")
    extend(log, index, b"a", b"b", first_seq=1 << 61)
    assert index.memory_bytes < 40_000
    assert (index.next_from(2), index.next_from((1 << 61) + 2)) == (1 << 61, None)
    assert index.remove(1 << 61)
    assert index.subject_state(b"a") == (1, 1, 1)
    assert index.remove_below(1 << 61) == 1
    assert index.first_seq == (1 << 61) + 1


def test_keys_that_are_alone_left_cost_less_than_a_chunk() -> None:
    """Two cold keys among the updates of a hot one, in every chunk."""
    _, index = index_of(*[b"cold.%d" % number if number % 128 == 0 else b"hot" for number in range(1000 * CHUNK)])
    index.limit(max_msgs=-1, max_bytes=-1, max_msgs_per_subject=1)
    assert index.messages == 2001
    assert index.chunks.memory_bytes < 2 * CHUNK_BYTES + 2001 * ALONE_BYTES
    assert index.next_from(130) == 257


def test_shelves_of_chunks_that_are_gone_do_not_stay() -> None:
    """One old message, and a history of others that came and went: as short as if they had never been."""
    log, index = index_of(b"old")
    for _ in range(300):
        extend(log, index, *[b"a"] * 10 * CHUNK)
        index.remove_many(range(index.last_seq - 10 * CHUNK + 1, index.last_seq))
        index.limit(max_msgs=-1, max_bytes=-1, max_msgs_per_subject=1)
        index.limit(max_msgs=-1, max_bytes=-1, max_msgs_per_subject=-1)
    assert index.messages == 2
    assert index.chunks.memory_bytes < 3 * CHUNK_BYTES
    assert index.next_from(2) == index.last_seq


def test_a_chain_goes_on_past_what_is_not_kept_any_more() -> None:
    """The link of a message leads to one that is gone, in a chunk that was packed meanwhile."""
    log, index = index_of(b"a", *[b"x"] * (2 * CHUNK - 2), b"a", *[b"x"] * CHUNK)
    extend(log, index, b"a", b"a", *[b"x"] * CHUNK)
    wanted = [1, 2 * CHUNK, 3 * CHUNK + 1, 3 * CHUNK + 2]
    assert index.subject_state(b"a") == (4, wanted[0], wanted[-1])
    index.remove_many([2 * CHUNK, *range(CHUNK + 10, 2 * CHUNK)])
    index.remove(1)
    assert index.subject_state(b"a") == (2, wanted[2], wanted[3])


def test_the_last_message_is_found_below_chunks_that_are_gone_one_after_the_other() -> None:
    """Every look down leaves a shorter way, which must not pass over what is still there."""
    _, index = index_of(*[b"a"] * (20 * CHUNK))
    index.remove_many(range(19 * CHUNK, 20 * CHUNK + 1))
    for chunk in range(18, 10, -1):
        assert FilterSet(index, ()).last_match() == (chunk + 1) * CHUNK - 1
        index.remove_many(range(chunk * CHUNK + 1, (chunk + 1) * CHUNK))
        assert FilterSet(index, ()).last_match() == chunk * CHUNK
        assert index.remove(chunk * CHUNK)


def test_runs_end_where_they_are_asked_to_in_a_packed_chunk() -> None:
    _, index = index_of(*[b"a"] * (3 * CHUNK))
    index.remove_many([seq for seq in range(1, 2 * CHUNK) if not 300 <= seq < 310])
    assert FilterSet(index, ()).next_runs(1, 4).spans() == [(300, 4)]
    assert FilterSet(index, ()).next_runs(305, 6).spans() == [(305, 5), (2 * CHUNK, 1)]
