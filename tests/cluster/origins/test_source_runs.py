"""Copies made in compiled runs are those that are made one by one, and leave the same positions."""

from typing import Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import capture_at, encode_capture
from jetraft.cluster.origins.asking import Answer
from jetraft.cluster.origins.deliveries import Arrived, Deliveries
from jetraft.cluster.origins.source import SourceIntake
from jetraft.cluster.origins.subjects import REMEMBERED_MAX, SubjectChanges
from jetraft.store.model.config import DiscardPolicy, StreamConfig, SubjectTransform
from tests.cluster.lab import stream_config
from tests.cluster.origins.test_terms import AS_THEY_ARE, Proposed, source_of
from tests.cluster.state.test_machine import Bench

ACK: Final = b"$JS.ACK.O.c.1.%d.%d.%d.%d"
MESSAGES = st.tuples(
    st.sampled_from([0, 0, 0, 1, 5]),  # sequences of the origin that its filter leaves out
    st.sampled_from(
        [
            *[b"", b"", b"NATS/1.0\r\nK: v\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"],
            *[b"NATS/1.0\r\nNats-Stream-Source: P 1 > > a\r\n\r\n", b"NATS/1.0\r\nK: v\r\n"],
        ]
    ),
    st.binary(max_size=30),
    st.sampled_from([ACK, ACK, ACK, b"$JS.ACK.h.a.O.c.1.%d.%d.%d.%d"]),
)
Rows = list[tuple[int, bytes, bytes, bytes]]
CONFIGS = st.sampled_from(
    [
        stream_config(),
        stream_config(max_msg_size=70),
        stream_config(max_msgs=4, discard=DiscardPolicy.NEW),
        stream_config(max_bytes=500, discard=DiscardPolicy.NEW),
        stream_config(max_msgs=3, discard=DiscardPolicy.NEW, discard_new_per_subject=True, max_msgs_per_subject=2),
    ]
)
ELSEWHERE: Final = SubjectTransform(src="a.*", dest="to.{{wildcard(1)}}")


@attrs.frozen
class Copied:
    """What became of deliveries."""

    stored: list[tuple[int, bytes, bytes, bytes]]
    position: int
    sources: dict[bytes, object]
    deliveries: tuple[int, int, int]


def batch_of(rows: Rows) -> bytes:
    records, seq = [], 0
    for number, (left_out, hdr, payload, shape) in enumerate(rows, start=1):
        seq += 1 + left_out
        records.append(encode_capture(b"a.%d" % (seq % 3), shape % (seq, number, 1000 + seq, 7), hdr, payload))
    return b"".join(records)


def copied(batch: bytes, config: StreamConfig, subjects: SubjectChanges, *, is_in_runs: bool) -> Copied:
    bench, group, deliveries = Bench(), Proposed(), Deliveries(last_seq=0)
    intake = source_of(group, bench, config, subjects)
    assert intake.begins(Answer(identity=b"XByrZds7"))
    take(intake, batch, deliveries, is_in_runs=is_in_runs)
    group.commit(bench, len(group.queue))
    store = bench.machine.store
    found = store.load_many(store.next_matches((), 1, 100))
    return Copied(
        stored=[(one.seq, one.subject, one.hdr, one.payload) for one in found],
        position=intake.position,
        sources=dict(bench.machine.sources),
        deliveries=(deliveries.last_seq, deliveries.consumer_seq, deliveries.num_pending),
    )


def take(intake: SourceIntake, batch: bytes, deliveries: Deliveries, *, is_in_runs: bool) -> None:
    """As OriginReader does, with each message that is not of a run by itself; stops where the stream is full."""
    position = 0
    while position < len(batch):
        if is_in_runs:
            position = intake.take_plain(batch, position, deliveries)
            if position == len(batch):
                break
        captured = capture_at(batch, position)
        position = captured.end
        arrived = deliveries.take(captured)
        assert isinstance(arrived, Arrived)
        if intake.take([arrived]) is not None:
            break


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(MESSAGES, max_size=12), config=CONFIGS, is_changed=st.booleans())
def test_runs_copy_what_judging_one_by_one_copies(rows: Rows, config: StreamConfig, *, is_changed: bool) -> None:
    subjects = SubjectChanges([ELSEWHERE], lambda _below: 0) if is_changed else AS_THEY_ARE
    batch = batch_of(rows)
    assert copied(batch, config, subjects, is_in_runs=True) == copied(batch, config, subjects, is_in_runs=False)


def test_a_run_takes_all_that_is_plain() -> None:
    batch = batch_of([(0, b"", b"x", ACK)] * 50)
    intake = source_of(Proposed(), Bench(), stream_config())
    assert intake.take_plain(batch, 0, Deliveries(last_seq=0)) == len(batch)
    assert intake.position == 50


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((1, 2, 1, 0), "a delivery is missing before it"),
        ((0, 1, 1, 0), "it is not behind what was read"),
        ((1 << 62, 1, 1, 0), "its sequence is beyond what is counted to"),
        ((1, 1, 1 << 62, 0), "its time is"),
        ((1, 1, 1, 1 << 62), "what is left behind it is"),
    ],
)
def test_what_does_not_follow_is_left(numbers: tuple[int, ...], why: str) -> None:
    intake = source_of(Proposed(), Bench(), stream_config())
    assert intake.take_plain(encode_capture(b"a", ACK % numbers, b"", b"x"), 0, Deliveries(last_seq=0)) == 0, why


def test_a_header_that_grows_beyond_its_bound_is_left() -> None:
    hdr = b"NATS/1.0\r\nK: %s\r\n\r\n" % (b"v" * 65_500)
    intake = source_of(Proposed(), Bench(), stream_config())
    assert intake.take_plain(encode_capture(b"a", ACK % (1, 1, 1, 0), hdr, b"x"), 0, Deliveries(last_seq=0)) == 0


def test_what_is_drawn_is_drawn_for_each_message_and_the_rest_is_remembered() -> None:
    draws = iter(range(100))
    drawn = SubjectChanges([SubjectTransform(src="a.*", dest="b.{{random(9)}}")], lambda _below: next(draws))
    assert [drawn.of(b"a.x") for _ in range(3)] == [b"b.0", b"b.1", b"b.2"]
    plain = SubjectChanges([ELSEWHERE], lambda _below: 0)
    for number in range(REMEMBERED_MAX + 2):
        assert plain.of(b"a.%d" % number) == b"to.%d" % number
    assert plain.of(b"a.1") == b"to.1"
    plain.follow(SubjectTransform(src="to.*", dest="further.{{wildcard(1)}}"))
    assert plain.of(b"a.1") == b"further.1"
