"""All connections together have a share of a turn: who is passed over comes first in the next, and nobody starves."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.cluster.capture._capture import captures

CROWD = 200
EACH = 1_000  # messages of each of them
TURN_MOST = (
    6_144 + 4_096 + 2 * 64
)  # work of those that are read and of those that rest, and what goes beyond at the ends
LITTLE = 16
SLOW_NS = 30_000_000  # of a turn, several times what it should take


class Crowd:
    """A plane with connections over sockets, and a sink that takes what they send to `s`."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self.plane = Plane(
            max_payload=1 << 20,
            max_control_line=4096,
            max_pending=64 << 20,
            max_subscriptions=0,
            connect_handler=self._connect,
            first_ping_handler=lambda _cid: b"",
            violation_handler=lambda *_: b"",
        )
        self._captured: list[bytes] = []
        self.plane.add_sink(self.plane.account("$G"), b"s", self._captured.append)
        self.plane.add_sink(self.plane.account("$G"), b"$JS.API.>", self._captured.append)
        self.ends = [self._open(stack) for _ in range(count)]
        while self.plane.turn():
            self.plane.flush()

    def _connect(self, _cid: int, _text: bytes | None) -> ConnectOptions:
        return ConnectOptions(verbose=False, pedantic=False, headers=True)

    def _open(self, stack: ExitStack) -> socket.socket:
        here, there = (stack.enter_context(end) for end in socket.socketpair())
        here.setblocking(False)  # noqa: FBT003
        there.setblocking(False)  # noqa: FBT003
        for end in (here, there):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.plane.open(there.detach(), b"")
        here.sendall(b"CONNECT {}\r\n")
        return here

    def turn(self) -> list[bytes]:
        """Run a turn; returns the payloads that it captured."""
        self.plane.turn()
        self.plane.run_sinks()
        self.plane.flush()
        found = [one.payload for one in captures(b"".join(self._captured))]
        self._captured.clear()
        return found


@contextmanager
def crowd_of(count: int) -> Iterator[Crowd]:
    with ExitStack() as stack:
        yield Crowd(stack, count)


def publishes(name: int, count: int = EACH) -> bytes:
    return b"".join(b"PUB s 8\r\n%03d%05d\r\n" % (name, number) for number in range(count))


def test_a_turn_of_a_crowd_is_bounded_and_what_each_sends_is_captured_in_order() -> None:
    with crowd_of(CROWD) as crowd:
        for name, end in enumerate(crowd.ends):
            end.sendall(publishes(name))
        found: list[bytes] = []
        while len(found) < CROWD * EACH:
            new = crowd.turn()
            assert 0 < len(new) <= TURN_MOST
            found += new
        for name in range(CROWD):
            mine = [one for one in found if one.startswith(b"%03d" % name)]
            assert mine == [b"%03d%05d" % (name, number) for number in range(EACH)]


def test_who_sends_little_is_served_in_the_next_turns_though_a_crowd_sends_much() -> None:
    with crowd_of(CROWD + 1) as crowd:
        *many, little = crowd.ends
        for name, end in enumerate(many):
            end.sendall(publishes(name))
        little.sendall(b"PING\r\n")
        for _ in range(3):
            crowd.turn()
        assert little.recv(100) == b"PONG\r\n"
        for _ in range(10):
            little.sendall(b"PING\r\n")
            crowd.turn()
            assert little.recv(100) == b"PONG\r\n"


def test_each_of_a_crowd_is_gone_on_with_before_one_has_all() -> None:
    with crowd_of(CROWD) as crowd:
        for name, end in enumerate(crowd.ends):
            end.sendall(publishes(name))
        done: dict[bytes, int] = {}
        turns = 0
        while len(done) < CROWD:
            turns += 1
            for one in crowd.turn():
                done[one[:3]] = done.get(one[:3], 0) + 1
        assert turns <= CROWD // (2_048 // LITTLE) + 2
        assert sorted(done.values())[len(done) // 2] <= LITTLE + 1


def test_who_sends_without_a_pause_does_not_keep_others_from_being_read() -> None:
    with crowd_of(8) as crowd:
        *busy, late = crowd.ends
        for name, end in enumerate(busy):
            end.sendall(publishes(name, 4_000))
        late.sendall(publishes(999, 3))
        turns = 0
        while b"99900002" not in crowd.turn():
            turns += 1
            assert turns < 4
            for name, end in enumerate(busy):  # before it is read again, there is more of it
                end.sendall(publishes(name, 500))


def test_a_turn_below_the_bound_is_not_cut() -> None:
    with crowd_of(16) as crowd:
        for name, end in enumerate(crowd.ends):
            end.sendall(publishes(name, 250))
        assert len(crowd.turn()) == 16 * 250


@pytest.mark.parametrize(
    ("line", "most"),
    [
        (b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c back 1\r\n1\r\n", TURN_MOST // 20 + 2),
        (b"PUB $JS.API.STREAM.NAMES back 0\r\n\r\n", TURN_MOST // 6 + 2),
    ],
)
def test_requests_of_a_crowd_count_for_what_they_cost(line: bytes, most: int) -> None:
    with crowd_of(CROWD) as crowd:
        for end in crowd.ends:
            end.sendall(line * 100)
        found = 0
        while found < CROWD * 100:
            new = len(crowd.turn())
            assert 0 < new <= most
            found += new


def test_messages_for_nobody_in_python_count_too() -> None:
    with crowd_of(32) as crowd:
        for end in crowd.ends:
            end.sendall(b"PUB nobody 1\r\nx\r\n" * 10_000)
        counts: list[int] = []
        before = crowd.plane.statistics()["in_msgs"]
        while sum(counts) < 320_000:
            crowd.turn()
            now = crowd.plane.statistics()["in_msgs"]
            counts.append(now - before)
            before = now
            assert counts[-1] > 0
        assert max(counts) <= TURN_MOST * 16


def test_who_was_passed_over_may_close() -> None:
    with crowd_of(CROWD) as crowd:
        for name, end in enumerate(crowd.ends):
            end.sendall(publishes(name))
        crowd.turn()
        for end in crowd.ends[CROWD // 2 :]:
            end.close()
        found = EACH
        while found:
            found = len(crowd.turn())
        assert len(crowd.plane.connection_ids()) == CROWD // 2


def test_a_turn_is_smaller_while_what_it_does_takes_long() -> None:
    with crowd_of(CROWD) as crowd:
        for name, end in enumerate(crowd.ends):
            end.sendall(publishes(name))
        before = len(crowd.turn())
        for _ in range(30):
            began_ns = time.monotonic_ns()
            assert crowd.turn()
            crowd.plane.note_turn(began_ns + SLOW_NS)
        slow = len(crowd.turn())
        assert slow <= before // 2
        crowd.plane.note_turn(time.monotonic_ns())
        quick = len(crowd.turn())
        assert quick > slow


def test_one_long_turn_changes_little() -> None:
    with crowd_of(CROWD) as crowd:
        for name, end in enumerate(crowd.ends):
            end.sendall(publishes(name))
        before = len(crowd.turn())
        crowd.plane.note_turn(time.monotonic_ns() + 10**9)
        assert len(crowd.turn()) > before // 2
