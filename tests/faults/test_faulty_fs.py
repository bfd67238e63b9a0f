"""The instruments themselves: disks that fail must fail in the way in which the tests that use them believe."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.disk.mounts import FaultyDisk, missing


@pytest.fixture(scope="module")
def reason() -> str | None:
    """Why no disk can be hurt here, found out once."""
    return missing()


@pytest.fixture
def disk(tmp_path: Path, reason: str | None) -> Iterator[FaultyDisk]:
    if reason is not None:
        pytest.skip(f"DISK FAULTS NOT RUN: {reason}")
    with FaultyDisk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def file(disk: FaultyDisk) -> Iterator[int]:
    """A file of five durable bytes, in a durable directory."""
    fd = os.open(disk.directory / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"hello", 0)
    os.fsync(fd)
    directory = os.open(disk.directory, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    yield fd
    with suppress(OSError):  # the disk was cut off under it
        os.close(fd)


def test_a_failed_fsync_loses_the_bytes_and_the_next_one_says_that_all_is_well(disk: FaultyDisk, file: int) -> None:
    assert os.pread(file, 5, 0) == b"hello"  # now the page is in the cache
    os.pwrite(file, b"HELLO", 0)
    disk.order(fail="fsync")
    with pytest.raises(OSError, match="Input/output"):
        os.fsync(file)
    os.fsync(file)
    assert os.pread(file, 5, 0) == b"HELLO", "the page cache lies"
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(file, 5, 0) == b"hello"


def test_a_failed_write_is_torn(disk: FaultyDisk, file: int) -> None:
    disk.order(fail="write", errno=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        os.pwrite(file, b"ABCD", 0)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(file, 5, 0) == b"ABllo"


def test_a_power_cut_takes_what_was_not_fsynced(disk: FaultyDisk, file: int) -> None:
    left = set()
    for seed in range(20):
        (disk.directory / "new").write_bytes(b"x")
        with (disk.directory / "file").open("r+b") as again:
            again.write(b"HELLO")
        disk.cut(seed)
        left.add(((disk.directory / "file").read_bytes(), (disk.directory / "new").exists()))
    assert file
    assert {content for content, _ in left} <= {b"hello", b"HELLO"}
    assert len(left) > 1


def test_a_full_disk_says_so_and_has_room_again(disk: FaultyDisk, file: int) -> None:
    disk.order(capacity_bytes=8192)
    assert os.statvfs(disk.directory).f_bavail * 4096 <= 8192
    with pytest.raises(OSError, match="No space"):
        os.posix_fallocate(file, 0, 10_000)
    disk.order(capacity_bytes=1 << 40)
    os.posix_fallocate(file, 0, 10_000)


def test_what_is_read_only_takes_no_write(disk: FaultyDisk, file: int) -> None:
    disk.order(read_only=True)
    with pytest.raises(OSError, match="Read-only"):
        os.pwrite(file, b"x", 0)
    assert os.pread(file, 5, 0) == b"hello"


def test_what_is_still_to_fail_is_told_and_can_be_called_off(disk: FaultyDisk, file: int) -> None:
    assert disk.order(fail="fsync", errno=errno.EIO, count=2)["pending"] == 2
    with pytest.raises(OSError, match="Input/output"):
        os.fsync(file)
    assert disk.order()["pending"] == 1
    disk.order(forget=True)
    os.fsync(file)
