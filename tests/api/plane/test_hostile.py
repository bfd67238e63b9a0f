"""Clients that mean harm: what one connection can make the plane hold is bounded, and others are served."""

import socket
from typing import Any

from jetraft.api.plane._plane import Plane
from jetraft.api.reasons import Reason
from tests.api.plane.test_plane import client, make_plane, received

DEADLINE_NS = 10_000_000_000


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


def test_a_producer_whose_receiver_is_behind_is_not_read_for_a_moment() -> None:
    plane = make_plane(max_pending=1 << 20)
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
    assert plane.statistics()["stalls"] == 1
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
