"""The capture record against a plain model of it, and what the plane writes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import capture_at, captures, encode_capture
from tests.api.plane.test_plane import make_plane

HEAD = struct.Struct("<IIIHHI")
PARTS = st.tuples(*(st.binary(max_size=40),) * 4, st.integers(0, 0xFFFFFFFF))
Parts = tuple[bytes, bytes, bytes, bytes, int]


def encoded(parts: Parts) -> bytes:
    """The record, by its description."""
    subject, reply, hdr, payload, origin = parts
    body = subject + reply + hdr + payload
    return HEAD.pack(HEAD.size + len(body), len(hdr), len(payload), len(subject), len(reply), origin) + body


@given(st.lists(PARTS, max_size=5))
def test_a_batch_is_taken_apart_as_it_was_put_together(messages: list[Parts]) -> None:
    records = [encode_capture(*parts) for parts in messages]
    assert records == [encoded(parts) for parts in messages]
    batch = b"".join(records)
    found = list(captures(batch))
    assert [(item.subject, item.reply, item.hdr, item.payload, item.origin) for item in found] == messages
    assert [item.record for item in found] == records
    assert [batch[item.start : item.end] for item in found] == records
    assert [item.payload_len for item in found] == [len(parts[3]) for parts in messages]


@given(PARTS, st.integers(0, 15), st.integers(0, 255))
@example((b"s", b"", b"", b"x", 0), 7, 255)  # a sum that does not fit into 32 bits
def test_lengths_that_do_not_add_up_are_never_followed(parts: Parts, place: int, value: int) -> None:
    record = bytearray(encode_capture(*parts))
    record[place] = value
    length, hdr_len, payload_len, subject_len, reply_len, _ = HEAD.unpack_from(record)
    if length == HEAD.size + hdr_len + payload_len + subject_len + reply_len and length <= len(record):
        assert capture_at(bytes(record), 0).end == length
        return
    with pytest.raises(AssertionError):
        capture_at(bytes(record), 0)


@given(PARTS, st.data())
def test_a_record_that_is_cut_short_is_never_followed(parts: Parts, data: st.DataObject) -> None:
    record = encode_capture(*parts)
    cut = data.draw(st.integers(1, len(record) - 1))
    with pytest.raises(AssertionError):
        list(captures(record[:cut]))
    with pytest.raises(AssertionError):
        capture_at(record, len(record))


@pytest.mark.parametrize(("subject", "reply"), [(1, 0), (0, 1)])
def test_a_name_that_a_record_cannot_hold_is_refused(subject: int, reply: int) -> None:
    whole = encode_capture(b"n" * (0xFFFF * subject), b"n" * (0xFFFF * reply))
    assert capture_at(whole, 0).end == HEAD.size + 0xFFFF
    with pytest.raises(ValueError, match="the limit is 65535"):
        encode_capture(b"n" * (0x10000 * subject), b"n" * (0x10000 * reply))


def test_what_the_plane_captures_is_the_record_that_encode_makes() -> None:
    plane = make_plane()
    batches: list[bytes] = []
    plane.add_sink(plane.account("$G"), b"orders.>", batches.append)
    assert plane.send(plane.account("$G"), b"orders.1", reply=b"r", hdr=b"NATS/1.0\r\n\r\n", payload=b"hi") == 1
    plane.send_batch(plane.account("$G"), encode_capture(b"orders.2", payload=b"yo"))
    plane.run_sinks()
    assert batches == [
        encode_capture(b"orders.1", b"r", b"NATS/1.0\r\n\r\n", b"hi") + encode_capture(b"orders.2", payload=b"yo")
    ]
    for malformed in (b"x" * 19, encode_capture(b"orders.3")[:-1]):
        with pytest.raises(ValueError, match="malformed capture record at byte 0"):
            plane.send_batch(plane.account("$G"), malformed)
