"""Messages of answers in columns: a sound one is read, a malformed one is refused and harms nobody."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream.columns import HEAD, parse_columns
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.rows import ARROW_SCHEMA


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def texts(*values: bytes) -> bytes:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return padded(struct.pack(f"<{len(ends)}i", *ends)) + padded(b"".join(values))


def offsets(*ends: int) -> bytes:
    return padded(struct.pack(f"<{len(ends)}i", *ends))


FACTS = (5, 9, 2, 11, 3, 77)  # looked at from 5 to 9, two pending, applied 11, the stream starts at 3, created 77
# Three messages: subjects a b a, headers on the first (A: x, A: yz, B: empty) and none on the others.
HEADERS = padded(b"\1") + offsets(0, 2, 2, 2) + texts(b"A", b"B") + offsets(0, 2, 3) + texts(b"x", b"yz", b"")
WHOLE = (
    HEAD.pack(b"JRCOLS1\n", 3, *FACTS, 15, 2, 2, 3, 2, 2, 3, 6, 0)
    + struct.pack("<3q", 5, 7, 8)
    + struct.pack("<3q", 1, 2, 3)
    + padded(b"\0\1\0")
    + texts(b"a", b"b")
    + HEADERS
    + texts(b"one", b"", b"two")
)


def test_a_sound_message_is_read() -> None:
    found = parse_columns(WHOLE)
    assert (found.from_seq, found.to_seq, found.num_pending, found.applied_seq) == (5, 9, 2, 11)
    assert (found.first_seq, found.created_ns) == (3, 77)
    assert found.batch.schema == ARROW_SCHEMA
    assert list(found.stream_seqs) == [5, 7, 8]
    assert found.is_ascending()
    rows = found.batch.to_pydict()
    assert rows["subject"] == ["a", "b", "a"]
    assert rows["headers"] == [[("A", ["x", "yz"]), ("B", [""])], None, None]
    assert rows["data"] == [b"one", b"", b"two"]
    assert found.batch.column("time").cast(pa.int64()).to_pylist() == [1, 2, 3]


def test_a_part_of_a_message_has_its_first_rows() -> None:
    part = parse_columns(WHOLE).first(2)
    assert (len(part), list(part.stream_seqs), part.to_seq) == (2, [5, 7], 9)


def test_the_arrays_are_the_message_and_no_copy() -> None:
    message = bytearray(WHOLE)
    found = parse_columns(memoryview(message))
    start = pa.py_buffer(message).address
    addresses = [
        buffer.address for name in ("stream_seq", "time", "data") for buffer in found.batch[name].buffers() if buffer
    ]
    assert all(start <= address < start + len(message) for address in addresses)


def put(at: int, form: str, value: int) -> bytes:
    forged = bytearray(WHOLE)
    struct.pack_into(form, forged, at, value)
    return bytes(forged)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        WHOLE[:100],
        WHOLE[:-8],
        WHOLE + bytes(8),
        b"NATS/1.0" + WHOLE[8:],
        put(8, "<q", 0),
        put(8, "<q", 4),
        put(8, "<q", -1),
        put(8, "<q", 1 << 40),
        put(68, "<I", 257),
        put(68, "<I", 1),
        put(88, "<q", 1 << 62),
        put(112, "<q", 7),
        put(120, "<q", 1),
        WHOLE.replace(padded(b"\0\1\0"), padded(b"\0\2\0")),
        WHOLE.replace(offsets(0, 3, 3, 6), offsets(0, 3, 2, 6)),
        WHOLE.replace(offsets(0, 3, 3, 6), offsets(0, -3, 3, 6)),
        WHOLE.replace(offsets(0, 3, 3, 6), offsets(0, 99, 3, 6)),
        WHOLE.replace(offsets(0, 3, 3, 6), offsets(1, 3, 3, 6)),
        WHOLE.replace(offsets(0, 2, 2, 2), offsets(0, 3, 2, 2)),
        WHOLE.replace(offsets(0, 2, 3), offsets(0, 1 << 30, 3)),
        WHOLE.replace(padded(b"ab"), padded(b"a\xff")),
        WHOLE.replace(padded(b"AB"), padded(b"\xffB")),
        WHOLE.replace(padded(b"xyz"), padded(b"x\xffz")),
    ],
)  # fmt: skip
def test_a_malformed_message_is_refused(message: bytes) -> None:
    assert message != WHOLE
    with pytest.raises(ServerError, match="an answer in columns is malformed"):
        parse_columns(message)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(WHOLE)))
def test_whatever_bytes_come_nothing_but_an_error_happens(changes: list[tuple[int, int]], size: int) -> None:
    forged = bytearray(WHOLE)
    for at, value in changes:
        forged[at] = value
    for message in (bytes(forged), bytes(forged[:size])):
        try:
            found = parse_columns(message)
        except ServerError:
            continue
        found.batch.validate(full=True)
        times = found.batch.column("time").cast(pa.int64())  # any number is one
        assert len(found.batch.set_column(1, "time", times).to_pylist()) == 3
        assert len(found.stream_seqs) == 3
