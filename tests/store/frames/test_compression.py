"""Packed frames: what comes back, what is refused, and what an erased one may cost."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.blocks.builder import expanded_length
from jetraft.store.frames import _frame
from jetraft.store.frames._thin import thin
from jetraft.store.frames.format import FRAME_HEADER_BYTES, FRAME_PACKED, FRAME_THIN, Kind
from jetraft.store.log.erasure import erased

pytest.importorskip("cramjam", reason="compression needs the package cramjam")

from jetraft.store.frames.compression import pack, pack_like, unpack

TEXTS = st.lists(st.sampled_from([b"order ", b'{"customer": 17}', b"open "]) | st.binary(max_size=30), max_size=60)


def sealed(payloads: list[bytes]) -> bytes:
    records = [_frame.make_record(b"orders.eu", b"", payload, ts_ns=5) for payload in payloads]
    return _frame.seal(Kind.MESSAGES, index=5, term=2, incarnation=7, body=records, first_seq=50, count=len(records))


@given(payloads=st.lists(TEXTS.map(b"".join), min_size=1, max_size=12), gone=st.booleans())
def test_what_is_packed_comes_back_byte_by_byte(payloads: list[bytes], *, gone: bool) -> None:
    frame = sealed(payloads)
    inside = (thin(frame, bytes(len(payloads) - 1) + b"\1") if gone else None) or frame
    packed = pack(inside)
    if packed is None:
        return
    assert len(packed) < len(inside)
    assert _frame.verify(packed)
    header = _frame.parse_header(packed)
    assert (header.log_index, header.term, header.record_count) == (5, 2, len(payloads))
    assert header.flags == FRAME_PACKED | (FRAME_THIN if inside is not frame else 0)
    assert expanded_length(packed) == len(frame)
    assert unpack(packed) == inside


def test_what_cannot_be_compressed_stays_as_it_is() -> None:
    assert pack(sealed([os.urandom(5000)])) is None


@pytest.mark.parametrize("erased_first", [True, False])
def test_an_erased_frame_fits_in_the_place_of_the_other(erased_first: bool) -> None:  # noqa: FBT001  (a parameter)
    text = b"the same text in every message, so that one of them is the source of all others. " * 3
    frame = sealed([text + b"%d" % number for number in range(200)])
    packed = pack(frame)
    assert packed is not None
    place = FRAME_HEADER_BYTES if erased_first else FRAME_HEADER_BYTES + 50 * (20 + 9 + len(text) + 1)
    changed = frame
    at, count = FRAME_HEADER_BYTES, 0
    while at < len(frame) and count < 100:
        if at >= place:
            changed = erased(changed, at)
            count += 1
            again = pack_like(packed, changed)
            assert again is not None
            assert len(again) == len(packed)
            assert unpack(again) == changed
        at += int.from_bytes(frame[at : at + 4], "little")


@given(flips=st.lists(st.tuples(st.integers(FRAME_HEADER_BYTES, 5000), st.integers(1, 255)), min_size=1, max_size=3))
def test_damage_is_never_taken_for_a_frame(flips: list[tuple[int, int]]) -> None:
    frame = sealed([b"some text " * 50] * 20)
    packed = pack(frame)
    assert packed is not None
    damaged = bytearray(packed)
    for at, mask in flips:
        damaged[FRAME_HEADER_BYTES + at % (len(packed) - FRAME_HEADER_BYTES)] ^= mask
    with suppress(ValueError):
        assert unpack(bytes(damaged)) == frame


def test_a_length_that_was_changed_costs_no_more_than_a_frame() -> None:
    packed = bytearray(pack(sealed([b"some text " * 500])) or b"")
    packed[FRAME_HEADER_BYTES + 4 : FRAME_HEADER_BYTES + 8] = (0xFFFFFFFF).to_bytes(4, "little")
    with pytest.raises(ValueError, match="do not fit"):
        unpack(bytes(packed))
