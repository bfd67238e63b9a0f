import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.consumers._acks import sort_acks
from jetraft.cluster.consumers.acks import Ack, AckKind, AckSubject, parse_ack_body, parse_ack_subject
from jetraft.store.stream._runs import Runs

SHORT = b"$JS.ACK.S.c.2.33.44.1700000000000000000.5"
LONG = b"$JS.ACK.hub.ACCHASH.S.c.2.33.44.1700000000000000000.5"


@pytest.mark.parametrize(
    ("subject", "parsed"),
    [
        (SHORT, AckSubject(b"c", 33, 44, 2)),
        (LONG, AckSubject(b"c", 33, 44, 2)),
        (LONG + b".token", AckSubject(b"c", 33, 44, 2)),
        (b"$JS.ACK.S.c.2", None),
        (b"$JS.ACK.S.c.2.x.44.1.5", None),
        (b"$JS.ACK.S.c.2.-3.44.1.5", None),
        (b"$JS.ACK.S.c.2." + b"9" * 20 + b".44.1.5", None),
    ],
)
def test_an_ack_subject_names_a_delivery(subject: bytes, parsed: AckSubject | None) -> None:
    assert parse_ack_subject(subject) == parsed


@pytest.mark.parametrize(
    ("body", "ack"),
    [
        (b"", Ack(AckKind.ACK)),
        (b"+ACK", Ack(AckKind.ACK)),
        (b"+OK", Ack(AckKind.ACK)),
        (b"-NAK", Ack(AckKind.NAK)),
        (b"-NAK 2s", Ack(AckKind.NAK, delay_ns=2_000_000_000)),
        (b'-NAK {"delay":7}', Ack(AckKind.NAK, delay_ns=7)),
        (b'-NAK {"delay":-7}', Ack(AckKind.NAK)),
        (b'-NAK {"delay":"x"}', Ack(AckKind.NAK)),
        (b"-NAK {", Ack(AckKind.NAK)),
        (b"-NAK \xff", Ack(AckKind.NAK)),
        (b"+WPI", Ack(AckKind.PROGRESS)),
        (b"+NXT 3", Ack(AckKind.NEXT, body=b"3")),
        (b"+TERM because", Ack(AckKind.TERM, reason="because")),
        (b"junk", Ack(AckKind.NOTHING)),
    ],
)
def test_an_ack_body_says_what_it_asks_for(body: bytes, ack: Ack) -> None:
    assert parse_ack_body(body) == ack


acks = st.lists(
    st.tuples(
        st.one_of(
            st.builds(
                lambda consumer, seq: b"$JS.ACK.S.%s.1.%d.9.1.0" % (consumer, seq),
                st.sampled_from([b"c", b"d", b"consumer"]),
                st.integers(0, 10**19),
            ),
            st.sampled_from([SHORT, LONG, b"$JS.ACK.S.c", b"$JS.ACK.S.c.1.x.1.1.1", b"a.b", b"."]),
            st.sampled_from([b"$JS.ACK.S.c.1.2.3.4", b"$JS.ACK.S.c.1.2.3.4.5.6", b"$JS.ACK.S.c.1.2.3.4.5.6.7.8.9"]),
            st.binary(min_size=1, max_size=30),
        ),
        st.sampled_from([b"", b"+ACK", b"-NAK", b"+OK"]),
        st.sampled_from([b"", b"R"]),
    ),
    max_size=12,
)


@given(acks)
def test_sorting_agrees_with_reading_one_by_one(batch: list[tuple[bytes, bytes, bytes]]) -> None:
    plain: dict[bytes, list[int]] = {}
    others, records, position = [], [], 0
    for subject, body, reply in batch:
        parsed = parse_ack_subject(subject)
        if body in (b"", b"+ACK") and not reply and parsed is not None and parsed.stream_seq:
            plain.setdefault(parsed.consumer, []).append(parsed.stream_seq)
        elif not (body in (b"", b"+ACK") and not reply and _is_loosely_named(subject)):
            others.append(position)
        else:
            return  # C reads only the stream sequence: other numbers may be malformed
        records.append(encode_capture(subject, reply, b"", body))
        position += len(records[-1])
    runs = {consumer: Runs(sorted(set(seqs))) for consumer, seqs in plain.items()}
    assert sort_acks(b"".join(records)) == (runs, others)


def _is_loosely_named(subject: bytes) -> bool:
    tokens = subject.split(b".")
    at = 3 if len(tokens) == 9 else 5 if len(tokens) >= 11 else 0
    seq = tokens[at + 2] if at else b""
    return seq.isdigit() and len(seq) <= 19 and int(seq) > 0


def model_of(subject: bytes) -> AckSubject | None:
    tokens = subject.split(b".")
    at = 3 if len(tokens) == 9 else 5 if len(tokens) >= 11 else 0
    numbers = tokens[at + 1 : at + 4]
    if not at or not all(number.isdigit() and len(number) <= 19 for number in numbers):
        return None
    count, stream_seq, consumer_seq = map(int, numbers)
    return AckSubject(tokens[at], stream_seq, consumer_seq, count)


tokens = st.sampled_from([b"$JS", b"ACK", b"c", b"", b"0", b"7", b"-1", b"9" * 19, b"9" * 20, b"x1", b"\xb2", b" 1"])


@given(st.lists(tokens, min_size=1, max_size=15).map(b".".join) | st.sampled_from([SHORT, LONG]))
def test_a_subject_is_read_as_its_tokens_say(subject: bytes) -> None:
    assert parse_ack_subject(subject) == model_of(subject)
