"""A file that holds room for the logs while a disk fills up, and is given up when they have no other.

The reserve (store/space.py) keeps this process from filling the disk; it does not keep others from it, and a server may
be started on a disk that is full already. Giving space back writes first: an entry, a small block, a checkpoint. So
while a disk is nearly full a file of as many bytes as all logs need for that lies ready in the store's directory. When
less than that is free it is removed; when there is room again it is made again. On a disk with plenty of room there is
no such file: it would only be something to pay for.
"""

import enum
from pathlib import Path
from typing import Final

from jetraft.store.io import Disk
from jetraft.store.space import RESUME_FACTOR_PERCENT

EMERGENCY_NAME: Final = "emergency"
NEAR_FACTOR: Final = 4  # times the reserve: filling the rest takes somebody else longer than two looks
PLENTY_FACTOR: Final = 6


class Verdict(enum.Enum):
    """What is to be done about the file."""

    KEEP = "keep"  # as it is, or absent as it is
    MAKE = "make"
    GIVE_UP = "give up"


class EmergencyFile:
    """The file of one store. Its methods that change it block."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / EMERGENCY_NAME
        self.held_bytes = disk.used_bytes(self._path)

    def judge(self, *, free_bytes: int, reserve_bytes: int, need_bytes: int) -> Verdict:
        """What is to be done now. `need_bytes`: what the logs need to go on."""
        if self.held_bytes and (free_bytes < need_bytes or free_bytes >= PLENTY_FACTOR * reserve_bytes):
            return Verdict.GIVE_UP
        lacks = self.held_bytes < need_bytes // 2  # more logs than there were
        left_bytes = free_bytes + self.held_bytes - need_bytes
        is_affordable = left_bytes * 100 >= reserve_bytes * RESUME_FACTOR_PERCENT
        return Verdict.MAKE if lacks and is_affordable and free_bytes < NEAR_FACTOR * reserve_bytes else Verdict.KEEP

    def make(self, size: int) -> None:
        """Hold so many bytes. Raises OSError, and holds nothing then."""
        fd = self._disk.open_file(self._path, create=True)
        batch = self._disk.batch()
        batch.allocate(fd, size)
        try:
            self._disk.perform(batch)
        except OSError:
            self.give_up()
            raise
        finally:
            self._disk.close_file(fd)
        self.held_bytes = size

    def give_up(self) -> None:
        """Let the logs have its room. Raises OSError."""
        self.held_bytes = 0
        if self._disk.exists(self._path):
            batch = self._disk.batch()
            batch.unlink(bytes(self._path))
            self._disk.perform(batch)
