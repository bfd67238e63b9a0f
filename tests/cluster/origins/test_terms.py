"""A term ends at any entry: the next one goes on so that each message of the origin is stored once.

Proposals of a term that did not get into the log are lost; the next term begins from the applied state alone.
"""

from typing import TYPE_CHECKING, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.origins._plain import SourceRun
from jetraft.cluster.origins.asking import Answer
from jetraft.cluster.origins.deliveries import Arrived
from jetraft.cluster.origins.mirror import MirrorIntake
from jetraft.cluster.origins.source import SourceIntake
from jetraft.cluster.origins.subjects import SubjectChanges
from jetraft.cluster.state import commands
from jetraft.cluster.state.source_header import position_in
from jetraft.cluster.streams.admission.admit import PublishAdmission
from jetraft.cluster.streams.admission.copies import admit_copies, admit_plain_copies
from jetraft.cluster.streams.publishing.publish import Admitted
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model.api_error import ApiError
from jetraft.store.model.config import DiscardPolicy, StreamConfig, StreamSource
from tests.cluster.lab import stream_config
from tests.cluster.state.test_machine import Bench

if TYPE_CHECKING:
    from jetraft.raft.group import Group

SOURCE = StreamSource(name="O")
AS_THEY_ARE = SubjectChanges((), lambda _below: 0)
ORIGINS = st.lists(st.integers(1, 60), unique=True, min_size=1, max_size=25).map(sorted)
CUTS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 6)), max_size=12)  # (messages taken, entries that survive)


class Proposed:
    """A group that keeps what is proposed."""

    def __init__(self) -> None:
        self.queue: list[Proposal] = []

    def propose(self, proposal: Proposal, *_callbacks: object, **_named: object) -> None:
        self.queue.append(proposal)

    def commit(self, bench: Bench, count: int) -> None:
        for proposal in self.queue[:count]:
            body = (
                proposal.body if isinstance(proposal.body, bytes) else b"".join(bytes(part) for part in proposal.body)
            )
            bench.add(proposal.kind, body, count=proposal.count, first_seq=proposal.first_seq)


class Leader:
    """A term of the leader, as its sources see it."""

    def __init__(self, group: Proposed, bench: Bench, config: StreamConfig) -> None:
        self._group = group
        self._admission = PublishAdmission(config, bench.machine)

    @property
    def next_seq(self) -> int:
        return self._admission.next_seq

    def admit_copies(self, batch: bytes) -> tuple[int, ApiError | None]:
        copies = admit_copies(self._admission, batch, 1000)
        self._propose(copies.admitted)
        return copies.left, copies.full

    def admit_plain_copies(self, batch: bytes, start: int, run: SourceRun) -> int:
        admitted, end = admit_plain_copies(self._admission, batch, start, run, 1000)
        self._propose(admitted)
        return end

    def _propose(self, admitted: Admitted) -> None:
        for publish in admitted.publishes:
            records = publish.records
            body = bytes(memoryview(records))
            self._group.propose(
                Proposal(kind=Kind.MESSAGES, first_seq=records.first_seq, count=records.count, body=body)
            )


def arrived(seqs: list[int], *, ids: bool = False) -> list[Arrived]:
    """Messages of the origin; with `ids` every other one repeats the id of the one before."""
    hdr = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n"
    return [Arrived(seq, 1000 + seq, b"s.a", hdr % (seq // 2) if ids else b"", b"%d" % seq, b"") for seq in seqs]


def unheard(_first_seq: int, _records: bytes) -> None:
    """What is committed is not republished."""


def mirror_of(group: Proposed, bench: Bench) -> MirrorIntake:
    return MirrorIntake(cast("Group", group), bench.machine, subjects=AS_THEY_ARE, refusal=lambda: None, stored=unheard)


def source_of(
    group: Proposed, bench: Bench, config: StreamConfig, subjects: SubjectChanges = AS_THEY_ARE
) -> SourceIntake:
    leader = Leader(group, bench, config)
    return SourceIntake(cast("Group", group), bench.machine, leader, SOURCE, subjects=subjects)


def stored(bench: Bench) -> list[tuple[int, bytes]]:
    store = bench.machine.store
    return [(found.seq, found.payload) for found in store.load_many(store.next_matches((), 1, 100))]


@settings(max_examples=150, deadline=None)
@given(seqs=ORIGINS, cuts=CUTS)
def test_a_mirror_has_what_its_origin_has_wherever_terms_end(seqs: list[int], cuts: list[tuple[int, int]]) -> None:
    bench = Bench()
    for count, surviving in [*cuts, (len(seqs), 1000)]:
        group = Proposed()
        intake = mirror_of(group, bench)
        assert intake.begins(Answer())
        intake.take(arrived([seq for seq in seqs if seq > intake.position][:count]))
        group.commit(bench, surviving)
    assert stored(bench) == [(seq, b"%d" % seq) for seq in seqs]
    assert [found.ts_ns for found in bench.machine.store.load_many(seqs)] == [1000 + seq for seq in seqs]


@settings(max_examples=150, deadline=None)
@given(seqs=ORIGINS, cuts=CUTS, removes=st.booleans())
def test_a_source_has_one_copy_of_each_message_wherever_terms_end(
    seqs: list[int], cuts: list[tuple[int, int]], *, removes: bool
) -> None:
    bench, config, copied = Bench(), stream_config(), list[bytes]()
    for count, surviving in [*cuts, (len(seqs), 1000)]:
        group = Proposed()
        intake = source_of(group, bench, config)
        assert intake.begins(Answer(identity=b"XByrZds7"))
        left = [seq for seq in seqs if seq > intake.position][:count]
        assert not left or intake.take(arrived(left)) is None
        group.commit(bench, surviving)
        if removes:  # the position does not rest on the messages
            copied += [payload for _, payload in stored(bench)]
            bench.stream_op(commands.Purge(None, None, None))
    copied += [payload for _, payload in stored(bench)]
    assert copied == [b"%d" % seq for seq in seqs]


def test_repetitions_by_id_are_passed_over_and_the_position_says_so() -> None:
    config = stream_config(duplicate_window=10**12)
    bench, group = Bench(duplicate_window=10**12), Proposed()
    source_of(group, bench, config).take(arrived([2, 3], ids=True))
    group.commit(bench, 100)
    assert [payload for _, payload in stored(bench)] == [b"2"]
    assert source_of(Proposed(), bench, config).position == 3


def test_a_full_stream_takes_what_fits_and_goes_on_behind_that() -> None:
    config = stream_config(max_msgs=2, discard=DiscardPolicy.NEW)
    bench, group = Bench(), Proposed()
    intake = source_of(group, bench, config)
    assert intake.take(arrived([4, 6, 7, 9])) is not None
    assert intake.position == 6
    group.commit(bench, 100)
    assert [payload for _, payload in stored(bench)] == [b"4", b"6"]


def test_an_origin_that_was_made_again_is_read_from_its_start() -> None:
    bench, group, config = Bench(), Proposed(), stream_config()
    intake = source_of(group, bench, config)
    assert intake.begins(Answer(identity=b"first"))
    intake.take(arrived([1, 2, 3]))
    assert not intake.begins(Answer(identity=b"other"))
    assert intake.position == 0
    group.commit(bench, 100)
    assert source_of(Proposed(), bench, config).position == 0


def test_copies_name_their_origin_and_not_the_origins_of_that_or_what_was_expected_there() -> None:
    bench, group = Bench(), Proposed()
    hdr = b"NATS/1.0\r\nK: v\r\nNats-Expected-Last-Sequence: 5\r\nNats-Stream-Source: P 1 > > a\r\n\r\n"
    intake = source_of(group, bench, stream_config())
    intake.begins(Answer(identity=b"XByrZds7"))
    intake.take([Arrived(6, 1, b"s.a", hdr, b"", b"")])
    group.commit(bench, 100)
    found = bench.machine.store.load(1)
    assert found is not None
    assert found.hdr == b"NATS/1.0\r\nK: v\r\nNats-Stream-Source: O 6 > > s.a XByrZds7\r\n\r\n"
    assert position_in(found.hdr) is not None
