"""Below a memory limit the plane's bound follows what is left, and connections are refused when nearly nothing is."""

from pathlib import Path

from jetraft.api.options.options import Options
from jetraft.api.sessions.memory import CONNECTION_BYTES, ClientMemory
from jetraft.api.sessions.session import ServerIdentity, Session, Sessions
from jetraft.api.turns.clock import SystemClock
from jetraft.cluster.memory_budget import NEAR_LOOK_NS, MemoryBudget
from jetraft.store.disk.cgroup import MemoryGroup
from tests.api.plane.test_plane import client, make_plane

MIB = 1 << 20
LIMIT = 256 * MIB


class ManualClock(SystemClock):
    """Goes on at every look."""

    now_ns = 0

    def mono_ns(self) -> int:
        self.now_ns += 50 * NEAR_LOOK_NS
        return self.now_ns


class Place:
    """A server's sessions and plane in a group of which a test says what is left."""

    def __init__(self, directory: Path) -> None:
        self._used = directory / "memory.current"
        self.leave(LIMIT)
        budget = MemoryBudget((MemoryGroup(directory=directory, kind="cgroup2", limit_bytes=LIMIT),))
        clock = ManualClock()
        self.sessions = Sessions(Options(), ServerIdentity(server_id="N", server_name="n"), clock)
        self.sessions.memory = budget
        self.plane = make_plane()
        self.plane.limit_unread(LIMIT // 8)
        self.budget = budget
        self.memory = ClientMemory(budget, self.plane, self.sessions, clock)

    def leave(self, free_bytes: int) -> None:
        """So much is left from the next look on."""
        self._used.write_text(str(LIMIT - free_bytes))


def test_connections_are_refused_when_nearly_nothing_is_left(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert not place.sessions.is_full
    place.leave(17 * MIB)
    assert not place.sessions.is_full, "publishes and connections give way last"
    place.leave(15 * MIB)
    assert place.sessions.is_full
    place.leave(100 * MIB)
    assert not place.sessions.is_full


def test_readers_that_wait_lose_their_connections_when_less_is_left(tmp_path: Path) -> None:
    place = Place(tmp_path)
    slow, publisher = [client(place.plane) for _ in range(8)], client(place.plane)
    for cid in slow:
        place.plane.feed(cid, b"SUB a 1\r\n")
    for _ in range(2):
        place.plane.feed(publisher, b"PUB a 900000\r\n" + b"x" * 900_000 + b"\r\n")
    place.memory.look()
    assert not place.plane.flush(), "16 MiB wait, 32 may"
    place.leave(40 * MIB)
    place.memory.look()
    closed = len(place.plane.flush())
    assert 0 < closed < 8
    assert place.plane.unread_bytes() <= 12 * MIB, "half of what the reserve of 32 MiB leaves of 40 and 16"
    place.leave(10 * MIB)
    place.memory.look()
    assert len(place.plane.flush()) == 8 - closed - 1, "4 MiB may wait whatever is left: one of them stays"


def test_the_log_knows_what_clients_take(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for cid in range(1000):
        place.sessions.add(Session(cid, "", 0, 0))
    assert place.budget.held() == {"clients' buffers": 0, "connections": 1000 * CONNECTION_BYTES}
