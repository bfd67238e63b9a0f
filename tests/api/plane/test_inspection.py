"""What the plane tells of connections, subscriptions and its cache, for monitoring."""

import pytest

from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import ConnectOptions

QUIET = ConnectOptions(verbose=False, pedantic=False, account="A")


@pytest.fixture
def plane() -> Plane:
    """A plane whose clients are all in account A."""
    return Plane(
        max_payload=1 << 20,
        max_control_line=4096,
        max_pending=1 << 26,
        max_subscriptions=0,
        connect_handler=lambda _cid, _text: QUIET,
        first_ping_handler=lambda _cid: b"",
        violation_handler=lambda *_: b"",
    )


def client(plane: Plane, lines: bytes = b"") -> int:
    """A client that has sent CONNECT and these lines."""
    cid = plane.open(-1, b"")
    plane.feed(cid, b"CONNECT {}\r\n" + lines)
    return cid


def test_a_row_has_queue_sid_and_the_messages_that_were_delivered(plane: Plane) -> None:
    cid = client(plane, b"SUB a.b workers 7\r\nSUB c 8\r\nUNSUB 8 5\r\nPUB c 1\r\nx\r\nPUB c 1\r\nx\r\n")
    buckets, following, rows = plane.subscriptions_from(cid, 0, 100)
    assert buckets == following
    assert sorted(rows) == [
        (b"A", b"a.b", b"workers", b"7", 0, 0, cid),
        (b"A", b"c", b"", b"8", 2, 5, cid),
    ]


def test_rows_of_a_connection_come_in_parts(plane: Plane) -> None:
    cid = client(plane, b"".join(b"SUB s.%d %d\r\n" % (sid, sid) for sid in range(100)))
    found, place, parts = [], 0, 0
    while True:
        buckets, place, rows = plane.subscriptions_from(cid, place, 10)
        found += rows
        parts += 1
        if place == buckets:
            break
    assert sorted(row[1] for row in found) == sorted(b"s.%d" % sid for sid in range(100))
    assert parts > 5
    assert plane.subscriptions_from(cid + 1, 0, 10) == (0, 0, [])


def test_rows_are_counted_and_cut_into_pages(plane: Plane) -> None:
    account = plane.account("A")
    for number in range(5):
        client(plane, b"".join(b"SUB s%d.%d %d\r\n" % (number, sid, sid) for sid in range(3)))
    plane.add_sink(account, b"sunk", lambda _: None)
    plane.add_sink(plane.account("B"), b"other", lambda _: None)
    whole = plane.subscription_rows(0, 100)
    assert (whole[0], len(whole[1])) == (17, 17)
    paged = [row for offset in range(0, 20, 4) for row in plane.subscription_rows(offset, 4)[1]]
    assert paged == whole[1]
    assert plane.subscription_rows(0, 100, account=account)[0] == 16
    assert plane.subscription_rows(100, 4) == (17, [])


def test_the_receivers_of_a_subject_are_shown(plane: Plane) -> None:
    client(plane, b"SUB a.* 1\r\nSUB a.b q 2\r\nSUB b 3\r\nSUB a.b r 4\r\n")
    client(plane, b"SUB a.b q 1\r\n")
    count, rows = plane.receivers(plane.account("A"), b"a.b", 0, 10)
    assert (count, sorted(row[2] for row in rows)) == (4, [b"", b"q", b"q", b"r"])
    assert plane.receivers(plane.account("A"), b"a.b", 3, 10)[0] == 4
    assert plane.receivers(plane.account("B"), b"a.b", 0, 10) == (0, [])


def test_the_cache_counts_answers_and_receivers_of_an_account(plane: Plane) -> None:
    cid = client(plane, b"SUB a.* 1\r\nSUB a.b q 2\r\nSUB a.b q 3\r\n")
    plane.feed(cid, b"PUB a.b 0\r\n\r\nPUB a.c 0\r\n\r\nPUB z 0\r\n\r\n")
    account = plane.account("A")
    assert plane.cached_answers(account) == plane.cached_answers() == (3, 3, 2)  # a queue group counts once
    assert plane.cached_answers(plane.account("B")) == (0, 0, 0)
    assert account.statistics()["inserts"] == 3


def test_a_round_trip_is_measured_by_connect_and_then_by_pings(plane: Plane) -> None:
    cid = plane.open(-1, b"")
    assert plane.connection(cid)["rtt_ns"] == 0  # type: ignore[index]  # it is there
    plane.feed(cid, b"CONNECT {}\r\n")
    first = plane.connection(cid)["rtt_ns"]  # type: ignore[index]
    assert first > 0
    plane.feed(cid, b"PONG\r\n")  # nobody has asked
    assert plane.connection(cid)["rtt_ns"] == first  # type: ignore[index]
    plane.housekeeping(1, 2, 1 << 60)
    plane.turn(0)
    plane.feed(cid, b"PONG\r\n")
    assert plane.connection(cid)["rtt_ns"] != first  # type: ignore[index]


def test_a_closed_connection_is_remembered_with_some_of_its_subscriptions(plane: Plane) -> None:
    cid = client(plane, b"".join(b"SUB s.%d %d\r\n" % (sid, sid) for sid in range(100)))
    plane.close(cid, Reason.KICKED)
    [(closed, reason, counters)] = plane.flush()
    assert (closed, reason) == (cid, Reason.KICKED)
    assert counters is not None
    assert (counters["subscriptions"], len(counters["subjects"])) == (100, 32)
