"""The emergency file: space that is set aside while the disk fills up, and released when the logs have no other.

The reserve (store/disk/space.py) prevents this process from filling the disk, but not other processes, and a server
may be started on a full disk. Freeing space requires writes: an entry, a small block, a checkpoint. So while a disk is
nearly full, a preallocated file of that size (`need_bytes`) exists in the store's directory. It is removed when less
than that is free, and made again when there is enough space. On a disk with plenty of space there is no such file.
"""

import enum
from pathlib import Path
from typing import Final, Self

from jetraft.store.disk.io import Disk
from jetraft.store.disk.space import RESUME_FACTOR_PERCENT

EMERGENCY_NAME: Final = "emergency"
NEAR_FACTOR: Final = 4  # times the reserve: other processes cannot fill that between two checks
PLENTY_FACTOR: Final = 6


class EmergencyAction(enum.Enum):
    """The operation on the file."""

    KEEP = "keep"  # as it is, present or absent
    MAKE = "make"
    REMOVE = "remove"


class EmergencyFile:
    """The emergency file of one store. `make` and `remove` block."""

    def __init__(self, disk: Disk, path: Path, *, allocated_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self.allocated_bytes = allocated_bytes

    @classmethod
    def of(cls, disk: Disk, root: Path) -> Self:
        """The file of a store as it is: its size is read from the file system."""
        path = root / EMERGENCY_NAME
        return cls(disk, path, allocated_bytes=disk.used_bytes(path))

    def judge(self, *, free_bytes: int, reserve_bytes: int, need_bytes: int) -> EmergencyAction:
        """The operation that is due now. `need_bytes`: the space that the logs need to continue."""
        if self.allocated_bytes and (free_bytes < need_bytes or free_bytes >= PLENTY_FACTOR * reserve_bytes):
            return EmergencyAction.REMOVE
        lacks = self.allocated_bytes < need_bytes // 2  # more logs than there were
        left_bytes = free_bytes + self.allocated_bytes - need_bytes
        is_affordable = left_bytes * 100 >= reserve_bytes * RESUME_FACTOR_PERCENT
        return (
            EmergencyAction.MAKE
            if lacks and is_affordable and free_bytes < NEAR_FACTOR * reserve_bytes
            else EmergencyAction.KEEP
        )

    def make(self, size: int) -> None:
        """Allocate the file with `size` bytes. Raises OSError; then there is no file."""
        fd = self._disk.open_file(self._path, create=True)
        batch = self._disk.batch()
        batch.allocate(fd, size)
        try:
            self._disk.perform(batch)
        except OSError:
            self.remove()
            raise
        finally:
            self._disk.close_file(fd)
        self.allocated_bytes = size

    def remove(self) -> None:
        """Release the space to the logs. Raises OSError."""
        self.allocated_bytes = 0
        if self._disk.exists(self._path):
            batch = self._disk.batch()
            batch.unlink(bytes(self._path))
            self._disk.perform(batch)
