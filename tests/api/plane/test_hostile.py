"""Clients that mean harm: what one connection can make the plane hold is bounded, and others are served."""

import socket
from contextlib import suppress
from typing import Any

import pytest

from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from tests.api.plane.test_plane import client, make_plane, received

DEADLINE_NS = 10_000_000_000
SUBSCRIPTIONS_SHARE = 513  # WORK_PER_TURN / WORK_OF_SUBSCRIPTION of api/plane/_share.pxd, and one


def figures_of(plane: Plane, cid: int) -> dict[str, Any]:
    figures = plane.connection(cid)
    assert figures is not None
    return figures


def connected(plane: Plane) -> tuple[int, socket.socket]:
    """A client behind a real socket, of which the test holds the other end."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)  # as accept4 leaves it
    return plane.open(theirs.detach(), b""), ours


def blocked(plane: Plane) -> tuple[int, socket.socket]:
    """A subscriber of `a` whose socket is full, because it does not read."""
    cid, ours = connected(plane)
    ours.sendall(b"CONNECT {}\r\nSUB a 1\r\n")
    plane.turn()
    publisher = client(plane)
    for _ in range(20):
        plane.feed(publisher, b"PUB a 100000\r\n" + b"x" * 100_000 + b"\r\n")
    plane.flush()
    assert figures_of(plane, cid)["pending_bytes"] > 0
    return cid, ours


def test_a_receiver_that_takes_nothing_until_the_write_deadline_is_cut() -> None:
    plane = make_plane()
    cid, ours = blocked(plane)
    plane.housekeeping(0, 0, DEADLINE_NS)
    assert plane.flush() == ()
    plane.housekeeping(0, 0, 0)  # the deadline has passed
    assert [(c, r) for c, r, _ in plane.flush()] == [(cid, Reason.SLOW_CONSUMER_DEADLINE)]
    ours.close()


def test_a_receiver_that_takes_a_little_now_and_then_is_not_cut() -> None:
    plane = make_plane()
    cid, ours = blocked(plane)
    waiting = figures_of(plane, cid)["pending_bytes"]
    while figures_of(plane, cid)["pending_bytes"] == waiting:
        ours.recv(1 << 20)
        plane.turn()
    plane.housekeeping(0, 0, DEADLINE_NS)
    assert plane.flush() == ()
    assert figures_of(plane, cid)["connected"]
    ours.close()


def test_a_leaf_node_has_a_deadline_of_its_own() -> None:
    plane = make_plane()
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    cid = plane.open_leaf(theirs.detach(), solicited=False)
    for _ in range(20):
        plane.write(cid, b"x" * 100_000)
    plane.flush()
    assert figures_of(plane, cid)["pending_bytes"] > 0
    plane.housekeeping(0, 0, 0, DEADLINE_NS)
    assert plane.flush() == ()
    plane.housekeeping(0, 0, DEADLINE_NS, 1)  # a nanosecond
    assert [(c, r) for c, r, _ in plane.flush()] == [(cid, Reason.SLOW_CONSUMER_DEADLINE)]
    ours.close()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_producer_whose_receiver_is_behind_is_not_read_for_a_moment_if_that_is_wanted(
    wanted: bool,  # noqa: FBT001  (a parameter)
) -> None:
    plane = make_plane(max_pending=1 << 20)
    plane.stall_producers(wanted)
    _, deaf = connected(plane)
    deaf.sendall(b"CONNECT {}\r\nSUB a 1\r\n")
    plane.turn()
    cid, producer = connected(plane)
    producer.settimeout(0)
    producer.send(b'CONNECT {"verbose":false}\r\n')
    for _ in range(100):
        if plane.next_wake_ns():
            break
        producer.send(b"PUB a 30000\r\n" + b"x" * 30_000 + b"\r\n")
        plane.turn()
        plane.flush()
    assert plane.statistics()["stalls"] == wanted
    assert figures_of(plane, cid)["connected"]
    deaf.close()
    producer.close()


def test_half_a_line_is_kept_up_to_the_longest_line_and_no_further() -> None:
    plane = make_plane(max_control_line=4096)
    patient, greedy, other = client(plane), client(plane), client(plane)
    plane.feed(patient, b"PUB " + b"x" * 4_000)
    plane.feed(greedy, b"PUB ")
    for _ in range(5):
        plane.feed(greedy, b"x" * 1_000)
    assert [(c, r) for c, r, _ in plane.flush()] == [(greedy, Reason.MAXIMUM_CONTROL_LINE_EXCEEDED)]
    plane.feed(other, b"SUB a 1\r\nPUB a 1\r\nx\r\n")
    assert received(plane, other) == [b"x"]
    plane.feed(patient, b" 0\r\n\r\n")
    assert figures_of(plane, patient)["in_msgs"] == 1


def test_a_connection_that_subscribes_much_has_its_share_of_each_turn() -> None:
    plane = make_plane()
    cid, sock = connected(plane)
    sock.settimeout(0)
    sock.send(b'CONNECT {"verbose":false}\r\n')
    plane.turn()
    lines = [b"SUB flood.%06d %06d\r\n" % (number, number) for number in range(20_000)]
    waiting, held, grown = b"".join(lines), 0, []
    while held < len(lines):
        with suppress(BlockingIOError):
            waiting = waiting[sock.send(waiting) :] if waiting else b""
        assert plane.turn() > 0
        plane.flush()
        now = figures_of(plane, cid)["subscriptions"]
        grown.append(now - held)
        held = now
    assert max(grown) <= SUBSCRIPTIONS_SHARE
    assert sum(grown) / len(grown) > SUBSCRIPTIONS_SHARE / 2
    sock.close()
