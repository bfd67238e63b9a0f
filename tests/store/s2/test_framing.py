"""S2: what was compressed comes back, what others compress is read, what is damaged is refused."""

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.s2._blocks import decode_block, encode_block
from jetraft.store.s2.framing import BLOCK_BYTES, Compressor, CorruptArchiveError, Decompressor

START = b"\xff\x06\x00\x00S2sTwO"
TEXTS = st.one_of(
    st.binary(max_size=2000),
    st.lists(st.sampled_from([b"orders.eu", b"{}", b"\x00\x00", b"abcdefgh"]), max_size=400).map(b"".join),
)


def compressed(data: bytes) -> bytes:
    compressor = Compressor()
    return compressor.add(data) + compressor.flush()


def decompressed(stream: bytes) -> bytes:
    decompressor = Decompressor()
    data = b"".join(decompressor.add(stream))
    decompressor.finish()
    return data


@given(TEXTS)
def test_a_block_comes_back(data: bytes) -> None:
    assert decode_block(encode_block(data), len(data)) == data


@given(st.lists(TEXTS, max_size=5), st.integers(min_value=1, max_value=50))
def test_a_stream_comes_back_whatever_the_pieces(parts: list[bytes], piece: int) -> None:
    compressor, decompressor = Compressor(), Decompressor()
    stream = b"".join(compressor.add(part) for part in parts) + compressor.flush()
    found = [block for at in range(0, len(stream), piece) for block in decompressor.add(stream[at : at + piece])]
    assert b"".join(found) == b"".join(parts)


def test_large_and_incompressible_data_come_back() -> None:
    for data in (bytes(1 << 20), os.urandom(3 * BLOCK_BYTES + 1), b"0123456789abcdef" * 20_000):
        assert decompressed(compressed(data)) == data


def test_repeated_data_shrinks_and_random_data_hardly_grows() -> None:
    assert len(compressed(b"hello world " * 10_000)) < 10_000
    assert len(compressed(os.urandom(200_000))) < 200_100


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        (b"\x0cabcd\x01\x04", b"abcdabcd"),  # a copy with one byte of offset
        (b"\x0cabcd\x01\x04\x01\x00", b"abcdabcdabcd"),  # and the same offset again
        (b"\x04ab\x02\x02\x00\x15\x00\x00", b"ab" + b"a" + b"ba" * 4),  # repeated, with a byte of length
        (b"\x00a\x02\x01\x00\x19\x00\x00\x00", b"a" * (2 + 260)),  # with two
        (b"\x00a\x02\x01\x00\x1d\x00\x00\x00\x00", b"a" * (2 + 65540)),  # with three
        (b"\x0cabcd\x0f\x04\x00\x00\x00", b"abcdabcd"),  # a copy with four bytes of offset
    ],
)
def test_what_only_s2_knows_is_read(elements: bytes, expected: bytes) -> None:
    size, head = len(expected), bytearray()
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    block = bytes(head) + bytes([size]) + elements
    assert decode_block(block, 1 << 20) == expected


@given(st.binary(max_size=200))
def test_any_bytes_are_a_block_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert len(decode_block(data, 5000)) <= 5000


def test_a_block_that_would_be_too_large_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(ValueError, match="a block of 268435455 bytes"):
        decode_block(b"\xff\xff\xff\x7f", 4 << 20)


@given(TEXTS.filter(bool), st.data())
def test_one_flipped_bit_is_noticed(data: bytes, draw: st.DataObject) -> None:
    stream = bytearray(compressed(data))
    place = draw.draw(st.integers(min_value=len(START) + 4, max_value=len(stream) - 1))
    stream[place] ^= 1 << draw.draw(st.integers(min_value=0, max_value=7))
    with pytest.raises(CorruptArchiveError):
        decompressed(bytes(stream))


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"x" * 100,
        START[:7],
        START + b"\x00\x08\x00",
        START + b"\x02\x04\x00\x00abcd",  # a kind that must not be skipped
        START + b"\x00\xff\xff\xff",  # a chunk larger than any
        b"\xff\x06\x00\x00S2sTw0",
        b"\x01\x05\x00\x00abcda",  # data before the identifier
    ],
)
def test_what_is_no_stream_is_refused(stream: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        decompressed(stream)


def test_what_may_be_skipped_is_skipped() -> None:
    stream = START + b"\xfe\x03\x00\x00abc" + compressed(b"data")[len(START) :] + b"\x99\x01\x00\x00i"
    assert decompressed(stream) == b"data"
