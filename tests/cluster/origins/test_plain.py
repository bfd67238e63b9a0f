"""The compiled loop says of plain deliveries what `Deliveries` and `make_record` say, and leaves the others alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.origins._plain import take_plain
from jetraft.cluster.origins.deliveries import Arrived, Deliveries
from jetraft.store.frames._frame import make_record

MESSAGES = st.tuples(
    st.sampled_from([0, 0, 0, 0, 0, 1]),  # sequences of the origin that are passed over
    st.sampled_from([0, 0, 0, 0, 0, 1]),  # deliveries that are missing
    st.sampled_from(
        [b"", b"", b"NATS/1.0\r\nK: v\r\n\r\n", b"NATS/1.0\r\nNats-TTL: 5\r\n\r\n", b"NATS/1.0 100 H\r\n\r\n"]
    ),
    st.binary(max_size=5),
    st.sampled_from(
        [b"$JS.ACK.O.c.1.%d.%d.%d.%d", b"$JS.ACK.h.a.O.c.1.%d.%d.%d.%d", b"_INBOX.%d.%d.%d.%d", b"$JS.ACK.%d%d%d%d"]
    ),
)


def batch_of(rows: list[tuple[int, int, bytes, bytes, bytes]]) -> bytes:
    records, seq, number = [], 0, 0
    for skipped, missing, hdr, payload, shape in rows:
        seq, number = seq + 1 + skipped, number + 1 + missing
        reply = shape % (seq, number, 1000 + seq, 7)
        records.append(encode_capture(b"a.%d" % seq, reply, hdr, payload))
    return b"".join(records)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(MESSAGES, max_size=12))
def test_plain_deliveries_become_the_same_records(rows: list[tuple[int, int, bytes, bytes, bytes]]) -> None:
    batch = batch_of(rows)
    records, count, end, pending = take_plain(batch, 0, 0, 0, 1 << 20)
    deliveries, expected = Deliveries(last_seq=0), b""
    taken = [captured for captured in captures(batch) if captured.start < end]
    assert len(taken) == count
    for captured in taken:
        found = deliveries.take(captured)
        assert isinstance(found, Arrived)
        expected += make_record(found.subject, found.hdr, found.payload, ts_ns=found.ts_ns)
    assert records == expected
    assert not count or (deliveries.last_seq, deliveries.consumer_seq, deliveries.num_pending) == (
        count,
        count,
        pending,
    )


def test_a_run_ends_where_an_entry_is_full() -> None:
    batch = batch_of([(0, 0, b"", b"x", b"$JS.ACK.O.c.1.%d.%d.%d.%d")] * 10)
    records, count, end, _ = take_plain(batch, 0, 0, 0, 1)
    assert (count, len(records) > 1) == (1, True)
    assert take_plain(batch, end, 1, 1, 1 << 20)[1] == 9


def test_what_does_not_follow_is_left() -> None:
    plain = batch_of([(0, 0, b"", b"x", b"$JS.ACK.O.c.1.%d.%d.%d.%d")])
    assert take_plain(plain, 0, 0, 5, 1 << 20)[1] == 0
    assert take_plain(plain, 0, 3, 0, 1 << 20)[1] == 0
    assert take_plain(b"", 0, 0, 0, 1 << 20) == (b"", 0, 0, 0)


def test_a_time_beyond_what_is_counted_to_is_left_to_the_slow_path() -> None:
    batch = encode_capture(b"a", b"$JS.ACK.O.c.1.1.1.%d.0" % (1 << 62), payload=b"x")
    assert take_plain(batch, 0, 0, 0, 1 << 20)[1:3] == (0, 0)
