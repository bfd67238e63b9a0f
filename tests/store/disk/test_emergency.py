"""The file that holds room for the logs: there while a disk fills up, given up when they have no other."""

from pathlib import Path

import pytest

from jetraft.store.disk.emergency import EMERGENCY_NAME, NEAR_FACTOR, PLENTY_FACTOR, EmergencyAction, EmergencyFile
from jetraft.store.disk.io import LocalDisk, Writer

RESERVE, NEED = 1 << 20, 64 << 10


def judge(file: EmergencyFile, free_bytes: int, need_bytes: int = NEED) -> EmergencyAction:
    return file.judge(free_bytes=free_bytes, reserve_bytes=RESERVE, need_bytes=need_bytes)


def test_on_a_disk_with_plenty_of_room_there_is_none(tmp_path: Path) -> None:
    assert judge(EmergencyFile.of(LocalDisk(Writer(1)), tmp_path), 1 << 40) is EmergencyAction.KEEP


def test_it_is_made_while_the_disk_fills_up_and_there_is_still_room(tmp_path: Path) -> None:
    file = EmergencyFile.of(LocalDisk(Writer(1)), tmp_path)
    assert judge(file, NEAR_FACTOR * RESERVE - 1) is EmergencyAction.MAKE
    assert judge(file, RESERVE * 5 // 4 + NEED) is EmergencyAction.MAKE
    assert judge(file, RESERVE * 5 // 4 + NEED - 1) is EmergencyAction.KEEP, "it would itself stop the publishers"


def test_it_takes_its_room_and_gives_it_back(tmp_path: Path) -> None:
    file = EmergencyFile.of(LocalDisk(Writer(1)), tmp_path)
    file.make(NEED)
    found = (tmp_path / EMERGENCY_NAME).stat()
    assert (found.st_size, found.st_blocks * 512 >= NEED, found.st_mode & 0o777) == (NEED, True, 0o600)
    assert judge(file, 2 * RESERVE) is EmergencyAction.KEEP
    assert judge(file, NEED - 1) is EmergencyAction.REMOVE
    file.remove()
    assert not (tmp_path / EMERGENCY_NAME).exists()
    assert judge(file, NEED - 1) is EmergencyAction.KEEP


def test_one_of_an_earlier_process_is_given_up_too(tmp_path: Path) -> None:
    EmergencyFile.of(LocalDisk(Writer(1)), tmp_path).make(NEED)
    assert judge(EmergencyFile.of(LocalDisk(Writer(1)), tmp_path), 0) is EmergencyAction.REMOVE


def test_it_goes_when_there_is_plenty_again(tmp_path: Path) -> None:
    file = EmergencyFile.of(LocalDisk(Writer(1)), tmp_path)
    file.make(NEED)
    assert judge(file, PLENTY_FACTOR * RESERVE - 1) is EmergencyAction.KEEP
    assert judge(file, PLENTY_FACTOR * RESERVE) is EmergencyAction.REMOVE


def test_it_grows_with_the_logs(tmp_path: Path) -> None:
    file = EmergencyFile.of(LocalDisk(Writer(1)), tmp_path)
    file.make(NEED)
    assert judge(file, 2 * RESERVE, need_bytes=4 * NEED) is EmergencyAction.MAKE
    file.make(4 * NEED)
    assert file.allocated_bytes == 4 * NEED


def test_one_that_cannot_be_made_holds_nothing(tmp_path: Path) -> None:
    file = EmergencyFile.of(LocalDisk(Writer(1)), tmp_path)
    with pytest.raises(OSError, match=r"too large|No space"):
        file.make(1 << 62)
    assert file.allocated_bytes == 0
    assert not (tmp_path / EMERGENCY_NAME).exists()
