"""Fast batches: what a reply subject says, and that no answer runs ahead of what is committed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.batch_room import FAST_PER_SERVER_MAX, FAST_PER_STREAM_MAX, BatchRoom
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.streams.admission.admit import PublishAdmission
from jetraft.cluster.streams.batches.fast import (
    APPEND,
    COMMIT,
    COMMIT_BEFORE,
    PING,
    START,
    FastBatches,
    Place,
)
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model import errors
from jetraft.store.model.limits import BATCH_IDLE_NS_MAX
from tests.cluster.lab import Node, Sent, start_stream, stream_config
from tests.cluster.streams.admission.test_admit import NOW_NS, Applied, capture, headers

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.publish import FastBatch

PREFIX = b'{"stream":"S","seq":'


def reply(seq: int, op: int, *, batch: str = "u", flow: int = 2, gaps: str = "fail") -> bytes:
    return f"_INBOX.x.{batch}.{flow}.{gaps}.{seq}.{op}.$FI".encode()


def place(seq: int, op: int, *, batch: str = "u", flow: int = 2, gaps: str = "fail") -> Place:
    found = Place.parse(reply(seq, op, batch=batch, flow=flow, gaps=gaps))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"_INBOX.x.u.5.ok.1.0.$FI", (b"u", 5, True, 1, START)),
        (b"a.b.c.u.500.fail.7.1.$FI", (b"u", 500, False, 7, APPEND)),
        (b"a.u.x.ok.1.2.$FI", (b"u", 10, True, 1, COMMIT)),
        (b"a.u.0.ok.9.3.$FI", (b"u", 10, True, 9, COMMIT_BEFORE)),
        (b"a.u.99999999999999999999.ok.01.04.$FI", (b"u", 65535, True, 1, PING)),
        (b"u.5.ok.1.0.$FI", None),
        (b"a.u.5.maybe.1.0.$FI", None),
        (b"a.u.5.ok.0.0.$FI", None),
        (b"a.u.5.ok.-1.0.$FI", None),
        (b"a.u.5.ok.1.1.$FI", None),
        (b"a.u.5.ok.1.3.$FI", None),
        (b"a.u.5.ok.2.0.$FI", None),
        (b"a.u.5.ok.2.5.$FI", None),
        (b"a.u.5.ok.2..$FI", None),
        (b"a.u.5.ok." + b"9" * 5000 + b".1.$FI", None),
    ],
)
def test_a_reply_subject_is_read_as_the_reference_does(text: bytes, expected: tuple[object, ...] | None) -> None:
    found = Place.parse(text)
    shown = None if found is None else (found.batch_id, found.flow, found.may_have_gaps, found.seq, found.op)
    assert shown == expected


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([APPEND, APPEND, APPEND, APPEND, COMMIT, COMMIT_BEFORE, PING]),
        st.integers(-1, 3),  # how far the sequence is from the next one
        st.sampled_from(["admitted", "admitted", "admitted", "refused", "repeated"]),
        st.booleans(),  # whether what is pending is committed after it
    ),
    max_size=60,
)


class Model:
    """What is pending, in order: an ack of n says that none of the messages of its batch up to n is."""

    def __init__(self) -> None:
        self.batches = FastBatches(BatchRoom(), PREFIX)
        self.pending: list[tuple[FastBatch, int]] = []
        self.sent: dict[bytes, int] = {}
        self.stream_seq = 0

    def check(self, batch_id: bytes, answers: list[bytes]) -> None:
        for answer in map(json.loads, answers):
            count = answer["seq"] if answer.get("type") == "ack" else answer.get("count", 0)
            early = [seq for batch, seq in self.pending if batch.batch_id == batch_id and seq <= count]
            assert not early, answer
            if "count" in answer:
                self.sent.pop(batch_id, None)

    def send(self, where: Place, fate: str) -> None:
        step = self.batches.take(where, None, 0, acked=True)
        if step.error is not None:
            self.sent.pop(where.batch_id, None)
            return
        self.sent[where.batch_id] = where.seq
        self.check(where.batch_id, step.answers)
        if step.goes_on and fate == "admitted":
            self.pending.append((self.batches.admitted(where), where.seq))
        elif step.goes_on and fate == "repeated":
            self.check(where.batch_id, self.batches.repeated(where, 1))
        elif step.goes_on:
            self.check(where.batch_id, self.batches.refused(where, errors.STREAM_SEALED.with_values(), b"{}"))

    def commit(self) -> None:
        while self.pending:
            batch, seq = self.pending.pop(0)
            self.stream_seq += 1
            answers = self.batches.stored(batch, seq, self.stream_seq, b"r")
            self.check(batch.batch_id, [answer for _, answer in answers])


@settings(max_examples=300)
@given(STEPS, st.sampled_from(["ok", "fail"]), st.integers(1, 5))
def test_no_ack_counts_what_is_not_committed(
    steps: list[tuple[str, int, int, str, bool]], gaps: str, flow: int
) -> None:
    model = Model()
    for name, op, away, fate, commits in steps:
        seq = max(1, model.sent.get(name.encode(), 0) + 1 + away)
        at = START if seq == 1 and op in (APPEND, COMMIT_BEFORE) else op
        model.send(place(seq, at, batch=name, gaps=gaps, flow=flow), fate)
        if commits:
            model.commit()
        assert len(model.batches) <= 2


def test_a_batch_is_not_counted_for_another_one_that_has_its_id() -> None:
    batches = FastBatches(BatchRoom(), PREFIX)
    batches.take(place(1, START, flow=1), None, 0, acked=True)
    first = batches.admitted(place(1, START))
    assert batches.take(place(2, APPEND), b"99", 0, acked=True).error is not None  # it ends, with a message in flight
    batches.take(place(1, START, flow=1), None, 0, acked=True)
    batches.admitted(place(1, START))
    assert batches.stored(first, 1, 1, b"r") == []


def test_a_batch_that_nothing_comes_of_is_forgotten() -> None:
    room = BatchRoom()
    batches = FastBatches(room, PREFIX)
    batches.take(place(1, START), None, 0, acked=True)
    batches.expire(BATCH_IDLE_NS_MAX - 1)
    assert batches.take(place(1, PING), None, BATCH_IDLE_NS_MAX - 1, acked=True).error is None
    batches.expire(2 * BATCH_IDLE_NS_MAX - 1)
    error = batches.take(place(2, APPEND), None, 2 * BATCH_IDLE_NS_MAX, acked=True).error
    assert error is not None
    assert (error.err_code, room.fast) == (10208, 0)


def test_stream_and_server_have_so_many_fast_batches() -> None:
    room = BatchRoom()
    batches = FastBatches(room, PREFIX)
    for number in range(FAST_PER_STREAM_MAX):
        assert batches.take(place(1, START, batch=f"b{number}"), None, 0, acked=True).error is None
    error = batches.take(place(1, START, batch="more"), None, 0, acked=True).error
    assert error is not None
    assert error.err_code == 10211
    batches.end()
    assert room.fast == 0
    room.fast = FAST_PER_SERVER_MAX
    assert batches.take(place(1, START, batch="more"), None, 0, acked=True).error is not None


def codes(admission: PublishAdmission, captured: bytes) -> list[int]:
    admitted = admission.admit(captured, NOW_NS)
    assert admitted.publishes == []
    return [json.loads(answer.payload)["error"]["err_code"] for answer in captures(b"".join(admitted.answers))]


def test_a_stream_without_the_flag_stores_nothing_of_a_fast_batch() -> None:
    """Not even of a message without headers, which is taken without a look at it otherwise."""
    for config in (stream_config(), stream_config(allow_atomic=True)):
        admission = PublishAdmission(config, Applied())
        assert codes(admission, capture(reply=b"_INBOX.x.$FI")) == [10205]
        assert codes(admission, capture(reply=reply(1, START))) == [10205]
        both = headers(Batch_Id="b", Batch_Sequence="1")
        assert codes(admission, capture(reply=reply(1, START), hdr=both)) == [10205]
        (publish,) = admission.admit(capture(reply=b"$FI") + capture(reply=b"x$FI"), NOW_NS).publishes
        assert publish.records.count == 2


def publish_fast(node: Node, seq: int, op: int, *, hdr: bytes = b"") -> list[Sent]:
    node.publish(b"s.a", b"x", hdr=hdr, reply=reply(seq, op))
    return node.turn()


def shown(sent: list[Sent]) -> list[dict[str, Any]]:
    return [json.loads(one.payload) for one in sent]


def test_a_fast_batch_is_acknowledged_as_it_becomes_durable() -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log, allow_batched=True)
    log._durable_on_submit = False
    assert shown(publish_fast(node, 1, START)) == [{"type": "ack", "seq": 0, "msgs": 2}]
    assert publish_fast(node, 2, APPEND) == []
    assert publish_fast(node, 3, COMMIT) == []
    log.complete()
    sent = node.turn()
    log.complete()
    sent += node.turn()
    log.complete()
    sent += node.turn()
    assert shown(sent)[-1] == {"stream": "S", "seq": 3, "batch": "u", "count": 3}
    assert replica.info().state.messages == 3
    assert node.site.batches.fast == 0


def test_a_repeat_of_a_message_in_flight_counts_when_the_first_copy_is_committed() -> None:
    node, log = Node(), MemLog()
    start_stream(node, log, allow_batched=True)
    log._durable_on_submit = False
    hdr = headers(Msg_Id="1")
    publish_fast(node, 1, START, hdr=hdr)
    assert publish_fast(node, 2, COMMIT, hdr=hdr) == []
    log.complete()
    (ack,) = shown(node.turn())
    assert ack == {"stream": "S", "seq": 1, "batch": "u", "count": 2}


def test_a_repeat_of_what_another_publisher_has_in_flight_is_not_acknowledged_before_it() -> None:
    node, log = Node(), MemLog()
    start_stream(node, log, allow_batched=True)
    log._durable_on_submit = False
    hdr = headers(Msg_Id="1")
    node.publish(b"s.a", b"x", hdr=hdr)
    assert node.turn() == []
    assert publish_fast(node, 1, COMMIT, hdr=hdr) == []
    log.complete()
    (ack,) = shown(node.turn())
    assert (ack["seq"], ack["count"]) == (1, 1)


def test_an_end_that_waits_is_acknowledged_at_its_own_reply_subject() -> None:
    node, log = Node(), MemLog()
    start_stream(node, log, allow_batched=True)
    log._durable_on_submit = False
    publish_fast(node, 1, START)
    assert publish_fast(node, 2, COMMIT_BEFORE) == []
    log.complete()
    (ack,) = node.turn()
    assert (ack.to, json.loads(ack.payload)["count"]) == (reply(2, COMMIT_BEFORE), 1)


def test_fast_batches_end_with_the_term() -> None:
    node = Node()
    replica = start_stream(node, allow_batched=True)
    publish_fast(node, 1, START)
    assert node.site.batches.fast == 1
    replica.stop()
    assert node.site.batches.fast == 0
