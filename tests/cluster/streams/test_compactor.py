"""The task that gives back the space of messages that are gone, over a real log and store."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from jetraft.cluster.streams.compactor import PATIENCE_NS, Compactor
from jetraft.store.log import FileLog
from jetraft.store.log_start import LogOptions
from jetraft.store.lossy_disk import LossyDisk
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.config import StoreCompression, StreamConfig
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream_store import StoreLimits
from tests.store.replica import GROUP, Replica

OPTIONS = LogOptions(block_bytes_first=256 << 10, block_bytes_max=256 << 10)
PAYLOAD = b"p" * 2000


class FakeGroup:
    """What the compactor uses of a group; checkpoints and proposals are carried out at once."""

    failed = None
    members: tuple[str, ...] = ("A",)

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.distrusted: list[StoreCorrupt] = []
        self.held = False

    @property
    def log(self) -> FileLog:
        return self._replica.log

    @property
    def applied_index(self) -> int:
        return self._replica.applied

    def change_blocks(self, change: Callable[[], int]) -> int:
        changed = 0 if self.held else change()
        self._replica.settle()
        return changed

    def checkpoint(self) -> None:
        self._replica.checkpoint()

    def propose(self, _proposal: object) -> None:
        self._replica.command("remove", [], False)  # noqa: FBT003  (an entry that does nothing)

    def distrust(self, error: StoreCorrupt) -> None:
        self.distrusted.append(error)


class FakeShell:
    """A replica as the compactor sees it."""

    is_leader = True
    config: StreamConfig | None = None

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.group = FakeGroup(replica)

    @property
    def machine(self) -> Any:
        return self

    @property
    def store(self) -> Any:
        return self._replica.store

    @property
    def first_live_seq(self) -> int:
        return self._replica.first_live


class Lab:
    """A key-value stream of which one key is old, and all others are written again and again."""

    def __init__(self, rounds: int = 60) -> None:
        disk = LossyDisk()
        disk.make_directory(GROUP.parent)
        disk.sync_names()
        self.replica = Replica(disk, OPTIONS, StoreLimits(max_msgs_per_subject=1))
        self.replica.publish([(b"old", b"", b"stays")])
        for _ in range(rounds):
            self.replica.publish([(b"k.%d" % key, b"", PAYLOAD) for key in range(10)])
        self.shell = FakeShell(self.replica)
        self.clock = ManualClock()
        self.compactor = Compactor(clock=self.clock, replicas=lambda: [self.shell])  # type: ignore[list-item]  # a fake

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.compactor.look_after(self.shell)  # type: ignore[arg-type]  # a fake
            self.clock.advance(PATIENCE_NS)

    @property
    def bytes_on_disk(self) -> int:
        return self.replica.log.statistics().bytes_on_disk


@pytest.fixture
def autojump(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    return autojump_clock


async def test_a_stream_that_rests_comes_near_the_size_of_what_lives(autojump: object) -> None:
    lab = Lab()
    expected = lab.replica.found()
    assert lab.bytes_on_disk > 1_200_000

    await lab.look(12)

    assert lab.bytes_on_disk < OPTIONS.block_bytes_first + 3 * 22_000
    assert lab.replica.found() == expected
    figures = lab.compactor.statistics()
    assert figures.blocks_rewritten >= 2
    assert figures.blocks_dropped >= 1
    assert figures.bytes_gained > 900_000
    assert figures.plans_waiting == 0
    lab.replica.restart()
    assert lab.replica.found() == expected


async def test_a_stream_of_which_nothing_is_gone_is_left_alone(autojump: object) -> None:
    lab = Lab(rounds=0)
    for number in range(400):
        lab.replica.publish([(b"n.%d" % number, b"", PAYLOAD)])
    files, last_index = lab.replica.block_files(), lab.replica.log.last_index
    await lab.look(6)
    assert lab.replica.block_files() == files
    assert lab.replica.log.last_index == last_index


async def test_blocks_of_a_stream_with_compression_are_packed_once(autojump: object) -> None:
    pytest.importorskip("cramjam", reason="compression needs the package cramjam")
    lab = Lab(rounds=0)
    lab.shell.config = StreamConfig(name="S", compression=StoreCompression.S2)
    for number in range(400):
        lab.replica.publish([(b"n.%d" % number, b"", PAYLOAD)])
    expected, before = lab.replica.found(), lab.bytes_on_disk
    await lab.look(6)
    assert lab.bytes_on_disk < before - 600_000
    assert lab.replica.found() == expected
    rewritten = lab.compactor.statistics().blocks_rewritten
    await lab.look(6)
    assert lab.compactor.statistics().blocks_rewritten == rewritten
    lab.replica.restart()
    assert lab.replica.found() == expected


async def test_a_leader_helps_the_others_to_their_checkpoints_and_then_rests(autojump: object) -> None:
    lab = Lab()
    lab.shell.group.members = ("A", "B", "C")
    await lab.look(30)
    assert lab.compactor.statistics().plans_waiting == 0
    last_index = lab.replica.log.last_index
    await lab.look(10)
    assert lab.replica.log.last_index == last_index


async def test_nothing_changes_while_a_peer_fetches_the_blocks(autojump: object) -> None:
    lab = Lab()
    lab.shell.group.held = True
    before = set(lab.replica.block_files())
    await lab.look(8)
    assert set(lab.replica.block_files()) >= before
    assert lab.compactor.statistics().bytes_gained == 0


async def test_damage_that_is_met_is_reported_and_nothing_is_exchanged(autojump: object) -> None:
    lab = Lab()
    name, *_ = lab.replica.block_files()
    lab.replica.disk.flip_bit(lab.replica.log.place.log / name, 128 + 48 + 10)
    await lab.look(12)
    assert lab.shell.group.distrusted
