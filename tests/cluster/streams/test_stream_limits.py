"""`jetraft.max_subjects` and `jetraft.rate_*` on one node in memory, and their rules by themselves."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.streams.rules.publish_rate import BURST_NS, PublishRate, too_fast
from jetraft.store.model.config import DiscardPolicy
from tests.cluster.lab import Node, Sent, start_stream, stream_config

S = 10**9
MS = 10**6


class Stream:
    """A stream with limits, and a publisher that waits for each turn's answers."""

    def __init__(self, metadata: dict[str, str], **config: Any) -> None:
        self.node = Node()
        self.replica = start_stream(self.node, metadata=metadata, **config)

    def publish(self, *subjects: bytes, hdr: bytes = b"", payload: bytes = b"x") -> list[dict[str, Any]]:
        """Publish all in one turn; returns the acks in order."""
        for place, subject in enumerate(subjects):
            self.node.publish(subject, payload, hdr=hdr, reply=b"_INBOX.%d" % place)
        answers: dict[bytes, Sent] = {sent.to: sent for sent in self.node.turn() if sent.to.startswith(b"_INBOX.")}
        return [orjson.loads(answers[b"_INBOX.%d" % place].payload) for place in range(len(subjects))]


def errors(answers: list[dict[str, Any]]) -> list[int]:
    return [answer.get("error", {}).get("err_code", 0) for answer in answers]


@pytest.mark.parametrize("hdr", [b"", b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n"])
def test_a_stream_takes_no_more_subjects_than_it_may_have(hdr: bytes) -> None:
    stream = Stream({"jetraft.max_subjects": "2"})
    answers = stream.publish(b"s.a", b"s.b", b"s.c", b"s.a", b"s.c", hdr=hdr)
    assert errors(answers) == [0, 0, 10077, 0, 10077]
    assert answers[2]["error"]["description"] == "maximum subjects exceeded"
    assert errors(stream.publish(b"s.c", b"s.b", hdr=hdr)) == [10077, 0]
    stream.replica.machine.store.purge(subject=b"s.a")
    assert errors(stream.publish(b"s.c", b"s.a", hdr=hdr)) == [0, 10077]


def test_batches_meet_the_same_limit() -> None:
    stream = Stream({"jetraft.max_subjects": "1"}, allow_atomic=True)

    def member(number: int, subject: bytes, *, is_last: bool = False) -> list[Sent]:
        commit = b"Nats-Batch-Commit: 1\r\n" if is_last else b""
        hdr = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%s\r\n" % (number, commit)
        stream.node.publish(subject, b"x", hdr=hdr, reply=b"_INBOX.b")
        return [sent for sent in stream.node.turn() if sent.to == b"_INBOX.b"]

    member(1, b"s.a")
    (answer,) = member(2, b"s.b", is_last=True)
    assert orjson.loads(answer.payload)["error"]["err_code"] == 10077
    assert stream.replica.machine.messages == 0
    assert errors(stream.publish(b"s.c", b"s.d")) == [0, 10077], "what was taken back counts no more"


def test_the_limit_may_change_while_messages_are_stored() -> None:
    stream = Stream({})
    assert errors(stream.publish(b"s.a", b"s.b", b"s.c")) == [0, 0, 0]
    leadership = stream.replica._leadership
    assert leadership is not None
    leadership.config_changed(stream_config(metadata={"jetraft.max_subjects": "1"}))
    assert errors(stream.publish(b"s.a", b"s.d")) == [0, 10077]
    leadership.config_changed(stream_config())
    assert errors(stream.publish(b"s.d")) == [0]


@pytest.mark.parametrize(
    "hdr", [b"", b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n\r\n"]
)
def test_a_message_that_is_larger_than_its_subject_may_be_is_refused(hdr: bytes) -> None:
    stream = Stream({"jetraft.max_bytes_per_subject": "200"}, allow_atomic=True)
    room = 200 - 30 - 3 - (len(hdr) + 4 if hdr else 0)
    (refused,) = stream.publish(b"s.a", hdr=hdr, payload=b"x" * (room + 1))
    text = "maximum bytes per subject exceeded: the message needs 201 bytes, 0 of 200 are in use"
    assert refused["error"]["description"] == text
    assert errors(stream.publish(b"s.a", hdr=hdr, payload=b"x" * room)) == [0]


def test_of_a_full_subject_the_oldest_messages_make_room() -> None:
    stream = Stream({"jetraft.max_bytes_per_subject": "100"})
    assert errors(stream.publish(*[b"s.a", b"s.b"] * 5, payload=b"x" * 17)) == [0] * 10
    assert stream.replica.machine.store.next_matches((), 1, 100) == [7, 8, 9, 10]


def test_new_messages_of_a_full_subject_are_refused_where_the_stream_says_so() -> None:
    stream = Stream(
        {"jetraft.max_bytes_per_subject": "100"},
        discard=DiscardPolicy.NEW,
        discard_new_per_subject=True,
        allow_rollup_hdrs=True,
        allow_atomic=True,
    )
    answers = stream.publish(*[b"s.a", b"s.b"] * 3, payload=b"x" * 17)
    assert errors(answers) == [0] * 4 + [10077] * 2, "what is in flight counts"
    text = "maximum bytes per subject exceeded: the message needs 50 bytes, 100 of 100 are in use"
    assert answers[4]["error"]["description"] == text
    batch = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n\r\n"
    assert errors(stream.publish(b"s.b", hdr=batch)) == [10077]
    assert errors(stream.publish(b"s.a", hdr=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")) == [0], "it replaces the others"
    assert errors(stream.publish(b"s.a")) == [10077]
    stream.replica.machine.store.purge(subject=b"s.a")
    assert errors(stream.publish(b"s.a", b"s.a", b"s.a", payload=b"x" * 17)) == [0, 0, 10077]


def test_what_is_over_the_rate_is_told_how_long_to_wait() -> None:
    stream = Stream({"jetraft.rate_msgs_per_s": "10"})
    answers = stream.publish(*[b"s.a"] * 15)
    assert errors(answers) == [0] * 11 + [10167] * 4
    assert {answer["error"]["code"] for answer in answers[11:]} == {429}
    assert {answer["error"]["description"] for answer in answers[11:]} == {"too many requests: wait 100ms"}
    assert [answer["seq"] for answer in answers[:11]] == list(range(1, 12))
    assert stream.replica.machine.messages == 11
    stream.node.sleep(100 * MS)
    assert errors(stream.publish(b"s.a", b"s.a")) == [0, 10167], "after the wait that was named there is room for one"


def test_a_large_message_passes_and_delays_those_that_follow() -> None:
    stream = Stream({"jetraft.rate_bytes_per_s": "1000"})
    assert errors(stream.publish(b"s.a", payload=b"x" * 5000)) == [0]
    (refused,) = stream.publish(b"s.a")
    assert refused["error"]["description"] == "too many requests: wait 4s"
    stream.node.sleep(4 * S)
    assert errors(stream.publish(b"s.a")) == [0]


def test_a_new_rate_does_not_forgive_what_was_taken() -> None:
    stream = Stream({"jetraft.rate_msgs_per_s": "10"})
    stream.publish(*[b"s.a"] * 11)
    leadership = stream.replica._leadership
    assert leadership is not None
    leadership.config_changed(stream_config(metadata={"jetraft.rate_msgs_per_s": "20"}))
    assert errors(stream.publish(b"s.a")) == [10167]
    leadership.config_changed(stream_config())
    assert errors(stream.publish(b"s.a")) == [0]


@given(
    st.integers(1, 10_000),
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, S), st.lists(st.integers(0, 2000), max_size=20)), max_size=30),
)
def test_no_more_passes_than_the_rates_allow(msgs: int, size: int, turns: list[tuple[int, list[int]]]) -> None:
    rate, now_ns, taken, taken_bytes, largest = PublishRate(msgs, size), 5 * S, 0, 0, 0
    for pause_ns, sizes in turns:
        now_ns += pause_ns
        batch = b"".join(encode_capture(b"s", payload=b"x" * one) for one in sizes)
        end, wait_ns = rate.take(batch, now_ns)
        assert (end == len(batch)) == (wait_ns == 0)
        ends = [len(encode_capture(b"s", payload=b"x" * one)) for one in sizes]
        passed = 0
        while end:
            end -= ends[passed]
            passed += 1
        taken, taken_bytes = taken + passed, taken_bytes + sum(sizes[:passed])
        largest = max([largest, *sizes])
        elapsed_ns = now_ns - 5 * S + BURST_NS
        assert taken <= 1 + elapsed_ns // (S // msgs)
        assert taken_bytes * S // size <= elapsed_ns + largest * S // size + taken
        if wait_ns:
            assert rate.take(batch[-ends[-1] :], now_ns + wait_ns - 1)[1] > 0
            now_ns += wait_ns


def test_a_wait_is_named_in_whole_milliseconds() -> None:
    assert too_fast(1).description == "too many requests: wait 1ms"
    assert too_fast(1_500_000).description == "too many requests: wait 2ms"
