"""Room for a new block on a real file system that has little: as much as there is, and a head that says how much."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetraft.store.disk.io import LocalDisk, Writer
from tests.harness.small_disk import small_disks

DISK_KIB = 512
HEADS = {size: b"head of %d." % size for size in (1 << 20, 128 << 10)}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    with small_disks([place], DISK_KIB):
        yield place


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    writer = Writer()
    yield LocalDisk(writer)
    writer.stop()


def reserve(disk: LocalDisk, path: Path, took: list[int]) -> None:
    fd = disk.open_file(path, create=True)
    batch = disk.batch()
    batch.reserve(fd, list(HEADS.items()), took.append)
    batch.sync(fd)
    try:
        disk.perform(batch)
    finally:
        disk.close_file(fd)


def test_with_room_the_first_size_is_had(tmp_path: Path, disk: LocalDisk) -> None:
    took: list[int] = []
    reserve(disk, tmp_path / "block", took)
    content = (tmp_path / "block").read_bytes()
    assert (took, len(content), content.rstrip(b"\0")) == ([1 << 20], 1 << 20, HEADS[1 << 20])


def test_without_it_the_next_one_and_its_head(small: Path, disk: LocalDisk) -> None:
    took: list[int] = []
    reserve(disk, small / "block", took)
    content = (small / "block").read_bytes()
    assert (took, len(content), content.rstrip(b"\0")) == ([128 << 10], 128 << 10, HEADS[128 << 10])


def test_with_hardly_any_it_fails_and_nothing_is_taken(small: Path, disk: LocalDisk) -> None:
    (small / "ballast").write_bytes(bytes((DISK_KIB - 64) << 10))
    free_before = os.statvfs(small).f_bavail
    took: list[int] = []
    with pytest.raises(OSError, match="allocate: No space") as failed:
        reserve(disk, small / "block", took)
    assert failed.value.errno == errno.ENOSPC
    assert took == []
    assert (small / "block").stat().st_size == 0
    assert os.statvfs(small).f_bavail == free_before
