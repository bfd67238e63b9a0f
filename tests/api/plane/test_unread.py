"""What waits for all connections together is bounded, where memory has a limit, and the bound may change."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from tests.api.plane.test_plane import QUIET, client, make_plane
from tests.harness.patience import PATIENCE_S

MIB = 1 << 20


def test_beyond_what_may_wait_for_all_together_the_slowest_is_closed() -> None:
    plane = make_plane(max_pending=1 << 20)
    plane.limit_unread(100 << 10)
    slow = [client(plane) for _ in range(4)]
    quick, publisher = client(plane), client(plane)
    for count, cid in enumerate(slow, start=1):
        plane.feed(cid, b"SUB a 1\r\nSUB b.%d 2\r\n" % count)
    plane.feed(quick, b"SUB a 1\r\n")
    plane.feed(publisher, b"PUB b.3 5000\r\n" + b"x" * 5000 + b"\r\n")
    for _ in range(16):
        plane.feed(publisher, b"PUB a 2000\r\n" + b"x" * 2000 + b"\r\n")
        plane.take(quick)
    assert [(c, r) for c, r, _ in plane.flush()] == [(slow[2], Reason.SLOW_CONSUMER_PENDING)]
    assert plane.statistics()["slow_consumers"] == 1
    waiting = sum(len(plane.take(cid)) for cid in slow if cid != slow[2])
    assert waiting >= 3 * 16 * 2000, "nothing is missing at the others"
    for _ in range(40):
        plane.feed(publisher, b"PUB a 2000\r\n" + b"x" * 2000 + b"\r\n")
        for cid in (*slow, quick):
            plane.take(cid)
    assert not plane.flush(), "what was taken does not count"


def test_messages_of_which_only_a_part_has_come_wait_too() -> None:
    plane = make_plane()
    plane.limit_unread(1 << 20)
    publishers = [client(plane) for _ in range(8)]
    for count, cid in enumerate(publishers, start=1):
        plane.feed(cid, b"PUB a 200000\r\n" + b"x" * (140_000 + count))
    closed = {cid: reason for cid, reason, _ in plane.flush()}
    assert closed == dict.fromkeys(publishers[5:], Reason.SLOW_CONSUMER_PENDING), "down to three quarters"
    reader = client(plane)
    plane.feed(reader, b"SUB a 1\r\n")
    for count, cid in enumerate(publishers[:5], start=1):
        plane.feed(cid, b"x" * (60_000 - count) + b"\r\n")
        assert len(plane.take(reader)) > 200_000
    assert not plane.flush()


def test_who_is_sent_much_is_told_of_what_waits_for_others_when_there_is_little_room() -> None:
    plane = make_plane()
    plane.limit_unread(100 << 10)
    account = plane.account("$G")
    slow, other, publisher = client(plane), client(plane), client(plane)
    plane.feed(slow, b"SUB a 1\r\n")
    plane.feed(other, b"SUB b 1\r\n")
    plane.feed(publisher, b"PUB b 1\r\nx\r\nPUB a 30000\r\n" + b"x" * 30000 + b"\r\n")
    assert plane.waiting_bytes(account, b"b")[0] < 1000
    plane.feed(publisher, b"PUB a 30000\r\n" + b"x" * 30000 + b"\r\n")
    assert plane.waiting_bytes(account, b"b")[0] > 60000
    plane.take(other)
    assert plane.waiting_bytes(account, b"b")[0] == 0


def test_a_large_buffer_counts_as_a_whole_and_no_more_once_it_is_empty() -> None:
    plane = make_plane()
    plane.limit_unread(16 * MIB)
    reader, publisher = client(plane), client(plane)
    plane.feed(reader, b"SUB a 1\r\n")
    plane.feed(publisher, b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n")
    assert 1000 < plane.unread_bytes() < 1100
    plane.feed(publisher, b"PUB a 550000\r\n" + b"x" * 550_000 + b"\r\n")
    assert plane.unread_bytes() == MIB, "the next power of two"
    plane.take(reader)
    assert plane.unread_bytes() == 0


def test_a_bound_that_is_lowered_closes_the_slowest_at_once() -> None:
    plane = make_plane()
    plane.limit_unread(16 * MIB)
    slow = [client(plane) for _ in range(4)]
    publisher = client(plane)
    for count, cid in enumerate(slow, start=1):
        plane.feed(cid, b"SUB a.%d 1\r\n" % count)
        plane.feed(publisher, b"PUB a.%d %d\r\n%b\r\n" % (count, 120_000 * count, b"x" * 120_000 * count))
    before = plane.unread_bytes()
    plane.limit_unread(before)
    assert not plane.flush()
    plane.limit_unread(before - 1)
    assert [cid for cid, _, _ in plane.flush()] == slow[3:]
    plane.limit_unread(before // 8)
    assert {cid for cid, _, _ in plane.flush()} == set(slow[1:3])
    assert 0 < plane.unread_bytes() < before // 8


def test_a_publisher_is_not_closed_for_what_waits_for_readers() -> None:
    plane = make_plane()
    plane.limit_unread(200 << 10)
    publisher, other = client(plane), client(plane)
    slow = [client(plane) for _ in range(8)]
    for cid in slow:
        plane.feed(cid, b"SUB a 1\r\n")
    plane.feed(publisher, b"PUB a 90000\r\n" + b"x" * 60_000)
    for _ in range(20):
        plane.feed(other, b"PUB a 2000\r\n" + b"x" * 2000 + b"\r\n")
    closed = {cid for cid, _, _ in plane.flush()}
    assert closed
    assert closed < set(slow), "though the publisher has more waiting than each of them"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as made:
        yield made


def connect(plane: Plane, listener: socket.socket) -> tuple[socket.socket, int]:
    """A connection over TCP: the client's end, and its id."""
    theirs = socket.create_connection(listener.getsockname(), PATIENCE_S)
    ours, _ = listener.accept()
    ours.settimeout(0)
    return theirs, plane.open(ours.detach(), b"")


def read_to_end(sock: socket.socket) -> None:
    """Read until the other end closes."""
    while sock.recv(1 << 16):
        pass


def test_who_is_closed_for_what_waits_leaves_nothing_in_the_kernel(listener: socket.socket) -> None:
    plane = make_plane()
    plane.limit_unread(4 * MIB)
    publisher = client(plane)
    slow, cid = connect(plane, listener)
    with closing(slow):
        slow.sendall(b"CONNECT " + QUIET + b"\r\nSUB a 1\r\n")
        while not plane.has_interest(plane.account("$G"), b"a"):
            plane.turn(10_000_000)
        closed: list[tuple[int, int]] = []
        while not closed:
            plane.feed(publisher, b"PUB a 1000000\r\n" + b"x" * 1_000_000 + b"\r\n")
            closed = [(one, reason) for one, reason, _ in plane.flush()]
        assert closed == [(cid, Reason.SLOW_CONSUMER_PENDING)]
        slow.settimeout(PATIENCE_S)
        with pytest.raises(ConnectionResetError):  # or it would read on for as long as the kernel has something
            read_to_end(slow)


def test_one_turn_receives_a_part_of_the_bound_and_the_next_one_goes_on(listener: socket.socket) -> None:
    plane = make_plane()
    plane.limit_unread(64 << 10)
    sizes: list[int] = []
    plane.add_sink(plane.account("$G"), b"a", lambda batch: sizes.append(len(batch)))
    with ExitStack() as stack:
        for _ in range(16):
            theirs, _ = connect(plane, listener)
            stack.enter_context(theirs)
            theirs.sendall(b"CONNECT " + QUIET + b"\r\nPUB a 8000\r\n" + b"x" * 8000 + b"\r\n")
        while sum(sizes) < 16 * 8000:
            plane.turn(10_000_000)
            plane.run_sinks()
            plane.flush()
    assert max(sizes) <= (16 << 10) + 2 * 8100, "a quarter of the bound, and the last one"
    assert len(sizes) >= 4
