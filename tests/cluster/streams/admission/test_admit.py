"""Admission against a plain stand-in of applied state; the cases of a table are nats-server 2.15.1's answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import capture_at, captures, encode_capture
from jetraft.cluster.streams.admission.admit import REFUSALS_IN_FLIGHT_MAX, PublishAdmission
from jetraft.store.frames._frame import records, seal
from jetraft.store.frames.format import Kind
from jetraft.store.model import errors
from jetraft.store.model.config import DiscardPolicy
from jetraft.store.model.limits import QueueLimits
from jetraft.store.model.subject import matches
from jetraft.store.stream._search import LastSearch
from tests.cluster.lab import stream_config
from tests.store.stream.test_select import index_of

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.publish import Admitted
    from jetraft.store.stream.stream_store import StoredMessage

NOW_NS = 1_700_000_000_000_000_000


@attrs.define
class Applied:
    """What is applied: (subject, message id) by sequence, in a list."""

    stored: list[tuple[bytes, bytes]] = attrs.Factory(list)
    stored_bytes: int = 0
    last_ts_ns: int = 0

    @property
    def messages(self) -> int:
        return len(self.stored)

    @property
    def num_subjects(self) -> int:
        return len({subject for subject, _ in self.stored})

    @property
    def next_seq(self) -> int:
        return len(self.stored) + 1

    @property
    def last_msg_id(self) -> bytes:
        return self.stored[-1][1] if self.stored else b""

    def last_for(self, pattern: bytes) -> int:
        return max((at for at, (subject, _) in enumerate(self.stored, 1) if matches(pattern, subject)), default=0)

    def search_last(self, pattern: bytes) -> LastSearch:
        return LastSearch(index_of(*(subject for subject, _ in self.stored))[1], [pattern])

    def bytes_for(self, subject: bytes) -> int:
        assert subject, "no test here limits them"
        return 0

    def count_for(self, subject: bytes) -> int:
        return sum(stored == subject for stored, _ in self.stored)

    def load(self, seq: int) -> StoredMessage | None:  # noqa: ARG002  (the port's)
        return None

    def is_unwanted(self, subject: bytes) -> bool:  # noqa: ARG002  (the port's)
        return False

    def seq_of_msg_id(self, msg_id: bytes, now_unix_ns: int) -> int | None:  # noqa: ARG002  (the port's)
        return next((at for at, (_, stored) in enumerate(self.stored, 1) if stored == msg_id), None)


def headers(**fields: str) -> bytes:
    lines = "".join(f"Nats-{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def capture(subject: bytes = b"s.a", payload: bytes = b"x", hdr: bytes = b"", reply: bytes = b"R") -> bytes:
    return encode_capture(subject, reply, hdr, payload)


def answers_of(encoded: bytes) -> list[tuple[bytes, Any]]:
    return [(answer.subject, json.loads(answer.payload)) for answer in captures(encoded)]


def acks_of(admitted: Admitted) -> list[tuple[bytes, Any]]:
    return [ack for publish in admitted.publishes for ack in answers_of(publish.acks(b"S"))]


def refusal_of(admission: PublishAdmission, hdr: bytes = b"", payload: bytes = b"x", subject: bytes = b"s.a") -> Any:
    """The error code of one message, or None when it is admitted. Its answer may wait for what it rests on."""
    before = len(admission._in_flight[-1].answers) if admission._in_flight else 0
    admitted = admission.admit(capture(subject, payload, hdr), NOW_NS)
    if admitted.publishes:
        assert not admitted.answers
        return None
    found = answers_of(b"".join(admitted.answers))
    if admission._in_flight:
        found += [(reply, json.loads(answer)) for reply, answer in list(admission._in_flight[-1].answers)[before:]]
    ((_, answer),) = found
    return answer["error"]["err_code"], answer["error"]["description"]


@pytest.mark.parametrize("limits", [QueueLimits(messages=2), QueueLimits(bytes=20)])
def test_what_waits_to_be_stored_is_bounded(limits: QueueLimits) -> None:
    admission = PublishAdmission(stream_config(), Applied(), limits=limits)
    first = admission.admit(capture() + capture(), NOW_NS)
    assert len(first.publishes) == 1
    assert refusal_of(admission) == (10167, "too many requests")
    admission.settled(first.publishes[0])
    assert refusal_of(admission) is None


STORED = [(b"s.a", b""), (b"s.b", b"id-b"), (b"s.a", b"id-a")]


@pytest.mark.parametrize(
    ("hdr", "refusal"),
    [
        (headers(Expected_Stream="S"), None),
        (headers(Expected_Stream="T"), (10060, "expected stream does not match")),
        (headers(Expected_Last_Sequence="3"), None),
        (headers(Expected_Last_Sequence="2"), (10071, "wrong last sequence: 3")),
        (headers(Expected_Last_Sequence="x"), (10071, "wrong last sequence: 3")),
        (headers(Expected_Last_Sequence="-1"), (10071, "wrong last sequence: 3")),
        (headers(Expected_Last_Sequence=""), None),
        (headers(Expected_Last_Subject_Sequence="3"), None),
        (headers(Expected_Last_Subject_Sequence="2"), (10071, "wrong last sequence: 3")),
        (headers(Expected_Last_Subject_Sequence="2", Expected_Last_Subject_Sequence_Subject="s.b"), None),
        (headers(Expected_Last_Subject_Sequence="3", Expected_Last_Subject_Sequence_Subject="s.*"), None),
        (headers(Expected_Last_Subject_Sequence="0", Expected_Last_Subject_Sequence_Subject="s.c"), None),
        (
            headers(Expected_Last_Subject_Sequence_Subject="s.b"),
            (10193, "missing sequence for expected last sequence per subject"),
        ),
        (headers(Expected_Last_Msg_Id="id-a"), None),
        (headers(Expected_Last_Msg_Id="id-b"), (10070, "wrong last msg ID: id-a")),
        (headers(Rollup="sub"), (10111, "rollup not permitted")),
        (headers(TTL="5"), (10166, "per-message TTL is disabled")),
        (headers(Incr="+1"), (10168, "message counters is disabled")),
        (headers(Batch_Id="5"), (10174, "atomic publish is disabled")),
        (headers(Schedule="@at x"), (10188, "message schedules is disabled")),
        (headers(Stream_Source="x"), (10227, "message stream source header is not allowed")),
        (headers(Required_Api_Level="9"), None),
        (b"NATS/1.0\r\nnats-expected-stream: T\r\n\r\n", None),
        (b"NATS/1.0\r\nX: " + b"y" * 66_000 + b"\r\n\r\n", (10097, "header size exceeds maximum allowed of 64k")),
        # two broken rules at once: the order of the checks
        (headers(Expected_Stream="T", Incr="1"), (10168, "message counters is disabled")),
        (headers(Expected_Stream="T", TTL="1"), (10060, "expected stream does not match")),
        (headers(Expected_Last_Sequence="9", TTL="1"), (10166, "per-message TTL is disabled")),
        (headers(Expected_Last_Sequence="9", Msg_Id="id-a"), (10071, "wrong last sequence: 3")),
        (headers(Expected_Last_Sequence="9", Schedule="x"), (10071, "wrong last sequence: 3")),
        (headers(Stream_Source="x", Msg_Id="id-a"), (10227, "message stream source header is not allowed")),
        (headers(Expected_Last_Msg_Id="q", Rollup="sub"), (10070, "wrong last msg ID: id-a")),
    ],
)
def test_headers_are_judged_as_the_reference_does(hdr: bytes, refusal: object) -> None:
    assert refusal_of(PublishAdmission(stream_config(), Applied(list(STORED))), hdr) == refusal


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"sealed": True}, (10109, "invalid operation on sealed stream")),
        ({"max_msg_size": 9}, (10054, "message size exceeds maximum allowed")),
        ({"max_msg_size": 10}, None),
        ({"max_msgs": 3}, None),
        ({"max_msgs": 3, "discard": DiscardPolicy.NEW}, (10077, "maximum messages exceeded")),
        ({"max_msgs": 4, "discard": DiscardPolicy.NEW}, None),
        ({"max_bytes": 142, "discard": DiscardPolicy.NEW}, (10077, "maximum bytes exceeded")),
        ({"max_bytes": 143, "discard": DiscardPolicy.NEW}, None),
        (
            {"max_msgs_per_subject": 2, "discard": DiscardPolicy.NEW, "discard_new_per_subject": True},
            (10077, "maximum messages per subject exceeded"),
        ),
        ({"max_msgs_per_subject": 3, "discard": DiscardPolicy.NEW, "discard_new_per_subject": True}, None),
        ({"max_msgs": 3, "max_msgs_per_subject": 2, "discard": DiscardPolicy.NEW}, None),
    ],
)
def test_limits_are_judged_as_the_reference_does(fields: dict[str, Any], refusal: object) -> None:
    """Ten bytes of payload on `s.a` count 43 bytes in the file store; 100 are stored."""
    admission = PublishAdmission(stream_config(**fields), Applied(list(STORED), stored_bytes=100))
    assert refusal_of(admission, payload=b"0123456789") == refusal


def test_limits_count_what_is_in_flight() -> None:
    admission = PublishAdmission(stream_config(max_msgs=2, discard=DiscardPolicy.NEW), Applied())
    admitted = admission.admit(capture() * 3, NOW_NS)
    assert [publish.records.count for publish in admitted.publishes] == [2]
    assert len(admitted.publishes[0].answers) == 1, "and it leaves when the two are committed"
    assert admitted.answers == []
    assert refusal_of(admission) == (10077, "maximum messages exceeded")


def test_a_rollup_value_is_checked() -> None:
    admission = PublishAdmission(stream_config(allow_rollup_hdrs=True), Applied())
    assert refusal_of(admission, headers(Rollup="foo")) == (10111, 'rollup value invalid: "foo"')
    assert refusal_of(admission, headers(Rollup="all")) is None


def test_sequences_go_on_over_batches_in_flight() -> None:
    admission = PublishAdmission(stream_config(), Applied(list(STORED)))
    first = admission.admit(capture(reply=b"A") + capture(reply=b"B"), NOW_NS)
    second = admission.admit(capture(reply=b"C"), NOW_NS)
    assert acks_of(first) == [(b"A", {"stream": "S", "seq": 4}), (b"B", {"stream": "S", "seq": 5})]
    assert acks_of(second) == [(b"C", {"stream": "S", "seq": 6})]


def test_expectations_see_what_is_in_flight() -> None:
    admission = PublishAdmission(stream_config(), Applied(list(STORED)))
    admission.admit(capture(b"s.b"), NOW_NS)
    assert refusal_of(admission, headers(Expected_Last_Sequence="3")) == (10071, "wrong last sequence: 4")
    assert refusal_of(admission, headers(Expected_Last_Subject_Sequence="2"), subject=b"s.b") == (
        10071,
        "wrong last sequence: 4",
    )
    wildcard = headers(Expected_Last_Subject_Sequence="4", Expected_Last_Subject_Sequence_Subject="s.*")
    assert refusal_of(admission, wildcard) is None


def test_a_refusal_that_rests_on_what_is_in_flight_leaves_with_its_ack_and_never_without() -> None:
    admission = PublishAdmission(stream_config(), Applied(list(STORED)))
    wrong = headers(Expected_Last_Subject_Sequence="1")
    (first,) = admission.admit(capture(reply=b"A"), NOW_NS).publishes
    for reply, hdr in ((b"B", wrong), (b"", wrong), (b"C", headers(Expected_Last_Msg_Id="other"))):
        later = admission.admit(capture(hdr=hdr, reply=reply), NOW_NS)
        assert (later.publishes, later.answers) == ([], [])
    assert [reply for reply, _ in answers_of(first.acks(b"S"))] == [b"A", b"B", b"C"]
    bad = admission.admit(capture(hdr=headers(Rollup="foo"), reply=b"D"), NOW_NS)
    assert len(bad.answers) == 1, "what rests on the message alone is answered at once"
    same_turn = admission.admit(capture(reply=b"E") + capture(hdr=wrong, reply=b"F"), NOW_NS)
    assert same_turn.answers == []
    assert [reply for reply, _ in acks_of(same_turn)] == [b"E", b"F"]
    admission.settled(first)
    assert admission._refusals_in_flight == 1


def test_refusals_that_wait_are_bounded() -> None:
    admission = PublishAdmission(stream_config(), Applied(list(STORED)))
    admission.admit(capture(), NOW_NS)
    wrong = capture(hdr=headers(Expected_Last_Sequence="1"))
    assert admission.admit(wrong * REFUSALS_IN_FLIGHT_MAX, NOW_NS).answers == []
    ((_, answer),) = answers_of(b"".join(admission.admit(wrong, NOW_NS).answers))
    assert answer["error"]["err_code"] == 10167


def test_an_applied_duplicate_is_acknowledged_at_once_with_its_sequence() -> None:
    admission = PublishAdmission(stream_config(), Applied(list(STORED)))
    admitted = admission.admit(capture(hdr=headers(Msg_Id="id-b"), reply=b"D"), NOW_NS)
    assert not admitted.publishes
    assert capture_at(admitted.answers[0], 0).payload == b'{"stream":"S","seq":2,"duplicate": true}'


def test_a_duplicate_in_flight_is_acknowledged_with_the_first_copy() -> None:
    admission = PublishAdmission(stream_config(), Applied())
    batch = capture(hdr=headers(Msg_Id="n"), reply=b"A") + capture(hdr=headers(Msg_Id="n"), reply=b"B")
    admitted = admission.admit(batch, NOW_NS)
    admission.admit(capture(hdr=headers(Msg_Id="n"), reply=b"C"), NOW_NS)
    assert admitted.answers == []
    assert acks_of(admitted) == [
        (b"A", {"stream": "S", "seq": 1}),
        (b"B", {"stream": "S", "seq": 1, "duplicate": True}),
        (b"C", {"stream": "S", "seq": 1, "duplicate": True}),
    ]


def test_what_is_settled_is_judged_from_applied_state() -> None:
    applied = Applied()
    admission = PublishAdmission(stream_config(), applied)
    (publish,) = admission.admit(capture(hdr=headers(Msg_Id="n")), NOW_NS).publishes
    applied.stored.append((b"s.a", b"n"))
    admission.settled(publish)
    assert admission.in_flight_messages == 0
    admitted = admission.admit(capture(hdr=headers(Msg_Id="n"), reply=b"C"), NOW_NS)
    assert len(admitted.answers) == 1


def test_nobody_is_acknowledged_without_a_reply_or_with_no_ack() -> None:
    assert acks_of(PublishAdmission(stream_config(), Applied()).admit(capture(reply=b""), NOW_NS)) == []
    silent = PublishAdmission(stream_config(no_ack=True), Applied())
    assert acks_of(silent.admit(capture(), NOW_NS)) == []
    assert silent.admit(capture(hdr=headers(Expected_Stream="T")), NOW_NS).answers == []


def test_timestamps_never_go_back() -> None:
    admission = PublishAdmission(stream_config(), Applied(last_ts_ns=NOW_NS + 5))
    stamps = [admission.admit(capture(), now).publishes[0].records.ts_ns for now in (NOW_NS, NOW_NS + 9, NOW_NS + 2)]
    assert stamps == [NOW_NS + 5, NOW_NS + 9, NOW_NS + 9]


def test_an_entry_is_bounded_and_order_is_kept() -> None:
    admission = PublishAdmission(stream_config(), Applied())
    admitted = admission.admit(capture(payload=b"p" * 400_000) * 7, NOW_NS)
    assert [publish.records.first_seq for publish in admitted.publishes] == [1, 4, 7]
    assert admission.in_flight_messages == 7


def test_too_much_in_flight_is_refused() -> None:
    admission = PublishAdmission(stream_config(), Applied())
    admission.admit(capture(reply=b"") * 100_000, NOW_NS)
    assert refusal_of(admission) == (10167, "too many requests")


def test_a_full_store_refuses_everybody() -> None:
    admission = PublishAdmission(stream_config(), Applied())
    refused = admission.admit(capture() * 2, NOW_NS, refuse_with=errors.STREAM_STORE_FAILED.with_values(err="no space"))
    assert not refused.publishes
    assert [answer["error"]["err_code"] for _, answer in answers_of(b"".join(refused.answers))] == [10077, 10077]


messages = st.lists(
    st.tuples(
        st.sampled_from([b"s.a", b"s.b", b"s.long.subject"]),
        st.binary(max_size=30),
        st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n", headers(Msg_Id="x"), headers(Expected_Stream="S")]),
        st.sampled_from([b"", b"R.1"]),
    ),
    max_size=12,
)


def expecting(pattern: str, count: int) -> bytes:
    hdr = headers(Expected_Last_Subject_Sequence="0", Expected_Last_Subject_Sequence_Subject=pattern)
    return b"".join(encode_capture(b"s.a", b"R.%d" % number, hdr, b"") for number in range(count))


def test_expectations_of_patterns_have_a_part_of_a_turn_and_the_rest_is_refused() -> None:
    """Each is compared with what is in flight; refused ones change nothing, and the next turn takes them again."""
    admission = PublishAdmission(stream_config(), Applied())
    admitted = admission.admit(expecting("s.*.z", 3_000), NOW_NS)
    answers = [json.loads(answer.payload) for answer in captures(b"".join(admitted.answers))]
    taken = sum(publish.records.count for publish in admitted.publishes)
    assert 100 < taken < 1_000
    assert taken + len(answers) == 3_000
    assert {answer["error"]["err_code"] for answer in answers} == {errors.STREAM_TOO_MANY_REQUESTS.err_code}

    again = admission.admit(expecting("s.*.z", 1), NOW_NS)
    assert [publish.records.first_seq for publish in again.publishes] == [taken + 1]


@settings(max_examples=60)
@given(messages)
def test_records_hold_what_was_captured(batch: list[tuple[bytes, bytes, bytes, bytes]]) -> None:
    admission = PublishAdmission(stream_config(), Applied())
    admitted = admission.admit(b"".join(encode_capture(s, r, h, p) for s, p, h, r in batch), NOW_NS)
    stored = []
    for publish in admitted.publishes:
        frame = seal(
            Kind.MESSAGES,
            index=1,
            term=1,
            incarnation=1,
            count=publish.records.count,
            body=[memoryview(publish.records)],
        )
        stored += [(subject, hdr, payload) for _flags, _ts, subject, hdr, payload in records(frame)]
    expected, seen = [], False
    for subject, payload, hdr, _reply in batch:
        if b"Msg-Id" in hdr and seen:
            continue
        seen = seen or b"Msg-Id" in hdr
        expected.append((subject, hdr, payload))
    assert stored == expected


@pytest.mark.parametrize("cut", [1, 19, 20, 23])
def test_a_batch_that_does_not_add_up_is_our_bug(cut: int) -> None:
    with pytest.raises(AssertionError):
        PublishAdmission(stream_config(), Applied()).admit(capture()[:cut], NOW_NS)
