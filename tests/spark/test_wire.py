import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream import wire
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.wire import Rows
from tests.spark.fake_replica import message, status

Row = tuple[int, bytes, bytes, bytes, bytes]

# Own headers may have the names of the server's (a republished message) and odd values.
header_names = st.sampled_from([b"A", b"Nats-Stream", b"Nats-Subject", b"Nats-Sequence", b"Nats-Num-Pending", b"X-Y"])
header_values = st.sampled_from([b"1", b"", b"x: y", b"\xff", b"Nats-Stream: T"])
header_blocks = st.lists(st.tuples(header_names, header_values), max_size=7).map(
    lambda pairs: b"".join(b"%b: %b\r\n" % pair for pair in pairs)
)
rows_strategy = st.lists(
    st.tuples(
        st.integers(1, 2**63 - 1),
        st.sampled_from([b"2026-11-20T20:25:47.871074103Z", b"2026-11-20T20:25:47Z"]),
        st.sampled_from([b"s", b"a.b.c", b"\xc3\xa9"]),
        header_blocks,
        st.one_of(st.binary(max_size=40), st.just(b"HMSG a 1 2 3\r\n"), st.just(b"\r\n\r\n")),
    ),
    max_size=6,
)


def parse_all(data: bytes, cuts: list[int]) -> tuple[Rows, list[wire.Frame]]:
    """What a connection does, with the bytes arriving in pieces."""
    rows, others, start, end = Rows(), [], 0, 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        end = max(end, cut)
        seen = data[:end]
        while True:
            start = wire.scan_messages(seen, start, rows)
            frame, position = wire.next_frame(seen, start)
            if frame is None:
                break
            start = position
            if frame.verb == b"MSG" and wire.status_of(frame.header) is None:
                wire.append_message(frame, rows)
            else:
                others.append(frame)
    assert start == len(data)
    return rows, others


@given(rows_strategy, st.lists(st.integers(0, 3000), max_size=5), st.booleans())
def test_rows_come_out_as_they_went_in_however_the_bytes_arrive(sent: list[Row], cuts: list[int], ping: bool) -> None:  # noqa: FBT001
    frames = [message(b"_INBOX.a.1", "T", row, len(sent) - 1 - position) for position, row in enumerate(sent)]
    if ping:
        frames.insert(len(frames) // 2, b"PING\r\n")
    rows, others = parse_all(b"".join(frames) + status(b"_INBOX.a.1", b"204 EOB", b"Nats-Num-Pending: 0\r\n"), cuts)
    assert list(zip(*rows.columns(), strict=True)) == sent
    assert rows.num_pending == 0
    assert [frame.verb for frame in others] == ([b"PING"] if ping else []) + [b"MSG"]


def test_the_quick_way_takes_all_plain_messages() -> None:
    row = (7, b"2026-11-20T20:25:47Z", b"s", b"A: b\r\n", b"data")
    data = message(b"r", "T", row, 4) * 3
    rows = Rows()
    assert wire.scan_messages(data, 0, rows) == len(data)
    assert list(zip(*rows.columns(), strict=True)) == [row] * 3
    assert rows.num_pending == 4


def test_the_quick_way_leaves_a_frame_whose_sizes_it_does_not_understand() -> None:
    data = message(b"r", "T", (7, b"2026-11-20T20:25:47Z", b"s", b"", b"12345678"), 0)
    sizes = data.split(b"\r\n")[0].split()[-2]
    other = data.replace(b" " + sizes + b" ", b" %d " % (int(sizes) + 4), 1)
    assert wire.scan_messages(other, 0, Rows()) == 0


def test_messages_with_headers_in_another_order_are_understood() -> None:
    block = (
        b"NATS/1.0\r\nNats-Sequence: 1\r\nown: x\r\nNats-Time-Stamp: t\r\nJetraft-Last-Seq: 9\r\n"
        b"Nats-Sequence: 5\r\nNats-Subject: s\r\n\r\n"
    )
    rows = Rows()
    wire.append_message(wire.Frame(verb=b"MSG", header=block, payload=b"p"), rows)
    assert list(zip(*rows.columns(), strict=True)) == [(5, b"t", b"s", b"Nats-Sequence: 1\r\nown: x\r\n", b"p")]


def test_a_message_without_its_sequence_is_an_error() -> None:
    with pytest.raises(ServerError, match="lacks"):
        wire.append_message(wire.Frame(verb=b"MSG", header=b"NATS/1.0\r\nNats-Subject: s\r\n\r\n"), Rows())


@pytest.mark.parametrize(
    ("block", "code", "description"),
    [
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 3\r\n\r\n", 204, "EOB"),
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", 404, "Message Not Found"),
        (b"NATS/1.0 503\r\n\r\n", 503, ""),
    ],
)
def test_a_status_has_a_code_and_a_text(block: bytes, code: int, description: str) -> None:
    found = wire.status_of(block)
    assert found is not None
    assert (found.code, found.description) == (code, description)


def test_numbers_in_status_headers_are_read_and_nonsense_is_none() -> None:
    found = wire.status_of(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 3\r\nJetraft-Last-Seq: x\r\n\r\n")
    assert found is not None
    assert found.number(b"Nats-Num-Pending") == 3
    assert found.number(b"Jetraft-Last-Seq") is None
    assert found.number(b"Missing") is None


def test_a_message_is_no_status() -> None:
    assert wire.status_of(b"NATS/1.0\r\nA: b\r\n\r\n") is None
    assert wire.status_of(b"") is None


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n", b"x" * (wire.LINE_BYTES_MAX + 1)])
def test_what_is_not_nats_is_refused(data: bytes) -> None:
    with pytest.raises(ServerError, match="is this a NATS client port"):
        wire.next_frame(data, 0)
