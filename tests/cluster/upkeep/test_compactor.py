"""The task that gives back the space of messages that are gone, over a real log and store."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from jetraft.cluster.upkeep.compactor import (
    ERASED_REST_NS,
    FAILED_REST_NS,
    HURRIED_LOOK_S,
    LOOK_S,
    PATIENCE_NS,
    Compactor,
)
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.start import LogOptions
from jetraft.store.model.clock import NS_PER_S, ManualClock
from jetraft.store.model.config import StoreCompression, StreamConfig
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream.stream_store import StoreLimits
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Replica

OPTIONS = LogOptions(block_bytes_first=256 << 10, block_bytes_max=256 << 10)
PAYLOAD = b"p" * 2000


class CompactedGroup:
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
        self.group = CompactedGroup(replica)

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

    def __init__(self, rounds: int = 60, disk: "FussyDisk | None" = None) -> None:
        disk = disk or FussyDisk()
        disk.make_directory(GROUP.parent)
        disk.sync_names()
        self.replica = Replica(disk, OPTIONS, StoreLimits(max_msgs_per_subject=1))
        self.replica.publish([(b"old", b"", b"stays")])
        for _ in range(rounds):
            self.replica.publish([(b"k.%d" % key, b"", PAYLOAD) for key in range(10)])
        self.shell = FakeShell(self.replica)
        self.clock = ManualClock()
        self.disk, self.is_short = disk, False
        self.compactor = Compactor(
            clock=self.clock,
            replicas=lambda: [self.shell],  # type: ignore[list-item]  # a fake
            is_short=lambda: self.is_short,
        )

    async def look(self, times: int = 1, *, every_ns: int = PATIENCE_NS) -> None:
        for _ in range(times):
            await self.compactor.look_after(self.shell)  # type: ignore[arg-type]  # a fake
            self.clock.advance(every_ns)

    def erase(self, seq: int) -> None:
        self.replica.command("remove", [seq], True)  # noqa: FBT003  (an entry of the log)
        self.replica.settle()

    def has_on_disk(self, text: str) -> bool:
        return any(text.encode() in data for data in self.replica.block_files().values())

    @property
    def unfinished(self) -> list[str]:
        log = self.replica.log.place.log
        return [name for name in self.disk.list_directory(log) if name.endswith(".tmp")]

    @property
    def bytes_on_disk(self) -> int:
        return self.replica.log.statistics().bytes_on_disk


def lab_of_secrets(*subjects: str) -> Lab:
    """A stream of many messages, none of them gone; those at sequence 2 and after have these subjects."""
    lab = Lab(rounds=0)
    lab.replica.store.set_limits(StoreLimits())
    lab.replica.publish([(subject.encode(), b"NATS/1.0\r\nA: b\r\n\r\n", b"secret") for subject in subjects])
    lab.replica.publish([(b"k.%d" % key, b"", PAYLOAD) for key in range(300)])
    return lab


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


async def test_the_subject_of_an_erased_message_goes_though_nearly_all_of_its_block_lives(autojump: object) -> None:
    """A replay from a checkpoint of before needs it, so it goes when both are of after; the stream rests meanwhile."""
    lab = lab_of_secrets("private.subject")
    lab.erase(2)
    expected = lab.replica.found()
    assert lab.has_on_disk("private.subject")

    await lab.look(12)

    assert not lab.has_on_disk("private.subject")
    assert lab.replica.found() == expected
    assert lab.replica.log.upkeep.erased_in == set()
    figures = lab.compactor.statistics()
    assert (figures.plans_waiting, figures.blocks_dropped) == (0, 0)
    lab.replica.restart()
    assert lab.replica.found() == expected


@pytest.mark.parametrize("since", ["nothing", "one checkpoint", "both checkpoints"])
async def test_the_subject_of_an_erased_message_goes_also_after_a_restart(autojump: object, since: str) -> None:
    lab = lab_of_secrets("private.subject")
    lab.replica.checkpoint()
    lab.erase(2)
    expected = lab.replica.found()
    for _ in range(("nothing", "one checkpoint", "both checkpoints").index(since)):
        lab.replica.command("remove", [], False)  # noqa: FBT003  (an entry that does nothing)
        lab.replica.checkpoint()
    lab.replica.restart()
    lab.replica.settle()  # what the replay has erased again
    assert lab.has_on_disk("private.subject")
    assert lab.replica.log.upkeep.erased_in

    await lab.look(12)

    assert not lab.has_on_disk("private.subject")
    assert lab.replica.found() == expected
    lab.replica.command("remove", [], False)  # noqa: FBT003  (an entry that does nothing)
    lab.replica.checkpoint()
    lab.replica.restart()
    assert lab.replica.log.upkeep.erased_in == set()


async def test_what_is_erased_while_a_rewrite_waits_goes_with_the_next_one(autojump: object) -> None:
    """The plan was made for what lived before, so its file has the subject of the second message once more."""
    lab = lab_of_secrets("first.subject", "second.subject")
    lab.erase(2)
    while not lab.compactor.statistics().plans_waiting:
        await lab.look()
    lab.erase(3)
    while not lab.compactor.statistics().blocks_rewritten:
        await lab.look()
    assert not lab.has_on_disk("first.subject")
    assert lab.has_on_disk("second.subject")

    lab.clock.advance(ERASED_REST_NS)
    await lab.look(12)
    assert not lab.has_on_disk("second.subject")
    assert lab.replica.log.upkeep.erased_in == set()


async def test_erasures_one_after_another_cost_a_rewrite_in_five_minutes(autojump: object) -> None:
    subjects = [f"secret.{number:03}" for number in range(200)]
    lab = lab_of_secrets(*subjects)
    for seq in range(2, 2 + len(subjects)):
        lab.erase(seq)
        await lab.look(every_ns=6 * NS_PER_S)  # twenty minutes in all
    assert 2 <= lab.compactor.statistics().blocks_rewritten <= 5
    lab.clock.advance(ERASED_REST_NS)
    await lab.look(12)
    assert not any(lab.has_on_disk(subject) for subject in subjects)


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


async def test_while_the_disk_is_nearly_full_what_was_purged_is_given_back_within_two_seconds(autojump: object) -> None:
    lab = Lab()
    lab.replica.command("purge", None, None, None)
    lab.shell.group.checkpoint()
    before = lab.bytes_on_disk
    lab.is_short = True
    look_ns = int(HURRIED_LOOK_S * NS_PER_S)
    await lab.look(2 * NS_PER_S // look_ns, every_ns=look_ns)
    assert lab.bytes_on_disk <= OPTIONS.block_bytes_first < before // 4


async def test_while_the_disk_is_nearly_full_entries_that_do_nothing_become_rare(autojump: object) -> None:
    """What is waited for may never come: another member fetches for hours, and each entry takes room."""
    lab = Lab()
    lab.is_short = True
    lab.shell.group.held = True
    before = lab.replica.log.last_index
    await lab.look(300, every_ns=NS_PER_S // 5)
    assert lab.replica.log.last_index - before < 15


class FussyDisk(LossyDisk):
    """One on which an operation fails when it is done to the new file of a block, or right after such a rename."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self._unfinished: set[object] = set()

    def open_file(self, path: Path, *, create: bool = False) -> int:
        is_new = path.name.endswith(".blk.tmp")
        if is_new and self.refused == "open":
            raise OSError(errno.EMFILE, "open: refused")
        fd = super().open_file(path, create=create)
        self._unfinished |= {fd} if is_new else set()
        return fd

    def close_file(self, fd: int) -> None:
        self._unfinished.discard(fd)
        super().close_file(fd)

    def _operate(self, name: str, arguments: tuple[object, ...]) -> None:
        is_meant = arguments[0] in self._unfinished or str(arguments[0]).endswith(".blk.tmp")
        if is_meant and name == self.refused:
            raise OSError(errno.ENOSPC, f"{name}: refused")
        super()._operate(name, arguments)
        if is_meant and name == "rename" and self.refused == "directory":
            self.fail_next("sync", errno.EIO)


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
async def test_a_block_that_could_not_be_written_anew_leaves_no_file_and_is_tried_again(
    operation: str, autojump: object
) -> None:
    lab = Lab(disk=FussyDisk())
    lab.disk.refused = operation
    expected, before = lab.replica.found(), lab.bytes_on_disk
    await lab.look(12)
    assert lab.compactor.statistics().blocks_rewritten == 0
    assert lab.unfinished == []
    assert lab.replica.log.failed is None

    lab.disk.refused = ""
    lab.clock.advance(FAILED_REST_NS)
    await lab.look(12)
    assert lab.bytes_on_disk < before // 3
    assert lab.replica.found() == expected


async def test_a_directory_that_could_not_be_fsynced_after_an_exchange_is_a_failed_write(autojump: object) -> None:
    lab = Lab(disk=FussyDisk())
    told: list[Exception | None] = []
    log = lab.replica.log
    log.on_durable = lambda: told.append(log.failed)
    lab.disk.refused = "directory"
    for _ in range(20):
        if log.failed is None:
            await lab.look()
    assert isinstance(log.failed, OSError)
    assert told[-1] is log.failed
    await lab.look(3)
    assert lab.compactor.statistics().blocks_rewritten == 1


async def test_an_erasure_is_not_settled_by_a_file_that_a_power_cut_may_take_back(autojump: object) -> None:
    lab = lab_of_secrets("private.subject")
    lab.erase(2)
    lab.disk.refused = "directory"
    for _ in range(12):
        if lab.replica.log.failed is None:
            await lab.look()
    assert lab.compactor.statistics().blocks_rewritten == 1
    assert isinstance(lab.replica.log.failed, OSError)
    assert lab.replica.log.upkeep.erased_in


async def test_blocks_that_must_not_be_dropped_now_are_dropped_later(autojump: object) -> None:
    lab = Lab()
    lab.shell.group.held = True
    await lab.look(6)
    lab.replica.checkpoint()
    lab.replica.command("remove", [], False)  # noqa: FBT003  (an entry that does nothing)
    lab.replica.checkpoint()
    await lab.look(2)
    assert lab.compactor.statistics().blocks_dropped + lab.compactor.statistics().blocks_rewritten == 0
    lab.shell.group.held = False
    lab.clock.advance(FAILED_REST_NS)
    await lab.look(12)
    assert lab.compactor.statistics().blocks_dropped >= 1
    assert lab.bytes_on_disk < OPTIONS.block_bytes_first + 3 * 22_000


async def test_a_stream_in_which_nothing_has_happened_is_not_looked_at(autojump: object) -> None:
    lab = Lab()
    await lab.look(20)
    looked = lab.compactor.statistics().replicas_looked_at
    await lab.look(20)
    assert lab.compactor.statistics().replicas_looked_at == looked

    lab.replica.publish([(b"k.1", b"", PAYLOAD)])
    await lab.look(20)
    assert looked < lab.compactor.statistics().replicas_looked_at < looked + 20


async def test_it_looks_at_once_when_the_disk_becomes_full(autojump: object) -> None:
    lab = Lab()
    looks: list[float] = []

    def replicas() -> list[FakeShell]:
        looks.append(trio.current_time())
        return [lab.shell]

    compactor = Compactor(clock=lab.clock, replicas=replicas, is_short=lambda: lab.is_short)  # type: ignore[arg-type]  # a fake
    async with trio.open_nursery() as nursery:
        nursery.start_soon(compactor.run)
        await trio.sleep(LOOK_S / 2)
        assert len(looks) == 1
        lab.is_short = True
        compactor.compact_now()
        await trio.sleep(HURRIED_LOOK_S * 2.5)
        assert len(looks) == 4
        nursery.cancel_scope.cancel()
