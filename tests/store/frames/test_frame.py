"""Frames, records, marks and the scan, against plain Python and against damage."""

import struct
from random import Random

import crc32c as reference
import hypothesis.strategies as st
import pytest
from hypothesis import given

from jetraft.store.frames import _frame
from jetraft.store.frames.format import FRAME_HEADER_BYTES, RECORD_HAS_MSG_ID, Kind, Stop

MESSAGES = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=20), st.binary(max_size=40), st.binary(max_size=300), st.integers(0, 2**62)
    ),
    max_size=6,
)


def sealed(index: int, *, term: int = 1, body: bytes = b"body", kind: Kind = Kind.NOOP, incarnation: int = 7) -> bytes:
    return _frame.seal(kind, index=index, term=term, incarnation=incarnation, body=body)


@given(st.binary(max_size=500), st.integers(0, 2**32 - 1))
def test_crc32c_equals_the_reference(data: bytes, value: int) -> None:
    assert _frame.crc32c(data, value) == reference.crc32c(data, value)
    assert _frame.crc32c_by_table(data, value) == reference.crc32c(data, value)


LANES = (256, 2048)  # long data is summed in three of them at once: store/frames/_crc32c.h


@pytest.mark.parametrize(
    "size", sorted({3 * (n * LANES[0] + m * LANES[1]) + d for n in (0, 1, 2, 8) for m in (0, 1, 3) for d in (-1, 0, 9)})
)
def test_crc32c_of_long_data_equals_the_reference(size: int) -> None:
    data = Random(size).randbytes(max(0, size))
    for start, value in [(0, 0), (1, 0), (3, 0xFFFFFFFF), (7, 0x12345678)]:  # unaligned too
        piece = memoryview(data)[start:]
        assert _frame.crc32c(piece, value) == reference.crc32c(piece, value)
    zeros = bytes(len(data))
    assert _frame.crc32c(zeros) == reference.crc32c(zeros)


def test_header_is_laid_out_as_the_format_says() -> None:
    frame = _frame.seal(
        Kind.MESSAGES, index=5, term=6, incarnation=7, first_seq=8, count=9, flags=10, body=[b"ab", bytearray(b"cd")]
    )
    assert struct.unpack_from("<IIBBHIQQQQ", frame) == (52, reference.crc32c(frame[8:]), 1, 3, 10, 9, 7, 5, 6, 8)
    assert frame[48:] == b"abcd"
    assert tuple(_frame.parse_header(frame)) == struct.unpack_from("<IIBBHIQQQQ", frame)


@given(MESSAGES, st.integers(1, 2**60))
def test_records_come_back(messages: list[tuple[bytes, bytes, bytes, int]], first_seq: int) -> None:
    body = [_frame.make_record(s, h, p, ts_ns=ts, flags=RECORD_HAS_MSG_ID) for s, h, p, ts in messages]
    frame = _frame.seal(
        Kind.MESSAGES, index=1, term=1, incarnation=1, body=body, first_seq=first_seq, count=len(messages)
    )
    assert _frame.verify(frame)
    assert _frame.records(frame) == [(first_seq + i, ts, s, h, p) for i, (s, h, p, ts) in enumerate(messages)]
    offset = FRAME_HEADER_BYTES
    for record, (subject, hdr, payload, ts_ns) in zip(body, messages, strict=True):
        assert _frame.record_at(frame, offset) == (ts_ns, RECORD_HAS_MSG_ID, subject, hdr, payload)
        offset += len(record)


@given(st.data())
def test_any_flipped_bit_is_seen(data: st.DataObject) -> None:
    frame = bytearray(sealed(3, body=data.draw(st.binary(max_size=60))))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    assert not _frame.verify(frame)


@given(st.binary(max_size=200))
def test_garbage_never_passes_for_a_frame(garbage: bytes) -> None:
    assert not _frame.verify(garbage)
    with pytest.raises(ValueError, match="frame"):
        _frame.records(garbage)
    walk = _frame.scan(garbage, offset=0, incarnation=7, next_index=1, term=0)
    assert (len(walk.offsets), walk.next_index) == (0, 1)


@given(st.binary(max_size=100), st.integers(0, 3))
def test_record_lengths_are_bounded_by_the_frame(body: bytes, count: int) -> None:
    frame = _frame.seal(Kind.MESSAGES, index=1, term=1, incarnation=1, body=body, count=count)
    try:
        found = _frame.records(frame)
    except ValueError:
        return
    assert sum(20 + len(s) + len(h) + len(p) for _, _, s, h, p in found) == len(body)


def test_frame_and_subject_have_a_limit() -> None:
    with pytest.raises(ValueError, match="at most 268435456 bytes"):
        _frame.seal(1, index=1, term=1, incarnation=1, body=[bytes(1 << 27), bytes(1 << 27)])
    with pytest.raises(ValueError, match="longer than 65535"):
        _frame.make_record(bytes(65536), b"", b"", ts_ns=0)


def mark_after(pieces: bytes, next_index: int) -> bytes:
    return pieces + _frame.make_mark(incarnation=7, offset=len(pieces), next_index=next_index)


def walk(data: bytes, *, last_index: int = 1 << 62) -> _frame.Scan:
    return _frame.scan(data, offset=0, incarnation=7, next_index=1, term=0, last_index=last_index)


def test_scan_steps_over_marks_and_stops_at_zeros() -> None:
    data = mark_after(sealed(1), 2) + sealed(2, term=4)
    found = walk(data + bytes(100))
    assert list(found.offsets) == [0, len(data) - 52]
    assert found.terms == [(1, 1), (2, 4)]
    assert (found.next_index, found.end, found.stop) == (3, len(data), Stop.ZERO)


def test_scan_steps_over_a_damaged_mark() -> None:
    data = bytearray(mark_after(sealed(1), 2) + sealed(2))
    data[60] ^= 1
    found = walk(bytes(data))
    assert (found.next_index, found.damaged_marks, found.stop) == (3, 1, Stop.END)


@pytest.mark.parametrize(
    ("second", "stop"),
    [
        (sealed(3), Stop.ORDER),
        (sealed(1), Stop.ORDER),
        (sealed(2, term=1), Stop.ORDER),
        (sealed(2, term=2, incarnation=8), Stop.ORDER),
        (sealed(2, term=2)[:-1], Stop.DAMAGED),
        (b"\xff" * 100, Stop.DAMAGED),
        (bytes(4) + b"\1" * 60, Stop.DAMAGED),
        (bytes(7), Stop.ZERO),
    ],
)
def test_scan_stops_at_what_does_not_continue_the_log(second: bytes, stop: Stop) -> None:
    first = sealed(1, term=2)
    found = walk(first + second)
    assert (found.next_index, found.end, found.stop) == (2, len(first), stop)


def test_scan_leaves_alone_what_is_above_the_last_index() -> None:
    found = walk(sealed(1) + sealed(2) + sealed(3), last_index=2)
    assert (found.next_index, found.stop) == (3, Stop.END)


def test_mark_counts_only_at_its_own_place() -> None:
    frame = sealed(1)
    data = mark_after(frame, 2)
    assert _frame.find_mark(data, offset=0, incarnation=7) == len(frame)
    assert _frame.find_mark(data, offset=len(frame) + 1, incarnation=7) == -1
    assert _frame.find_mark(data, offset=0, incarnation=8) == -1
    assert _frame.find_mark(b"x" + data, offset=0, incarnation=7) == -1
