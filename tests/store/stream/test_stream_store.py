"""The store of a stream's messages, against a dictionary (naive_stream.py) and figures of nats-server 2.15.1."""

from collections import Counter
from collections.abc import Callable
from random import Random

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.port import Entry, StoreCorrupt
from jetraft.store.stream.retention import SizeModel, StoreLimits
from jetraft.store.stream.stream_store import StoredMessage, StreamStore
from tests.store.naive_stream import Message, NaiveStream, append_messages

CHUNK = 256  # messages: the index works in chunks of this many, so tests must cross them
SUBJECTS = [b"a", b"a.b", b"a.b.c", b"a.c", b"b.a", b"a.bb.c", b"kv.x", b"kv.y"]
FILTERS = [
    (),
    (b">",),
    (b"a.b",),
    (b"kv.x",),
    (b"none",),
    (b"a.*",),
    (b"a.>",),
    (b"*",),
    (b"*.b",),
    (b"a.*.c",),
    (b"u.*",),
    (b"u.3",),
    (b"a.b", b"kv.*"),
    (b"a.>", b"a.b", b"kv.y"),
]

subject_of_message = st.one_of(st.sampled_from(SUBJECTS), st.integers(0, 9).map(lambda n: b"u.%d" % n))
limit = st.one_of(st.just(-1), st.integers(0, 12))


def new_store(**limits: int) -> tuple[MemLog, StreamStore]:
    log = MemLog(block_bytes=2000)
    return log, StreamStore(log, StoreLimits(**limits))


def publish(log: MemLog, store: StreamStore, *subjects: bytes, ts_ns: int = 0) -> int:
    entry = append_messages(log, store.last_seq + 1, [Message(subject, b"x", b"", ts_ns) for subject in subjects])
    return store.apply_messages(entry)


class StoreAgainstModel(RuleBasedStateMachine):
    """Any history of applied entries leaves the messages that the model says, and every question gets its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemLog(block_bytes=20_000)
        self.store = StreamStore(self.log, StoreLimits())
        self.model = NaiveStream(StoreLimits(), SizeModel.FILE)
        self.now_ns = 1000
        self.since_checkpoint: list[Callable[[StreamStore], object]] = []
        self.log.save_checkpoint(0, 0, b"", self.store.snapshot())

    def change(self, command: Callable[[StreamStore], object]) -> object:
        """Change the store, and remember how, for the replay after a restart."""
        self.since_checkpoint.append(command)
        return command(self.store)

    def apply(self, messages: list[Message], gap: int = 0) -> None:
        first_seq = self.model.first_unused + gap
        entry = append_messages(self.log, first_seq, messages)
        if gap and not self.model.live:
            self.model.first_unused = first_seq
        self.model.publish(first_seq, messages)
        assert self.change(lambda store: store.apply_messages(entry)) == self.model.last_seq

    @rule(
        subjects=st.lists(subject_of_message, min_size=1, max_size=12),
        payload=st.binary(max_size=20),
        hdr=st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
        gap=st.sampled_from([0, 0, 0, 1, 5]),
        pause_ns=st.integers(0, 3),
    )
    def publish(self, subjects: list[bytes], payload: bytes, hdr: bytes, gap: int, pause_ns: int) -> None:
        self.now_ns += pause_ns
        self.apply([Message(subject, payload, hdr, self.now_ns) for subject in subjects], gap)

    @rule(count=st.integers(1, 8 * CHUNK), stride=st.integers(1, 20))
    def publish_many(self, count: int, stride: int) -> None:
        limits = self.model.limits
        if max(limits.max_bytes, limits.max_msgs_per_subject, limits.max_bytes_per_subject) >= 0:
            count = min(count, 50)  # the model sums everything up for each message
        names = [*SUBJECTS, *(b"u.%d" % n for n in range(12))]
        for start in range(0, count, 300):
            width = min(300, count - start)
            self.now_ns += 1
            self.apply([Message(names[n * stride % len(names)], b"", b"", self.now_ns) for n in range(width)])

    @rule(data=st.data())
    def remove_some(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(st.integers(0, self.model.last_seq + 2), max_size=8))
        expected = [seq for at, seq in enumerate(seqs) if seq in self.model.live and seq not in seqs[:at]]
        erase = data.draw(st.booleans())
        assert self.change(lambda store: store.remove(seqs, erase=erase)) == expected
        for seq in expected:
            del self.model.live[seq]

    @rule(data=st.data(), width=st.integers(1, 16 * CHUNK), keep_every=st.integers(2, 500))
    def remove_most_of_a_range(self, data: st.DataObject, width: int, keep_every: int) -> None:
        low = data.draw(st.integers(0, self.model.last_seq + 1))
        seqs = [seq for seq in range(low, low + width) if seq % keep_every]
        expected = [seq for seq in seqs if seq in self.model.live]
        assert self.change(lambda store: store.remove(seqs[::-1])) == expected[::-1]
        for seq in expected:
            del self.model.live[seq]

    @rule(data=st.data())
    def remove_below(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(0, self.model.last_seq + 3))
        expected = [one for one in self.model.live if one < seq]
        assert self.change(lambda store: store.remove_below(seq)) == len(expected)
        for one in expected:
            del self.model.live[one]

    @rule(
        data=st.data(),
        subject=st.sampled_from([None, *(filters[0] for filters in FILTERS if len(filters) == 1)]),
        how=st.sampled_from(["all", "below", "keep"]),
    )
    def purge(self, data: st.DataObject, subject: bytes | None, how: str) -> None:
        below_seq = data.draw(st.integers(1, self.model.last_seq + 5)) if how == "below" else None
        keep = data.draw(st.integers(1, 20)) if how == "keep" else None
        mine = self.model.matching(() if subject is None else (subject,))
        if below_seq is not None:
            mine = [seq for seq in mine if seq < below_seq]
        if keep is not None:
            mine = mine[: max(0, len(mine) - keep)]
        for seq in mine:
            del self.model.live[seq]
        if subject in {None, b">"} and below_seq is not None:
            self.model.first_unused = max(self.model.first_unused, below_seq)
        removed = self.change(lambda store: store.purge(subject=subject, below_seq=below_seq, keep=keep))
        assert removed == len(mine)

    @rule(
        max_msgs=limit,
        max_msgs_per_subject=limit,
        max_bytes=st.sampled_from([-1, -1, 0, 100, 700]),
        max_bytes_per_subject=st.sampled_from([-1, -1, -1, 1, 60, 300]),
    )
    def set_limits(self, max_msgs: int, max_msgs_per_subject: int, max_bytes: int, max_bytes_per_subject: int) -> None:
        limits = StoreLimits(
            max_msgs=max_msgs,
            max_bytes=max_bytes,
            max_msgs_per_subject=max_msgs_per_subject,
            max_bytes_per_subject=max_bytes_per_subject,
        )
        before = len(self.model.live)
        if len(self.model.live) > 1000:
            limits = attrs.evolve(limits, max_bytes=-1)  # the model sums everything up for each message
        self.model.set_limits(limits)
        assert self.change(lambda store: store.set_limits(limits)) == before - len(self.model.live)

    @rule()
    def restart(self) -> None:
        restored = StreamStore(self.log, StoreLimits(max_msgs=1))
        restored.restore(self.store.snapshot())
        assert restored.snapshot() == self.store.snapshot()
        self.store = restored

    @rule()
    def checkpoint(self) -> None:
        self.log.save_checkpoint(self.log.last_index, 1, b"", self.store.snapshot())
        self.since_checkpoint.clear()

    @precondition(lambda self: self.log.last_index > 0)
    @rule()
    def trim(self) -> None:
        first_live_seq = self.store.first_seq if self.store.messages else 1 << 63
        self.log.submit()
        self.log.trim(first_live_seq, self.log.last_index)

    @rule()
    def replay_from_the_checkpoint(self) -> None:
        """Also when messages that the checkpoint tells of were trimmed away since."""
        checkpoint = self.log.load_checkpoint()
        assert checkpoint is not None
        restored = StreamStore(self.log, StoreLimits())
        restored.restore(checkpoint.state)
        for command in self.since_checkpoint:
            command(restored)
        assert restored.snapshot() == self.store.snapshot()
        self.store = restored

    @rule(filters=st.sampled_from(FILTERS), data=st.data(), count=st.integers(0, 30))
    def find(self, filters: tuple[bytes, ...], data: st.DataObject, count: int) -> None:
        low = data.draw(st.integers(0, self.model.last_seq + 2))
        expected = self.model.matching(filters, low)
        assert self.store.next_matches(filters, low, count) == expected[:count]
        assert self.store.next_match(filters, low) == (expected[0] if expected else None)

    @rule(data=st.data())
    def count(self, data: st.DataObject) -> None:
        low = data.draw(st.integers(0, self.model.last_seq + 2))
        for filters in FILTERS:
            assert self.store.num_pending(filters, low) == len(self.model.matching(filters, low))

    @rule(filters=st.sampled_from(FILTERS), data=st.data())
    def last_per_subject(self, filters: tuple[bytes, ...], data: st.DataObject) -> None:
        up_to_seq = data.draw(st.integers(0, self.model.last_seq + 2))
        assert list(self.store.last_per_subject(filters, up_to_seq)) == self.model.last_per_subject(filters, up_to_seq)
        last = max(self.model.matching(filters), default=None)
        assert self.store.last_match(filters) == last

    @rule(filters=st.sampled_from(FILTERS), offset=st.integers(0, 3), limit=st.one_of(st.none(), st.integers(0, 4)))
    def subjects(self, filters: tuple[bytes, ...], offset: int, limit: int | None) -> None:
        wanted = filters[0] if filters else b">"
        counts = Counter(self.model.live[seq].subject for seq in self.model.matching((wanted,)))
        page = sorted(counts)[offset : None if limit is None else offset + limit]
        assert list(self.store.subjects(wanted, offset=offset, limit=limit).items()) == [
            (subject, counts[subject]) for subject in page
        ]

    @rule(back_ns=st.integers(-1, 40))
    def seq_at_time(self, back_ns: int) -> None:
        ts_ns = self.now_ns - back_ns
        found = [seq for seq in sorted(self.model.live) if self.model.live[seq].ts_ns >= ts_ns]
        assert self.store.seq_at_time(ts_ns) == (found[0] if found else self.model.last_seq + 1)

    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(st.integers(0, self.model.last_seq + 2), max_size=5))
        if self.model.live:
            seqs.append(data.draw(st.sampled_from(sorted(self.model.live))))
        expected = [
            StoredMessage(seq=seq, **attrs.asdict(self.model.live[seq])) for seq in seqs if seq in self.model.live
        ]
        assert self.store.load_many(seqs) == expected
        assert [self.store.load(one.seq) for one in expected] == expected
        assert [self.store.subject_of(one.seq) for one in expected] == [one.subject for one in expected]

    @invariant()
    def figures_agree(self) -> None:
        store, model = self.store, self.model
        assert (store.messages, store.message_bytes_total) == (len(model.live), model.total_bytes)
        assert (store.first_seq, store.last_seq) == (model.first_seq, model.last_seq)
        state = store.state
        oldest = model.live.get(model.first_seq)
        assert state.first_ts_ns == (oldest.ts_ns if oldest else 0)
        assert state.last_ts_ns == model.last_ts_ns
        gone = [seq for seq in range(model.first_seq, model.last_seq + 1) if seq not in model.live]
        assert store.deleted() == gone
        assert state.num_deleted == len(gone)

    @invariant()
    def subjects_agree(self) -> None:
        counts = Counter(message.subject for message in self.model.live.values())
        assert self.store.num_subjects == len(counts)
        firsts: dict[bytes, int] = {}
        lasts: dict[bytes, int] = {}
        for seq in sorted(self.model.live):
            subject = self.model.live[seq].subject
            firsts.setdefault(subject, seq)
            lasts[subject] = seq
        for subject in SUBJECTS:
            assert self.store.count_for(subject) == counts[subject]
            assert self.store.first_for(subject) == firsts.get(subject)
            assert self.store.last_for(subject) == lasts.get(subject)


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("seed", range(3))
def test_long_histories_across_chunks_leave_what_the_model_says(seed: int) -> None:
    """What a random history of small steps rarely reaches.

    Chunks freed in the middle, chains that lead through them, more removals than are remembered, ids that change hands.
    """
    random = Random(seed)
    log = MemLog(block_bytes=100_000)
    store, model = StreamStore(log, StoreLimits()), NaiveStream(StoreLimits(), SizeModel.FILE)
    filters = [
        (b"rare.*",),
        (b"rare.1",),
        (b"common",),
        (b"u.*.x",),
        (b"u.*.x", b"common"),
        (b"u.>",),
        (b"rare.0", b"u.7.x"),
    ]
    unique = 0
    for step in range(20):
        messages = []
        for _ in range(random.choice([1, 500, 1500])):
            kind = random.random()
            unique += 1
            subject = b"common" if kind < 0.5 else b"u.%d.%s" % (unique, random.choice([b"x", b"y"]))
            messages.append(Message(b"rare.%d" % random.randrange(3) if kind < 0.003 else subject, b"", b"", step))
        entry = append_messages(log, model.first_unused, messages)
        model.publish(model.first_unused, messages)
        store.apply_messages(entry)
        low = random.randrange(model.first_seq, model.last_seq + 1)
        doomed = [seq for seq in sorted(model.live) if low <= seq < low + random.choice([50, 2000, 10_000])]
        doomed = [seq for seq in doomed if b"rare" not in model.live[seq].subject or random.random() < 0.2]
        random.shuffle(doomed)
        assert store.remove(doomed) == doomed
        for seq in doomed:
            del model.live[seq]
        if random.random() < 0.2:
            restored = StreamStore(log, StoreLimits())
            restored.restore(store.snapshot())
            store = restored
        assert (store.messages, store.first_seq, store.last_seq) == (len(model.live), model.first_seq, model.last_seq)
        assert store.message_bytes_total == model.total_bytes
        for chosen in filters:
            low = random.choice([0, low, random.randrange(model.last_seq + 1)])
            expected = model.matching(chosen, low)
            assert store.num_pending(chosen, low) == len(expected)
            assert store.next_matches(chosen, low, 40) == expected[:40]
            up_to_seq = random.choice([low, model.last_seq])
            assert list(store.last_per_subject(chosen, up_to_seq)) == model.last_per_subject(chosen, up_to_seq)
    live = sorted(model.live)
    assert [(one.seq, one.subject) for one in store.load_many(live)] == [(seq, model.live[seq].subject) for seq in live]


@pytest.mark.parametrize(
    ("storage", "subject", "hdr_len", "payload_len", "counted"),
    [  # stream info of nats-server 2.15.1, bytes after minus bytes before one publish
        (SizeModel.FILE, b"Sfile.a", 0, 0, 37),
        (SizeModel.FILE, b"Sfile.a", 0, 100, 137),
        (SizeModel.FILE, b"Sfile.abc.def", 18, 0, 65),
        (SizeModel.FILE, b"Sfile.abc.def", 44, 10, 101),
        (SizeModel.FILE, b"Sfile.abc", 0, 1000, 1039),
        (SizeModel.MEMORY, b"Smemory.a", 0, 0, 25),
        (SizeModel.MEMORY, b"Smemory.a", 0, 100, 125),
        (SizeModel.MEMORY, b"Smemory.abc.def", 18, 0, 49),
        (SizeModel.MEMORY, b"Smemory.abc.def", 44, 10, 85),
        (SizeModel.MEMORY, b"Smemory.abc", 0, 1000, 1027),
    ],
)
def test_a_message_counts_what_it_counts_in_nats_server(
    storage: SizeModel, subject: bytes, hdr_len: int, payload_len: int, counted: int
) -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits(), size_model=storage)
    store.apply_messages(append_messages(log, 1, [Message(subject, b"p" * payload_len, b"h" * hdr_len, 1)]))
    assert store.state.bytes == counted
    assert store.message_bytes(len(subject), hdr_len, payload_len) == counted


def test_an_unused_stream_reports_first_and_last_sequence_zero() -> None:
    _, store = new_store()
    assert (store.state.first_seq, store.state.last_seq, store.state.first_ts_ns) == (0, 0, 0)


def test_a_configured_first_sequence_is_reported_before_it_is_used() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits(), first_seq=1000)
    assert (store.state.first_seq, store.state.last_seq) == (1000, 999)
    assert publish(log, store, b"a") == 1000


def test_purging_beyond_the_end_moves_the_stream_there() -> None:
    """As nats-server 2.15.1: purge {seq: 100} of a stream that ends at 15 leaves first_seq 100, last_seq 99."""
    log, store = new_store()
    publish(log, store, b"a", b"b", ts_ns=7)
    assert store.purge(below_seq=100) == 2
    assert (store.state.first_seq, store.state.last_seq, store.state.last_ts_ns) == (100, 99, 7)
    assert publish(log, store, b"c") == 100


def test_purging_a_subject_beyond_the_end_does_not_move_the_stream() -> None:
    log, store = new_store()
    publish(log, store, b"a.1", b"a.2")
    assert store.purge(subject=b"a.*", below_seq=100) == 2
    assert (store.first_seq, store.last_seq) == (3, 2)


def test_keep_counts_messages_and_not_sequences() -> None:
    """As nats-server 2.15.1: of ten messages with 2, 9 and 10 deleted, purge {keep: 3} leaves 6, 7 and 8."""
    log, store = new_store()
    publish(log, store, *[b"a"] * 10)
    store.remove([2, 9, 10])
    assert store.purge(keep=3) == 4
    assert (store.first_seq, store.last_seq, store.messages, store.deleted()) == (6, 10, 3, [9, 10])


def test_a_message_larger_than_the_stream_is_stored_and_dropped() -> None:
    """As nats-server 2.15.1 with max_bytes 100 and a payload of 200: acked with sequence 1, first_seq 2, last_seq 1."""
    log, store = new_store(max_bytes=100)
    entry = append_messages(log, 1, [Message(b"a", b"q" * 200, b"", 1)])
    assert store.apply_messages(entry) == 1
    assert (store.messages, store.state.first_seq, store.state.last_seq) == (0, 2, 1)


def test_limits_do_not_depend_on_how_messages_were_batched() -> None:
    """The subject's limit makes room only after the totals were enforced for the messages before: sizes 1, 10, 10."""
    messages = [
        Message(subject, b"x" * size) for subject, size in [(b"a", 1), (b"b", 10), (b"c", 10), (b"d", 10), (b"b", 1)]
    ]
    room = 4 * 31 + 22
    outcomes = []
    for width in (1, 2, 5):
        log, store = new_store(max_bytes=room, max_msgs_per_subject=1)
        for start in range(0, len(messages), width):
            store.apply_messages(append_messages(log, start + 1, messages[start : start + width]))
        outcomes.append((store.messages, store.first_seq, store.deleted()))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_sequences_at_or_below_the_last_are_refused() -> None:
    log, store = new_store()
    publish(log, store, b"a", b"b")
    with pytest.raises(ValueError, match="sequence 2 follows 2"):
        store.apply_messages(append_messages(log, 2, [Message(b"a")]))


def test_a_damaged_record_is_refused() -> None:
    log, store = new_store()
    frame = seal(Kind.MESSAGES, index=1, term=1, incarnation=1, body=b"\xff" * 40, first_seq=1, count=1)
    log.append([Entry(index=1, term=1, kind=Kind.MESSAGES, frame=frame)])
    with pytest.raises(ValueError, match="damaged"):
        store.apply_messages(log.entries(1, 1, 1)[0])


def test_a_snapshot_that_the_frames_do_not_bear_out_is_refused() -> None:
    log, store = new_store()
    publish(log, store, b"a", b"b")
    snapshot = store.snapshot()
    other_log, other = new_store()
    publish(other_log, other, b"a")
    with pytest.raises(StoreCorrupt, match="has 2 messages"):
        StreamStore(other_log, StoreLimits()).restore(snapshot)


def test_a_snapshot_older_than_a_trim_leads_to_the_same_messages() -> None:
    """The log keeps what is live now, so messages that were live at the checkpoint may be gone from it."""
    log = MemLog(block_bytes=200)
    store = StreamStore(log, StoreLimits(max_msgs=10, max_msgs_per_subject=8))
    for _ in range(100):
        publish(log, store, b"a", b"b")
    log.save_checkpoint(log.last_index, 1, b"", store.snapshot())
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    later = []
    for _ in range(50):
        later.append(append_messages(log, store.last_seq + 1, [Message(b"a"), Message(b"c")]))
        store.apply_messages(later[-1])
    log.submit()
    assert log.trim(store.first_seq, log.last_index) > 0
    restored = StreamStore(log, StoreLimits())
    restored.restore(checkpoint.state)
    assert restored.messages < 10
    for entry in later:
        restored.apply_messages(entry)
    assert restored.snapshot() == store.snapshot()


def test_a_message_missing_above_the_oldest_frame_kept_is_noticed() -> None:
    log, store = new_store()
    publish(log, store, b"a", b"a")
    publish(log, store, b"a", b"a", b"a")
    other = MemLog()
    append_messages(other, 3, [Message(b"a")])
    append_messages(other, 5, [Message(b"a")])
    with pytest.raises(StoreCorrupt, match="has 5 messages"):
        StreamStore(other, StoreLimits()).restore(store.snapshot())


def test_a_snapshot_ignores_frames_applied_after_it() -> None:
    log, store = new_store()
    publish(log, store, b"a", b"b")
    state, snapshot = store.state, store.snapshot()
    publish(log, store, b"c")
    restored = StreamStore(log, StoreLimits())
    restored.restore(snapshot)
    assert restored.state == state


def test_restored_limits_are_those_of_the_snapshot() -> None:
    """A member may have a newer configuration at hand; the entry that sets it is still to be applied."""
    log, store = new_store(max_msgs=3)
    publish(log, store, b"a", b"b", b"c", b"d")
    restored = StreamStore(log, StoreLimits(max_msgs=1))
    restored.restore(store.snapshot())
    assert (restored.messages, restored.limits) == (3, StoreLimits(max_msgs=3))


def test_messages_survive_in_trimmed_logs() -> None:
    log, store = new_store(max_msgs=10)
    for _ in range(200):
        publish(log, store, b"a", b"b")
    log.save_checkpoint(log.last_index, 1, b"", store.snapshot())
    log.submit()
    assert log.trim(store.first_seq, log.last_index) > 0
    restored = StreamStore(log, StoreLimits())
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    restored.restore(checkpoint.state)
    assert restored.state == store.state
    assert restored.load_many(range(391, 401)) == store.load_many(range(391, 401))


class ErasingLog(MemLog):
    """A log that can erase, and says what it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.erased: list[tuple[int, int, int]] = []

    def erase_record(self, block: int, frame_offset: int, record_offset: int) -> None:
        self.erased.append((block, frame_offset, record_offset))

    def drop_copies(self) -> None:
        """It keeps none."""


def test_erasing_names_the_record_to_the_log_once() -> None:
    log = ErasingLog()
    store = StreamStore(log, StoreLimits())
    publish(log, store, b"a", b"b")
    store.load(1)
    assert store.remove([2, 2], erase=True) == [2]
    ((block, frame_offset, record_offset),) = log.erased
    assert log.read_record(block, frame_offset, record_offset)[2] == b"b"


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 10_000)), max_size=20))
def test_deleted_runs_come_back_as_they_were(runs: list[tuple[int, int]]) -> None:
    """Gaps in the sequences stand in for removals: they cost no messages."""
    log, store = new_store()
    publish(log, store, b"a")
    expected = []
    for live, gone in runs:
        publish(log, store, *[b"a"] * (live + 1))
        first = store.last_seq + 1
        store.apply_messages(append_messages(log, first + gone, [Message(b"a")]))
        expected.append((first, first + gone - 1))
    assert store.deleted_ranges() == expected
    restored = StreamStore(log, StoreLimits())
    restored.restore(store.snapshot())
    assert restored.deleted_ranges() == expected


def test_a_sparse_stream_costs_what_is_live() -> None:
    log, store = new_store(max_msgs_per_subject=1)
    publish(log, store, b"first")
    for _ in range(100):
        publish(log, store, *[b"hot"] * 1000)
    assert (store.messages, store.num_deleted) == (2, 99_999)
    assert store.statistics().index_bytes < 16 * 16 * CHUNK
    assert store.next_matches((), 1, 5) == [1, 100_001]


def test_filter_sets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetraft.store.stream.indexed_stream.FILTER_SETS_MAX", 4)
    log, store = new_store()
    publish(log, store, *(b"s.%d" % n for n in range(20)))
    for n in range(20):
        assert store.num_pending((b"s.%d" % n,), 1) == 1
    assert store.statistics().filter_sets == 4


def test_a_forgotten_subject_is_matched_anew() -> None:
    """Ids are reused after a rest; a verdict about the former subject must not outlive it."""
    log, store = new_store(max_msgs=1)
    for n in range(3000):
        name = b"even.%d" if n % 2 == 0 else b"odd.%d"
        publish(log, store, name % n)
        assert store.num_pending((b"even.*",), 1) == (n + 1) % 2
        assert store.next_match((b"odd.*",), 1) == (n + 1 if n % 2 else None)
    assert store.statistics().index_bytes < 1 << 20


@pytest.mark.parametrize("first_seq", [1 << 60, 1 << 62, 1 << 63, (1 << 64) - 1])
def test_a_stream_that_begins_at_any_number_takes_messages_and_comes_back(first_seq: int) -> None:
    """Any 64-bit number may stand in a configuration; beyond the numbers that are served it means the last of those."""
    log = MemLog()
    store = StreamStore(log, StoreLimits(), first_seq=first_seq)
    begin = min(first_seq, 1 << 62)
    assert store.next_seq == begin
    assert store.apply_messages(append_messages(log, store.next_seq, [Message(b"a"), Message(b"b")])) == begin + 1
    restored = StreamStore(log, StoreLimits(), first_seq=first_seq)
    restored.restore(store.snapshot())
    assert (restored.messages, restored.first_seq, restored.last_seq) == (2, begin, begin + 1)


def test_a_gap_as_long_as_the_numbers_is_listed_in_part() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    store.apply_messages(append_messages(log, 1, [Message(b"a")]))
    store.skip_to(1 << 61, 1)
    store.apply_messages(append_messages(log, 1 << 61, [Message(b"a")]))
    assert store.num_deleted == (1 << 61) - 2
    assert store.deleted() == list(range(2, 100_002))
    assert store.deleted_ranges() == [(2, (1 << 61) - 1)]
    assert store.seq_at_time(1) == (1 << 61) + 1


def test_a_time_of_more_than_64_bits_can_be_looked_for() -> None:
    log = MemLog()
    store = StreamStore(log, StoreLimits())
    store.apply_messages(append_messages(log, 1, [Message(b"a")]))
    assert store.seq_at_time(1 << 70) == 2
    assert store.seq_at_time(-(1 << 70)) == 1
