import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.framing import CHANNELS, FRAME_BYTES_MAX, READ_BYTES, FrameReader, frame_head
from jetraft.raft.wire import RemoteProtocolError

frames = st.lists(st.tuples(st.integers(0, CHANNELS - 1), st.binary(max_size=50)), max_size=20)


def stream_of(sent: list[tuple[int, bytes]]) -> bytes:
    return b"".join(frame_head(channel, len(payload)) + payload for channel, payload in sent)


def read_all(stream: bytes, step: int) -> list[tuple[int, bytes]]:
    reader, received, offset = FrameReader(), [], 0
    while offset < len(stream):
        space = reader.space()
        count = min(step, len(space), len(stream) - offset)
        space[:count] = stream[offset : offset + count]
        offset += count
        reader.received(count, lambda channel, payload: received.append((channel, bytes(payload))))
    return received


@given(frames, st.integers(1, 200))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[tuple[int, bytes]], step: int) -> None:
    assert read_all(stream_of(sent), step) == sent


@pytest.mark.parametrize("size", [READ_BYTES - 5, READ_BYTES - 4, READ_BYTES, 3 * READ_BYTES + 17])
def test_frames_larger_than_a_read_are_put_together(size: int) -> None:
    sent = [(1, b"a" * size), (2, b"b"), (3, b"c" * size)]
    assert read_all(stream_of(sent), 100_000) == sent


@pytest.mark.parametrize("head", [b"\0\0\0\0\1", b"\1\0\0\0\x7f", (FRAME_BYTES_MAX + 1).to_bytes(4, "little") + b"\1"])
def test_impossible_heads_are_refused_before_memory_is_taken(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_all(head, 100)
