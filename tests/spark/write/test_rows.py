"""Columns become messages: what is sent is what the rows have, and what cannot be sent is named."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_jetstream.errors import BadOptionError, RowError
from pyspark_jetstream.write.fence import Digest
from pyspark_jetstream.write.frames import batched, committing, windowed
from pyspark_jetstream.write.layout import Layout, layout_of
from pyspark_jetstream.write.rows import Rows, cut, joined, rows_of, rows_of_keys
from pyspark_jetstream.write.subjects import covers

LISTS = MapType(StringType(), ArrayType(StringType()))
PLAIN = MapType(StringType(), StringType())
HEADER_NAMES = st.text("aBc-1", min_size=1, max_size=4)
HEADER_VALUES = st.text("xy é:", max_size=4)
MAPS = st.none() | st.dictionaries(HEADER_NAMES, st.none() | st.lists(HEADER_VALUES, max_size=3), max_size=3)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(["S.a", "S.bb.c"]), st.binary(max_size=12), MAPS, st.none() | st.text("id7", max_size=3)),
    min_size=1,
    max_size=8,
)


def layout(columns: dict[str, DataType], *, subject: str | None = None, exactly_once: bool = False) -> Layout:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    return layout_of(schema, stream="S", subject=subject, exactly_once=exactly_once).within(["S.>", "T.*.x"])


def full(*, exactly_once: bool = False, **columns: DataType) -> Layout:
    return layout({"subject": StringType(), "data": BinaryType(), **columns}, exactly_once=exactly_once)


def parse(sent: bytes) -> list[tuple[bytes, bytes, list[bytes] | None, bytes]]:
    """Subject, reply, header lines and payload of each publish, as a server reads them."""
    found = []
    while sent:
        line, _, rest = sent.partition(b"\r\n")
        verb, *words = line.split(b" ")
        if verb == b"PUB":
            subject, reply, size = words
            header, total = None, int(size)
        else:
            assert verb == b"HPUB"
            size = words[-2]
            subject, reply, total = words[0], words[1] if len(words) == 4 else b"", int(words[-1])
            block = rest[: int(size)]
            assert block.startswith(b"NATS/1.0\r\n")
            assert block.endswith(b"\r\n\r\n")
            header = block[10:-2].split(b"\r\n")[:-1]
        found.append((subject, reply, header, rest[int(size) if header is not None else 0 : total]))
        assert rest[total : total + 2] == b"\r\n"
        sent = rest[total + 2 :]
    return found


@settings(deadline=None, max_examples=80)
@given(messages=MESSAGES, skipped=st.integers(0, 3))
def test_publishes_are_the_rows(messages: list[Any], skipped: int) -> None:
    batch = pa.record_batch(
        {
            "subject": pa.array([one[0] for one in messages]),
            "data": pa.array([one[1] for one in messages], pa.binary()),
            "headers": pa.array(
                [None if one[2] is None else list(one[2].items()) for one in messages],
                pa.map_(pa.string(), pa.list_(pa.string())),
            ),
            "msg_id": pa.array([one[3] for one in messages], pa.string()),
        }
    ).slice(skipped)
    rows = rows_of(batch, full(headers=LISTS, msg_id=StringType()), payload_bytes_max=1 << 20)
    expected = []
    for subject, data, headers, msg_id in messages[skipped:]:
        lines = [f"{name}: {value}" for name, values in (headers or {}).items() for value in values or ()]
        lines += [f"Nats-Msg-Id: {msg_id}"] if msg_id else []
        expected.append((subject.encode(), [line.encode() for line in lines], data))
    sent = parse(bytes(windowed(rows, b"in.1")))
    assert sent == [(one[0], b"in.1", one[1] or None, one[2]) for one in expected]
    if expected:
        numbered = parse(bytes(batched(rows, b"ID", b"in.2")))
        for number, (found, wanted) in enumerate(zip(numbered, expected, strict=True), 1):
            batch_lines = [b"Nats-Batch-Id: ID", b"Nats-Batch-Sequence: %d" % number]
            assert found == (wanted[0], b"in.2" if number == 1 else b"", batch_lines + wanted[1], wanted[2])


def test_the_last_message_of_a_batch_commits_it() -> None:
    sent = committing(b"f", b"in.3", batch_id=b"ID", number=4, lines=b"A: b\r\n", payload=b"{}")
    lines = [b"Nats-Batch-Id: ID", b"Nats-Batch-Sequence: 4", b"Nats-Batch-Commit: 1", b"A: b"]
    assert parse(sent) == [(b"f", b"in.3", lines, b"{}")]


def test_a_constant_subject_and_text_need_no_other_column() -> None:
    batch = pa.record_batch({"data": pa.array(["é", ""])})
    rows = rows_of(batch, layout({"data": StringType()}, subject="S.x"), payload_bytes_max=1 << 20)
    assert rows.keys() == [(b"S.x", b"", "é".encode()), (b"S.x", b"", b"")]


def test_headers_of_another_publish_are_left_out() -> None:
    headers = [[("Nats-Batch-Id", "x"), ("a", "1"), ("nats-expected-stream", "T")], None, [("Nats-Msg-Id", "7")]]
    batch = pa.record_batch(
        {"subject": ["S.a"] * 3, "data": [b""] * 3, "headers": pa.array(headers, pa.map_(pa.string(), pa.string()))}
    )
    for exactly_once, last in ((False, b"Nats-Msg-Id: 7\r\n"), (True, b"")):
        found = rows_of(batch, full(headers=PLAIN, exactly_once=exactly_once), payload_bytes_max=1 << 20)
        assert found.lines.to_pylist() == [b"a: 1\r\n", b"", last]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"subject": ["S.a", None], "data": [b"", b""]}, "column 'subject' has a null"),
        ({"subject": ["S.a", "S.b"], "data": [b"", None]}, "column 'data' has a null"),
        (
            {"subject": ["S.a", "U.b"], "data": [b"", b""]},
            r"column 'subject': 'U.b' is not a subject that stream 'S' keeps",
        ),
        ({"subject": ["S.a b"], "data": [b""]}, "column 'subject'"),
        ({"subject": ["S.a\r\nPUB S.x 0"], "data": [b""]}, "column 'subject'"),
        ({"subject": ["S.a\n"], "data": [b""]}, "column 'subject'"),
        ({"subject": ["S..a"], "data": [b""]}, "column 'subject'"),
        ({"subject": ["S.*"], "data": [b""]}, "column 'subject'"),
        ({"subject": ["T.a.y"], "data": [b""]}, "column 'subject'"),
        ({"subject": ["S." + "a" * 2000], "data": [b""]}, "2002 bytes"),
        ({"subject": ["S.a"], "data": [b"x" * 1000]}, "max_payload is 1000"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_refused_by_its_column(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        rows_of(pa.record_batch(columns), full(), payload_bytes_max=1000)


@pytest.mark.parametrize("entry", [("a", "x\r\nb: y"), ("a b", ""), ("a:", ""), ("", "x"), ("a", None), ("a\n", "x")])
def test_a_header_that_would_be_another_line_is_refused(entry: tuple[str, str | None]) -> None:
    headers = pa.array([[entry]], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch({"subject": ["S.a"], "data": [b""], "headers": headers})
    with pytest.raises(RowError, match="column 'headers'"):
        rows_of(batch, full(headers=PLAIN), payload_bytes_max=1 << 20)


@pytest.mark.parametrize(
    ("columns", "subject", "message"),
    [
        ({"subject": StringType()}, None, "column 'data' is missing"),
        ({"data": BinaryType()}, None, "the subject is missing"),
        ({"subject": StringType(), "data": BinaryType()}, "S.x", "leave one of them out"),
        ({"subject": LongType(), "data": BinaryType()}, None, "column 'subject' is bigint, expected STRING"),
        ({"data": LongType()}, "S.x", "column 'data' is bigint, expected STRING or BINARY"),
        ({"data": BinaryType(), "headers": StringType()}, "S.x", "column 'headers' is string, expected MAP"),
        ({"data": BinaryType(), "headers": MapType(StringType(), LongType())}, "S.x", "column 'headers' is map"),
        ({"data": BinaryType(), "msg_id": LongType()}, "S.x", "column 'msg_id' is bigint"),
        ({"data": BinaryType(), "time": LongType(), "stream_seq": LongType()}, "S.x", "columns 'time', 'stream_seq'"),
    ],
)
def test_a_wrong_column_is_an_error_of_planning(
    columns: dict[str, DataType], subject: str | None, message: str
) -> None:
    with pytest.raises(BadOptionError, match=message):
        layout(columns, subject=subject)


def test_message_ids_are_for_at_least_once() -> None:
    with pytest.raises(BadOptionError, match="column 'msg_id' is for delivery=at-least-once"):
        full(msg_id=StringType(), exactly_once=True)


@settings(deadline=None, max_examples=80)
@given(
    sizes=st.lists(st.integers(0, 40), max_size=30),
    breaks=st.lists(st.integers(0, 30), max_size=5),
    rows_max=st.integers(1, 7),
    bytes_max=st.integers(1, 400),
)
def test_pieces_depend_on_the_rows_only(sizes: list[int], breaks: list[int], rows_max: int, bytes_max: int) -> None:
    payloads = pa.array([b"%d" % number * size for number, size in enumerate(sizes)], pa.binary())
    rows = Rows(pa.array([b"s"] * len(sizes), pa.binary()), pa.array([b""] * len(sizes), pa.binary()), payloads)
    bounds = sorted({0, len(sizes), *(place for place in breaks if place <= len(sizes))})
    parts = [rows.slice(low, high - low) for low, high in itertools.pairwise(bounds)]
    whole = list(cut([rows], rows_max=rows_max, bytes_max=bytes_max))
    split = list(cut(parts, rows_max=rows_max, bytes_max=bytes_max))
    assert [piece.keys() for piece in split] == [piece.keys() for piece in whole]
    assert digest_of(*split) == digest_of(*whole) == digest_of(*parts)
    assert not whole or joined(whole).keys() == rows.keys()
    for piece in whole:
        assert 0 < len(piece) <= rows_max
        assert len(piece) == 1 or sum(piece.sizes().to_pylist()) <= bytes_max


def test_a_filter_covers_what_it_matches() -> None:
    cases = {
        ("a.>", "a.b.*"): True,
        ("a.>", "a"): False,
        (">", "a.>"): True,
        ("a.*", "a.b"): True,
        ("a.*", "a.b.c"): False,
        ("a.*", "a.>"): False,
        ("a.*.c", "a.*.c"): True,
        ("a.b.c", "a.*.c"): False,
    }
    assert {case: covers(*case) for case in cases} == cases


def test_the_digest_tells_rows_apart() -> None:
    def of(*keys: tuple[bytes, bytes, bytes]) -> str:
        return digest_of(rows_of_keys(list(keys)))

    texts = (b"", b"a", b"ab", b"b")
    keys = [(one, two, three) for one in texts for two in texts for three in texts]
    assert len({of(key) for key in keys}) == len(keys)
    assert len({of(key, keys[0]) for key in keys} | {of(keys[0], key) for key in keys[1:]}) == 2 * len(keys) - 1


def digest_of(*pieces: Rows) -> str:
    digest = Digest()
    for piece in pieces:
        digest = digest.after(piece)
    return digest.text()
