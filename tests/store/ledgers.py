"""The ledger that a test opens a log with: as a new process finds it on the disk."""

from pathlib import Path
from typing import Final

from jetraft.store.disk.io import Disk
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import GroupKey
from tests.doubles.lossy_disk import LossyDisk

LEDGER_FILES: Final = 2  # that it holds open


def ledger_of(disk: Disk, group: Path) -> Ledger:
    """The ledger beside the directory that holds the group's."""
    return Ledger.open(disk, group.parent.parent)


def lose_records(disk: LossyDisk, root: Path, key: GroupKey) -> None:
    """Damage both copies of the ledger in the first record that they hold of a group."""
    for name in ("ledger.0", "ledger.1"):
        disk.flip_bit(root / name, disk.read_whole(root / name).index(key[0].encode()))
