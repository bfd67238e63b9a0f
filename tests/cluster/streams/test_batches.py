"""Atomic batches through admission and a replica: one publish, one entry, one ack; or nothing at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.batch_room import BatchRoom
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.streams.admission.admit import ENTRY_BYTES_MAX, PublishAdmission
from jetraft.store.frames._frame import records, seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.config import DiscardPolicy
from jetraft.store.model.limits import ATOMIC_MESSAGES_MAX, BATCH_IDLE_NS_MAX
from tests.cluster.lab import Node, Sent, add_consumer, start_stream, stream_config
from tests.cluster.streams.admission.test_admit import NOW_NS, STORED, Applied, capture, headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetraft.cluster.streams.publishing.publish import Admitted
    from jetraft.cluster.streams.replica.replica import StreamReplica


def member(seq: int, *, batch: str = "b", commit: bool = False, **fields: str) -> bytes:
    ends = {"Batch_Commit": "1"} if commit else {}
    return headers(Batch_Id=batch, Batch_Sequence=str(seq), **ends, **fields)


def whole(subjects: Sequence[bytes], *, batch: str = "b", **fields: str) -> bytes:
    """A captured batch; `fields` are headers of its last message."""
    last = len(subjects)
    return b"".join(
        capture(subject, hdr=member(seq, batch=batch, commit=seq == last, **(fields if seq == last else {})))
        for seq, subject in enumerate(subjects, 1)
    )


def codes(admitted: Admitted) -> list[int]:
    answers = [answer.payload for answer in captures(b"".join(admitted.answers)) if answer.payload]
    return [json.loads(answer)["error"]["err_code"] for answer in answers]


def test_a_batch_is_a_publish_of_its_own_between_what_came_before_and_after() -> None:
    admission = PublishAdmission(stream_config(allow_atomic=True), Applied())
    captured = capture(b"s.before") + whole([b"s.1", b"s.2"]) + capture(b"s.after")
    admitted = admission.admit(captured, NOW_NS)
    assert [publish.records.subjects() for publish in admitted.publishes] == [
        [b"s.before"],
        [b"s.1", b"s.2"],
        [b"s.after"],
    ]
    acks = [json.loads(ack.payload) for publish in admitted.publishes for ack in captures(publish.acks(b"S"))]
    assert acks == [
        {"stream": "S", "seq": 1},
        {"stream": "S", "seq": 3, "batch": "b", "count": 2},
        {"stream": "S", "seq": 4},
    ]


def test_a_batch_larger_than_other_entries_is_still_one() -> None:
    admission = PublishAdmission(stream_config(allow_atomic=True), Applied())
    payload = bytes(ENTRY_BYTES_MAX // 3)
    for seq in range(1, 8):
        admission.admit(capture(payload=payload, hdr=member(seq)), NOW_NS)
    (publish,) = admission.admit(capture(hdr=member(8, commit=True)), NOW_NS).publishes
    assert (publish.records.count, publish.records.size > 2 * ENTRY_BYTES_MAX) == (8, True)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"Expected_Last_Sequence": "4"}, 10164),
        ({"Expected_Last_Subject_Sequence": "0", "Expected_Last_Subject_Sequence_Subject": "s.new"}, 10164),
        ({"Expected_Last_Subject_Sequence": "9"}, 10071),
        ({"Expected_Last_Msg_Id": "id-a"}, 10177),
        ({"Msg_Id": "id-a"}, 10201),
        ({"Msg_Id": "twice"}, 10201),
        ({"Rollup": "sub"}, 10111),
        ({"Expected_Stream": "T"}, 10060),
    ],
)
def test_one_refusal_refuses_all_and_leaves_no_trace(fields: dict[str, str], code: int) -> None:
    admission = PublishAdmission(stream_config(allow_atomic=True), Applied(list(STORED)))
    first = capture(b"s.new", hdr=member(1, Msg_Id="twice"))
    refused = admission.admit(first + capture(b"s.other", hdr=member(2, commit=True, **fields)), NOW_NS)
    assert (refused.publishes, codes(refused)) == ([], [code])
    # Neither sequence nor id nor last id of the refused messages is known.
    expects = headers(Msg_Id="twice", Expected_Last_Sequence="3", Expected_Last_Msg_Id="id-a")
    (publish,) = admission.admit(capture(b"s.new", hdr=expects), NOW_NS).publishes
    assert publish.records.first_seq == 4


@pytest.mark.parametrize(
    ("fields", "code"), [({"Expected_Last_Subject_Sequence": "0"}, 10164), ({"Rollup": "sub"}, 10111), ({}, None)]
)
def test_a_message_that_asks_for_nothing_counts_for_those_after_it_in_its_batch(
    fields: dict[str, str], code: int | None
) -> None:
    admission = PublishAdmission(stream_config(allow_atomic=True, allow_rollup_hdrs=True), Applied(list(STORED)))
    before = capture(b"s.new", hdr=member(1)) + capture(b"s.other", hdr=member(2, Msg_Id="id-new"))
    admitted = admission.admit(before + capture(b"s.new", hdr=member(3, commit=True, **fields)), NOW_NS)
    assert codes(admitted) == ([] if code is None else [code])
    assert [publish.records.subjects() for publish in admitted.publishes] == (
        [[b"s.new", b"s.other", b"s.new"]] if code is None else []
    )


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_msgs": 5}, [10077]),
        ({"max_msgs": 6}, []),
        ({"max_bytes": 380}, [10077]),
        ({"max_msgs_per_subject": 2, "discard_new_per_subject": True}, [10077]),
        ({"max_msgs_per_subject": 3, "discard_new_per_subject": True}, []),
    ],
)
def test_a_stream_that_discards_the_new_has_room_for_all_of_a_batch_or_takes_nothing(
    limits: dict[str, int], code: list[int]
) -> None:
    config = stream_config(allow_atomic=True, discard=DiscardPolicy.NEW, **limits)
    admission = PublishAdmission(config, Applied(list(STORED), stored_bytes=120))
    admitted = admission.admit(whole([b"s.n", b"s.n", b"s.n"]), NOW_NS)
    assert codes(admitted) == code
    assert [publish.records.count for publish in admitted.publishes] == ([] if code else [3])


def test_a_stream_without_the_flag_refuses_batches_and_drops_what_it_had_staged() -> None:
    room = BatchRoom()
    admission = PublishAdmission(stream_config(allow_atomic=True), Applied(), room=room)
    admission.admit(capture(hdr=member(1)), NOW_NS)
    assert room.atomic == 1
    admission.follow(stream_config())
    assert room.atomic == 0
    assert codes(admission.admit(capture(hdr=member(2, commit=True)), NOW_NS)) == [10174]
    admission.follow(stream_config(allow_atomic=True))
    assert codes(admission.admit(capture(hdr=member(2, commit=True)), NOW_NS)) == [10176]


def test_a_refused_batch_leaves_the_sums_of_counters_as_they_were() -> None:
    admission = PublishAdmission(stream_config(allow_atomic=True, allow_msg_counter=True), Applied())
    adds = [capture(b"s.n", b"", member(seq, commit=seq == 3, Incr="+5")) for seq in (1, 2, 3)]
    refused = capture(b"s.n", b"", member(3, commit=True, Incr="x"))
    assert codes(admission.admit(adds[0] + adds[1] + refused, NOW_NS)) == [10171]
    (publish,) = admission.admit(b"".join(adds), NOW_NS).publishes
    body = [memoryview(publish.records)]
    frame = seal(Kind.MESSAGES, index=1, term=1, incarnation=7, body=body, first_seq=1, count=3)
    assert [payload for _, _, _, _, payload in records(frame)] == [b'{"val":"5"}', b'{"val":"10"}', b'{"val":"15"}']


MEMBERS = st.lists(
    st.tuples(
        st.sampled_from(["x", "y", ""]),
        st.booleans(),
        st.sampled_from([{}, {}, {}, {"Expected_Last_Sequence": "0"}, {"Msg_Id": "m"}]),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(MEMBERS)
def test_each_batch_is_in_the_stream_as_a_whole_or_not_at_all(members: list[tuple[str, bool, dict[str, str]]]) -> None:
    """Messages of batches and others in one turn, in any order: what is proposed has batches 1..n in one publish."""
    admission = PublishAdmission(stream_config(allow_atomic=True), Applied())
    seqs: dict[str, int] = {}
    captured = b""
    for name, commits, fields in members:
        seqs[name] = seqs.get(name, 0) + 1
        hdr = member(seqs[name], batch=name, commit=commits, **fields) if name else headers(**fields)
        captured += capture(name.encode() or b"plain", hdr=hdr)
        if name and commits:
            seqs[name] = 0
    admitted = admission.admit(captured, NOW_NS)
    next_seq = 1
    for publish in admitted.publishes:
        assert publish.records.first_seq == next_seq
        next_seq = publish.records.next_seq
        subjects = set(publish.records.subjects())
        assert subjects == {b"plain"} or len(subjects) == 1
        for ack in captures(publish.acks(b"S")):
            answer = json.loads(ack.payload)
            if "batch" in answer:
                assert (answer["count"], answer["seq"]) == (publish.records.count, publish.records.next_seq - 1)


KINDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "a", "a", "a", "b", ""]),
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1]),  # how far its number is off
        st.sampled_from(["", "", "", "", "", "1", "eob"]),
        st.sampled_from([b"", b"", b"", b"R"]),
        st.sampled_from([{}, {}, {}, {}, {"Msg_Id": "m"}, {"Expected_Last_Subject_Sequence": "0"}, {"Rollup": "sub"}]),
        st.sampled_from([b"", b"", b"Key: value\r\n"]),
        st.sampled_from([b"x", b"x", bytes(400)]),
        st.sampled_from([b"s.1", b"s.2"]),
    ),
    max_size=40,
)
CONFIGS = st.sampled_from(
    [{}, {}, {"max_msg_size": 300}, {"discard": DiscardPolicy.NEW, "max_msgs": 8}, {"allow_msg_counter": True}]
)


@settings(max_examples=300)
@given(KINDS, CONFIGS)
def test_runs_have_the_outcome_of_the_same_messages_one_by_one(
    kinds: list[tuple[str, int, str, bytes, dict[str, str], bytes, bytes, bytes]], config: dict[str, Any]
) -> None:
    seqs: dict[str, int] = {}
    messages = []
    for name, off, commit, reply, fields, own, payload, subject in kinds:
        seqs[name] = seqs.get(name, 0) + 1
        ends = {"Batch_Commit": commit} if commit else {}
        of_batch = {"Batch_Id": name, "Batch_Sequence": str(seqs[name] + off), **ends} if name else {}
        hdr = headers(**of_batch, **fields)[:-2] + own + b"\r\n"
        messages.append(capture(subject, payload, hdr if of_batch or fields or own else b"", reply))
        if commit or off:
            seqs[name] = 0
    found = []
    for turns in (messages, [b"".join(messages)]):
        room = BatchRoom()
        settings_ = stream_config(allow_atomic=True, allow_rollup_hdrs=True, **config)
        admission = PublishAdmission(settings_, Applied(), room=room)
        admitted = [admission.admit(turn, NOW_NS) for turn in turns]
        publishes = [publish for one in admitted for publish in one.publishes]
        found.append(
            (
                b"".join(bytes(memoryview(publish.records)) for publish in publishes),
                sorted(ack.payload for publish in publishes for ack in captures(publish.acks(b"S"))),
                [answer for one in admitted for answer in one.answers],
                [abandoned for one in admitted for abandoned in one.abandoned],
                (room.atomic, room.staged_bytes, admission.next_seq, admission.last_msg_id),
            )
        )
    assert found[0] == found[1]


def test_a_run_is_staged_whole_and_ends_where_a_batch_is_full() -> None:
    room = BatchRoom()
    admission = PublishAdmission(stream_config(allow_atomic=True), Applied(), room=room)
    captured = b"".join(capture(hdr=member(seq), reply=b"") for seq in range(1, ATOMIC_MESSAGES_MAX + 1))
    assert admission.admit(captured, NOW_NS).answers == []
    assert room.staged_bytes == len(captured)
    assert codes(admission.admit(capture(hdr=member(ATOMIC_MESSAGES_MAX + 1)), NOW_NS)) == [10199]
    assert (room.atomic, room.staged_bytes) == (0, 0)
    admission.admit(captured, NOW_NS)
    (publish,) = admission.admit(capture(hdr=member(ATOMIC_MESSAGES_MAX + 1, Batch_Commit="eob")), NOW_NS).publishes
    assert publish.records.count == ATOMIC_MESSAGES_MAX


def test_a_run_ends_before_a_message_that_is_too_large_for_the_stream() -> None:
    admission = PublishAdmission(stream_config(allow_atomic=True, max_msg_size=300), Applied())
    first, large = capture(hdr=member(1), reply=b""), capture(payload=bytes(300), hdr=member(2), reply=b"")
    assert codes(admission.admit(first + large, NOW_NS)) == []  # nobody asked
    assert codes(admission.admit(capture(hdr=member(3, commit=True)), NOW_NS)) == [10176]


# --- on a node


def publish_batch(node: Node, subjects: Sequence[bytes], *, batch: str = "b") -> list[Sent]:
    for seq, subject in enumerate(subjects, 1):
        hdr = member(seq, batch=batch, commit=seq == len(subjects))
        node.publish(subject, b"x", hdr=hdr, reply=b"_INBOX.%d" % seq)
    return node.turn()


def test_a_batch_is_one_entry_of_the_log() -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log, allow_atomic=True)
    before = log.last_index
    answers = publish_batch(node, [b"s.%d" % number for number in range(ATOMIC_MESSAGES_MAX)])
    assert log.last_index == before + 1
    (entry,) = log.entries(before + 1, before + 1, 1 << 30)
    assert (entry.kind, len(records(entry.frame))) == (Kind.MESSAGES, ATOMIC_MESSAGES_MAX)
    assert [answer.payload for answer in answers] == [b""] * (ATOMIC_MESSAGES_MAX - 1) + [
        b'{"stream":"S","seq":1000,"batch":"b","count":1000}'
    ]
    assert replica.info().state.messages == ATOMIC_MESSAGES_MAX


def test_nothing_of_a_batch_is_acknowledged_or_delivered_before_all_of_it_is_durable() -> None:
    node, log = Node(), MemLog()
    replica = start_stream(node, log, allow_atomic=True)
    add_consumer(node, replica, durable_name="c")
    node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":9}', reply=b"_INBOX.pull")
    node.turn()
    log._durable_on_submit = False
    assert [answer.payload for answer in publish_batch(node, [b"s.a", b"s.b", b"s.c"])] == [b"", b""]
    assert replica.info().state.messages == 0
    log.complete()
    sent = node.turn()
    assert [one.to for one in sent if one.payload.startswith(b"{")] == [b"_INBOX.3"]
    log.complete()
    sent += node.turn()
    assert [one.subject for one in sent if one.to == b"_INBOX.pull"] == [b"s.a", b"s.b", b"s.c"]


def test_a_batch_that_waits_too_long_is_abandoned_with_an_advisory() -> None:
    node = Node()
    node.subscriptions.add(b"$JS.EVENT.ADVISORY.>")
    replica = start_stream(node, allow_atomic=True)
    node.turn()
    node.publish(b"s.a", hdr=member(1), reply=b"_INBOX.a")
    node.turn()
    node.sleep(BATCH_IDLE_NS_MAX - 10**9)
    node.publish(b"s.a", hdr=member(2), reply=b"_INBOX.a")
    assert [one.payload for one in node.turn()] == [b""]
    (advisory,) = node.sleep(BATCH_IDLE_NS_MAX + 10**9)
    assert advisory.to == b"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"
    told = json.loads(advisory.payload)
    assert (told["stream"], told["batch"], told["reason"]) == ("S", "b", "timeout")
    node.publish(b"s.a", hdr=member(3, commit=True), reply=b"_INBOX.a")
    (answer,) = node.turn()
    assert json.loads(answer.payload)["error"]["err_code"] == 10176
    assert (replica.info().state.messages, node.site.batches.atomic) == (0, 0)


def test_what_is_staged_ends_with_the_term() -> None:
    node = Node()
    replica = start_stream(node, allow_atomic=True)
    node.publish(b"s.a", hdr=member(1), reply=b"_INBOX.a")
    node.turn()
    assert node.site.batches.atomic == 1
    replica.stop()
    assert (node.site.batches.atomic, node.site.batches.staged_bytes) == (0, 0)


def test_a_restart_finds_whole_batches_and_their_ids() -> None:
    node, log = Node(), MemLog()
    first: StreamReplica = start_stream(node, log, allow_atomic=True)
    publish_batch(node, [b"s.a", b"s.b"])
    node.publish(b"s.a", hdr=member(1, batch="c", Msg_Id="1"), reply=b"_INBOX.a")
    node.publish(b"s.b", hdr=member(2, batch="c", commit=True), reply=b"_INBOX.a")
    node.publish(b"s.c", hdr=member(1, batch="left"), reply=b"_INBOX.a")
    node.turn()
    state = first.info().state
    first.stop()
    again = start_stream(node, log, allow_atomic=True)
    assert again.info().state == state
    assert state.messages == 4
    node.publish(b"s.a", hdr=headers(Msg_Id="1"), reply=b"_INBOX.a")
    (ack,) = node.turn()
    assert ack.payload == b'{"stream":"S","seq":3,"duplicate": true}'
