"""What the ledger has of blocks in which something was erased: its cost, what a restart knows, and the older form."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgpack
import pytest

from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.ledger import NAMES
from jetraft.store.ledger.ledger_records import GroupKey
from jetraft.store.log.start import LogOptions
from jetraft.store.stream.stream_store import StoreLimits
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, IDENTITY, Replica

KEY: GroupKey = (IDENTITY.group_id, IDENTITY.incarnation)
SMALL = LogOptions(block_bytes_first=4096, block_bytes_max=4096)
PAYLOAD = bytes(1900)  # two in a block
PER_BLOCK_BYTES_MAX = 200  # in both copies of the ledger, with its frame


class CountingDisk(LossyDisk):
    """Counts what is written to the ledger, allocations aside."""

    def __init__(self) -> None:
        super().__init__()
        self._ledgers: set[int] = set()
        self.ledger_bytes = 0

    def open_file(self, path: Path, *, create: bool = False) -> int:
        fd = super().open_file(path, create=create)
        (self._ledgers.add if path.name.startswith(NAMES) else self._ledgers.discard)(fd)
        return fd

    def _do_write(self, fd: int, data: bytes | Callable[[], bytes], offset: int) -> None:
        content = data() if callable(data) else data
        self.ledger_bytes += len(content) if fd in self._ledgers else 0
        super()._do_write(fd, content, offset)


def replica_of(blocks: int, disk: LossyDisk | None = None) -> Replica:
    disk = disk or LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    replica = Replica(disk, SMALL, StoreLimits())
    for _ in range(2 * blocks):
        replica.publish([(b"s.a", b"", PAYLOAD)])
    return replica


def note_now(replica: Replica) -> None:
    """Let the ledger write what was noted, as the next vote of any group would."""
    replica.log.place.ledger.write_noted()
    replica.disk.finish()


def erase_one_in_each_block(replica: Replica) -> int:
    """One after the other, each with a batch of the ledger. Returns how many blocks have something erased."""
    for seq in range(1, replica.store.last_seq + 1, 2):
        replica.store.remove([seq], erase=True)
        replica.settle()
        note_now(replica)
    return len(replica.log.upkeep.erased_in)


def noted(replica: Replica) -> frozenset[int]:
    return replica.log.place.ledger.erased_in(KEY)


@pytest.mark.parametrize("blocks", [100, 1000])
def test_the_ledger_writes_as_much_for_each_block_however_many_there_are(blocks: int) -> None:
    disk = CountingDisk()
    replica = replica_of(blocks, disk)
    before = disk.ledger_bytes

    count = erase_one_in_each_block(replica)

    assert blocks <= count <= blocks + 1
    assert len(noted(replica)) == count
    assert 0 < disk.ledger_bytes - before <= count * PER_BLOCK_BYTES_MAX


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("steps", range(12))
def test_a_start_knows_of_each_erasure_whatever_was_written_before_a_crash(how: str, steps: int) -> None:
    """Either the ledger has the note, or the entry is applied once more: here as its owner does."""
    replica = replica_of(4)
    replica.checkpoint()
    replica.command("remove", [1], True)  # noqa: FBT003  (an entry of the log)
    replica.command("remove", [3], True)  # noqa: FBT003
    replica.log.save_checkpoint(replica.applied, 1, b"", replica.store.snapshot())
    replica.log.submit()
    for _ in range(steps):
        replica.disk.step()
    replica.disk.crash(Random(steps)) if how == "crash" else replica.disk.kill()

    replica.start()

    assert len(replica.log.upkeep.erased_in) == 2


def test_a_block_that_goes_takes_its_note_along_and_no_other() -> None:
    replica = replica_of(6)
    erase_one_in_each_block(replica)
    before = noted(replica)
    replica.command("remove_below", 5)
    replica.checkpoint()
    replica.publish([(b"s.a", b"", b"")])
    replica.checkpoint()  # which trims
    note_now(replica)

    left = {file.head.serial for file in replica.log.upkeep._reader.files.values()}
    assert noted(replica) == before & left
    assert 2 <= len(noted(replica)) < len(before)
    replica.restart()
    assert noted(replica) == before & left


def test_the_one_value_of_earlier_versions_is_read_and_each_block_gets_its_own() -> None:
    replica = replica_of(4)
    serials = sorted(file.head.serial for file in replica.log.upkeep._reader.files.values())
    older = msgpack.packb(serials[:2])
    replica.log.place.ledger.commit_now(ledger_records.value(ledger_records.erased_name(KEY), older))
    replica.restart()
    assert noted(replica) == set(serials[:2])
    assert len(replica.log.upkeep.erased_in) == 2

    replica.store.remove([replica.store.last_seq - 2], erase=True)
    replica.settle()
    note_now(replica)

    ledger = replica.log.place.ledger
    assert ledger_records.erased_name(KEY) not in ledger.values
    assert len(noted(replica)) == 3
    assert noted(replica) > set(serials[:2])
    replica.restart()
    assert len(replica.log.upkeep.erased_in) == 3

    for block in replica.log.upkeep.erased_in:
        replica.log.upkeep.forget_erasures(block, 1)
    note_now(replica)
    assert noted(replica) == set()


def test_the_older_value_goes_also_with_the_first_block_that_is_rid_of_what_it_had() -> None:
    replica = replica_of(4)
    serials = sorted(file.head.serial for file in replica.log.upkeep._reader.files.values())
    older = msgpack.packb(serials[:2])
    replica.log.place.ledger.commit_now(ledger_records.value(ledger_records.erased_name(KEY), older))
    replica.restart()
    first = min(replica.log.upkeep.erased_in)
    replica.log.upkeep.forget_erasures(first, 1)
    note_now(replica)
    replica.restart()
    assert noted(replica) == {serials[1]}
    assert first not in replica.log.upkeep.erased_in
