"""Operations on whole files: read, read around unreadable sectors, replace atomically."""

from pathlib import Path
from typing import Final

from jetraft.store.disk.copies import DAMAGE_ERRNOS
from jetraft.store.disk.io import Disk

TMP_SUFFIX: Final = ".tmp"
_PAGE_BYTES: Final = 4096  # a sector of a disk, and a page of the page cache


def read_file(disk: Disk, path: Path) -> bytes:
    """All bytes of a file. Raises OSError."""
    fd = disk.open_file(path)
    try:
        return disk.read(fd, disk.size(fd), 0)
    finally:
        disk.close_file(fd)


def read_readable(disk: Disk, path: Path) -> bytes:
    """All bytes of a file; zeros where the device cannot read them, which no checksum accepts as data."""
    fd = disk.open_file(path)
    try:
        return readable(disk, fd)
    finally:
        disk.close_file(fd)


def readable(disk: Disk, fd: int) -> bytes:
    """All bytes of an open file; zeros where the device cannot read them."""
    size = disk.size(fd)
    try:
        return disk.read(fd, size, 0)
    except OSError as error:
        if error.errno not in DAMAGE_ERRNOS:
            raise
    return b"".join(_read_page(disk, fd, at, min(_PAGE_BYTES, size - at)) for at in range(0, size, _PAGE_BYTES))


def _read_page(disk: Disk, fd: int, at: int, size: int) -> bytes:
    try:
        return disk.read(fd, size, at)
    except OSError as error:
        if error.errno not in DAMAGE_ERRNOS:
            raise
        return bytes(size)


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Write or replace a file: write a temporary file, fsync it, rename it, fsync the directory. Durable on return."""
    tmp = path.with_name(path.name + TMP_SUFFIX)
    fds = [disk.open_file(tmp, create=True), disk.open_directory(path.parent)]
    batch = disk.batch()
    batch.truncate(fds[0], 0)
    batch.write(fds[0], [data], 0)
    batch.sync(fds[0])
    batch.rename(bytes(tmp), bytes(path))
    batch.sync(fds[1])
    try:
        disk.perform(batch)
    finally:
        for fd in fds:
            disk.close_file(fd)
