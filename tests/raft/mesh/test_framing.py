import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import (
    CHANNEL_CONTROL,
    CHANNEL_RAFT,
    CHANNELS,
    CONTROL_BYTES_MAX,
    FRAME_BYTES_MAX,
    READ_BYTES,
    FrameDecoder,
    frame_head,
)

frames = st.lists(st.tuples(st.integers(0, CHANNELS - 1), st.binary(max_size=50)), max_size=20)


def stream_of(sent: list[tuple[int, bytes]]) -> bytes:
    return b"".join(frame_head(channel, payload) + payload for channel, payload in sent)


def feed(reader: FrameDecoder, stream: bytes, into: list[tuple[int, bytes]] | None = None, step: int = 1 << 20) -> None:
    received = [] if into is None else into
    offset = 0
    while offset < len(stream):
        space = reader.space()
        count = min(step, len(space), len(stream) - offset)
        space[:count] = stream[offset : offset + count]
        offset += count
        reader.received(count, lambda channel, payload: received.append((channel, bytes(payload))))


def read_all(stream: bytes, step: int) -> list[tuple[int, bytes]]:
    received: list[tuple[int, bytes]] = []
    feed(FrameDecoder(), stream, received, step)
    return received


@given(frames, st.integers(1, 200))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[tuple[int, bytes]], step: int) -> None:
    assert read_all(stream_of(sent), step) == sent


@pytest.mark.parametrize("size", [READ_BYTES - 5, READ_BYTES - 4, READ_BYTES, 3 * READ_BYTES + 17])
def test_frames_larger_than_a_read_are_put_together(size: int) -> None:
    sent = [(1, b"a" * size), (2, b"b"), (3, b"c" * size)]
    assert read_all(stream_of(sent), 100_000) == sent


@pytest.mark.parametrize(
    ("length", "channel"),
    [
        (0, CHANNEL_RAFT),
        (4, CHANNEL_RAFT),
        (5, CHANNELS),
        (FRAME_BYTES_MAX + 1, CHANNEL_RAFT),
        (2**32 - 1, CHANNEL_RAFT),
        (CONTROL_BYTES_MAX + 1, CHANNEL_CONTROL),
    ],
)
@pytest.mark.parametrize("before", [0, READ_BYTES - 9 - 9, READ_BYTES - 9 - 5])
def test_impossible_heads_are_refused_before_memory_is_taken(length: int, channel: int, before: int) -> None:
    """Also when a head is cut by the end of the buffer, which then grows for the frame."""
    stream = (frame_head(1, b"x" * before) + b"x" * before if before else b"") + struct.pack("<IBI", length, channel, 0)
    reader = FrameDecoder()
    with pytest.raises(RemoteProtocolError):
        feed(reader, stream)
    assert len(reader._buffer) <= 2 * READ_BYTES


def test_a_buffer_that_has_grown_is_given_back() -> None:
    reader = FrameDecoder()
    feed(reader, stream_of([(1, b"a" * 5_000_000), (2, b"b")]))
    reader.space()
    assert len(reader._buffer) == READ_BYTES


@given(frames.filter(bool), st.data())
def test_no_frame_that_was_changed_comes_out(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """One flipped bit anywhere: what comes out before it is refused, or waited for, is what went in."""
    stream = bytearray(stream_of(sent))
    position = data.draw(st.integers(0, len(stream) - 1))
    stream[position] ^= 1 << data.draw(st.integers(0, 7))
    received: list[tuple[int, bytes]] = []
    with suppress(RemoteProtocolError):
        feed(FrameDecoder(), bytes(stream), received)
    assert len(received) < len(sent)
    assert received == sent[: len(received)]


@given(st.binary(max_size=500))
def test_garbage_raises_one_exception_only(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        feed(FrameDecoder(), data)
