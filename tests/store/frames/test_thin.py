"""Frames without the content of what is gone, against a simple model of the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.frames import _frame
from jetraft.store.frames._thin import expand, thin
from jetraft.store.frames.format import FRAME_HEADER_BYTES, FRAME_THIN, Kind

Message = tuple[bytes, bytes, bytes, bool]
MESSAGES = st.lists(
    st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=20), st.binary(max_size=300), st.booleans()),
    min_size=1,
    max_size=20,
)


def sealed(messages: list[Message]) -> bytes:
    records = [
        _frame.make_record(subject, hdr, payload, ts_ns=100 + number)
        for number, (subject, hdr, payload, _) in enumerate(messages)
    ]
    return _frame.seal(Kind.MESSAGES, index=5, term=2, incarnation=7, body=records, first_seq=50, count=len(records))


def places(frame: bytes, count: int) -> list[int]:
    at, found = FRAME_HEADER_BYTES, []
    for _ in range(count):
        found.append(at)
        at += int.from_bytes(frame[at : at + 4], "little")
    assert at == len(frame)
    return found


@given(messages=MESSAGES)
def test_what_lives_is_at_its_place_and_what_is_gone_is_not_there(messages: list[Message]) -> None:
    frame = sealed(messages)
    live = bytes(is_live for *_, is_live in messages)
    small = thin(frame, live)
    if small is None:
        assert len(b"".join(payload for *_, payload, is_live in messages if not is_live)) < len(frame)
        return
    assert len(small) < len(frame)
    assert _frame.verify(small)
    header = _frame.parse_header(small)
    assert (header.flags, header.log_index, header.term, header.record_count) == (FRAME_THIN, 5, 2, len(messages))

    again = expand(small)

    assert _frame.verify(again)
    assert _frame.parse_header(again)._replace(crc=0) == _frame.parse_header(frame)._replace(crc=0)
    found = _frame.records(again)
    for place, one, other, is_live in zip(
        places(frame, len(messages)), found, _frame.records(frame), live, strict=True
    ):
        if is_live:
            assert one == other
            assert _frame.record_at(again, place)[2:] == other[2:]
        else:
            assert one[1:4] == (100, b".", b"")
            assert not any(one[4])
    assert thin(again, live) == small


def test_messages_that_are_gone_cost_a_piece_together() -> None:
    frame = sealed([(b"s", b"", b"x" * 1000, False)] * 500 + [(b"s", b"", b"live", True)])
    small = thin(frame, bytes(500) + b"\1")
    assert small is not None
    assert len(small) < 120


def test_a_frame_of_which_nothing_is_gone_stays() -> None:
    assert thin(sealed([(b"s", b"", b"x", True)] * 3), b"\1\1\1") is None


@given(messages=MESSAGES, cut=st.integers(0, 200), flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255))))
def test_garbage_is_refused_or_expanded_within_its_bounds(
    messages: list[Message], cut: int, flips: list[tuple[int, int]]
) -> None:
    small = thin(sealed(messages), bytes(len(messages)))
    if small is None:
        return
    damaged = bytearray(small[: len(small) - cut])
    for at, mask in flips:
        if FRAME_HEADER_BYTES <= at < len(damaged):
            damaged[at] ^= mask
    try:
        again = expand(bytes(damaged))
    except ValueError:
        return
    assert _frame.verify(again)


@pytest.mark.parametrize("live", [b"", b"\1\1"])
def test_as_many_verdicts_as_records_are_needed(live: bytes) -> None:
    with pytest.raises(ValueError, match="expected 1 flags"):
        thin(sealed([(b"s", b"", b"x", True)]), live)
