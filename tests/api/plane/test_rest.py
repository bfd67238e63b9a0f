"""A connection that has had its share of a turn rests: what else it sent is acted on in the next turns, in order."""

import pytest

from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.cluster.capture._capture import captures

LINES = 2_000
SHARE_MAX = 36  # calls of one turn, a few more than the share says
MESSAGES = 10_000
MESSAGES_SHARE_MAX = 4_100


class Calls:
    def __init__(self) -> None:
        self.connects = 0
        self.violations = 0
        self.plane = Plane(
            max_payload=1 << 20,
            max_control_line=4096,
            max_pending=64 << 20,
            max_subscriptions=0,
            connect_handler=self.connect,
            first_ping_handler=lambda _cid: b"",
            violation_handler=self.violate,
        )

    def connect(self, _cid: int, _text: bytes | None) -> ConnectOptions:
        self.connects += 1
        return ConnectOptions(verbose=False, pedantic=False, headers=True)

    def violate(self, _cid: int, _kind: int, _subject: bytes, _queue: bytes, _sid: bytes) -> bytes:
        self.violations += 1
        return b""

    @property
    def made(self) -> int:
        return self.connects + self.violations


@pytest.mark.parametrize("line", [b"CONNECT {}\r\n", b"PUB _GR_.x 0\r\n\r\n"])
def test_calls_of_one_connection_have_a_share_of_each_turn(line: bytes) -> None:
    calls = Calls()
    plane = calls.plane
    busy, other = plane.open(-1, b""), plane.open(-1, b"")
    plane.feed(busy, line * LINES + b"PING\r\n")
    assert calls.made
    before = calls.made
    assert before <= SHARE_MAX
    assert plane.take(busy) == b""
    plane.feed(other, b"PING\r\n")
    assert plane.take(other) == b"PONG\r\n"

    turns = 0
    while calls.made < LINES:
        assert plane.turn(0) > 0
        assert calls.made - before <= SHARE_MAX
        before, turns = calls.made, turns + 1
    plane.turn(0)
    assert plane.take(busy) == b"PONG\r\n"
    assert turns >= LINES // SHARE_MAX


def test_messages_for_a_receiver_in_python_are_captured_over_several_turns_in_order() -> None:
    calls = Calls()
    plane = calls.plane
    captured: list[bytes] = []
    plane.add_sink(plane.account("$G"), b"s", captured.append)
    busy = plane.open(-1, b"")
    plane.feed(busy, b"CONNECT {}\r\n" + b"".join(b"PUB s 5\r\n%05d\r\n" % number for number in range(MESSAGES)))
    found: list[bytes] = []
    for _ in range(10):
        plane.run_sinks()
        batch = b"".join(captured)
        captured.clear()
        new = [one.payload for one in captures(batch)]
        assert len(new) <= MESSAGES_SHARE_MAX
        found += new
        plane.turn(0)
    assert found == [b"%05d" % number for number in range(MESSAGES)]


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("Nats-Msg-Id: a", 260),
        ("Nats-Expected-Last-Subject-Sequence-Subject: a", 260),
        ("Nats-Expected-Last-Subject-Sequence-Subject: a.*", 5),
        ("Nats-Expected-Last-Subject-Sequence-Subject: >", 5),
        ("Other: *", 1_030),
    ],
)
def test_messages_count_for_what_their_headers_ask_of_a_stream(field: str, most: int) -> None:
    calls = Calls()
    plane = calls.plane
    captured: list[bytes] = []
    plane.add_sink(plane.account("$G"), b"s", captured.append)
    busy = plane.open(-1, b"")
    hdr = f"NATS/1.0\r\n{field}\r\n\r\n".encode()
    line = b"HPUB s %d %d\r\n%s\r\n" % (len(hdr), len(hdr), hdr)
    plane.feed(busy, b'CONNECT {"headers":true}\r\n' + line * LINES)
    plane.run_sinks()
    assert most // 2 < len([*captures(b"".join(captured))]) <= most


def test_who_rests_may_close() -> None:
    calls = Calls()
    busy = calls.plane.open(-1, b"")
    calls.plane.feed(busy, b"CONNECT {}\r\n" * LINES)
    made = calls.made
    calls.plane.close(busy, 1)
    calls.plane.flush()
    calls.plane.turn(0)
    assert calls.made == made
