"""What the state machine reads of an entry of copies: how far each source was read, at the price of one header."""

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.state._entries import flagged_records
from jetraft.cluster.state.source_header import SourcePosition, position_in
from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import RECORD_HAS_TTL, RECORD_IS_SOURCED, Kind

VALUES: Final = (b"O %d > > s.a ID", b"O %d > > s.a", b"O %d a.* > s.a ID", b"P %d > > s.a", b"O %d > >", b"O %d", b"x")
COPIES = st.lists(
    st.tuples(st.sampled_from([*VALUES[:4], *VALUES]), st.sampled_from([0, 16, 16, 16, 16, RECORD_HAS_TTL | 16])),
    min_size=1,
    max_size=12,
)


def frame_of(copies: list[tuple[bytes, int]]) -> tuple[bytes, list[bytes]]:
    """A frame, and the headers of its copies."""
    records, headers = [], []
    for seq, (value, flags) in enumerate(copies, start=1):
        said = value % seq if b"%d" in value else value
        hdr = b"NATS/1.0\r\nA: b\r\nNats-Stream-Source: %s\r\n\r\n" % said
        records.append(make_record(b"a", hdr, b"x", ts_ns=seq, flags=flags))
        headers += [hdr] if flags & RECORD_IS_SOURCED else []
    body = b"".join(records)
    frame = seal(Kind.MESSAGES, index=1, term=1, incarnation=1, body=body, first_seq=1, count=len(records))
    return frame, headers


def positions(headers: list[bytes]) -> dict[bytes, SourcePosition]:
    return dict(found for hdr in headers if (found := position_in(hdr)) is not None)


@settings(max_examples=300, deadline=None)
@given(copies=COPIES)
def test_the_headers_that_are_read_tell_every_position(copies: list[tuple[bytes, int]]) -> None:
    frame, headers = frame_of(copies)
    read = [hdr for _, flags, _, _, hdr in flagged_records(frame) if flags & RECORD_IS_SOURCED]
    assert positions(read) == positions(headers)


@settings(max_examples=100, deadline=None)
@given(copies=COPIES)
def test_what_says_more_than_its_origin_is_never_left_out(copies: list[tuple[bytes, int]]) -> None:
    frame, _ = frame_of(copies)
    read = [index for index, flags, *_ in flagged_records(frame) if flags != RECORD_IS_SOURCED]
    assert read == [index for index, (_, flags) in enumerate(copies) if flags not in {0, RECORD_IS_SOURCED}]


def test_copies_of_one_source_in_a_row_are_one() -> None:
    frame, _ = frame_of([(VALUES[0], RECORD_IS_SOURCED)] * 50 + [(VALUES[3], RECORD_IS_SOURCED)] * 50)
    assert [index for index, *_ in flagged_records(frame)] == [49, 99]
