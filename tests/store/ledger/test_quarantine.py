"""Copies of what could not be used are found, age from when they are seen first, and go with their group."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.ledger import quarantine
from jetraft.store.ledger.quarantine import KeptCopy
from jetraft.store.model.ids import GroupId

S = GroupId("S-R3F-abcdefgh")
T = GroupId("S-R1F-ijklmnop")


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    writer = Writer()
    yield LocalDisk(writer)
    writer.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for place in (
        f"quarantine/{S}.7/log-00000001",
        f"quarantine/{T}.9",
        "quarantine/notes",  # no group: an operator's own
        f"groups/{S}.7/quarantine",
        f"groups/{S}.7/log-00000002",
        f"groups/{T}.9/unrecorded",
        f"groups/{T}.9/quarantine",
    ):
        (tmp_path / place).mkdir(parents=True)
        if place != f"groups/{T}.9/quarantine":  # that is empty: an erasure has removed what was in it
            (tmp_path / place / "bytes").write_bytes(b"x" * 5000)
    return tmp_path


def named(copies: list[KeptCopy], root: Path) -> dict[str, bool]:
    return {str(copy.path.relative_to(root)): copy.is_log for copy in copies}


def test_all_that_is_kept_is_found_with_its_group_and_size(disk: LocalDisk, root: Path) -> None:
    found = quarantine.copies(disk, root)
    assert named(found, root) == {
        f"quarantine/{S}.7": True,
        f"quarantine/{T}.9": True,
        f"groups/{S}.7/quarantine": False,
        f"groups/{T}.9/unrecorded": True,
    }
    assert {copy.group for copy in found} == {(S, 7), (T, 9)}
    assert all(copy.bytes >= 5000 and copy.seen_ns == 0 for copy in found)
    assert named(quarantine.copies_aside(disk, root), root) == {f"quarantine/{S}.7": True, f"quarantine/{T}.9": True}


def test_a_copy_ages_from_when_it_is_seen_first(disk: LocalDisk, root: Path) -> None:
    (first, *_) = quarantine.copies(disk, root)
    assert quarantine.note_seen(disk, first, 100).seen_ns == 100
    (again, *_) = quarantine.copies(disk, root)
    assert again.seen_ns == 100
    assert quarantine.note_seen(disk, again, 200).seen_ns == 100
    (first.path / quarantine.SEEN_NAME).write_bytes(b"torn")
    (torn, *_) = quarantine.copies(disk, root)
    assert quarantine.note_seen(disk, torn, 300).seen_ns == 300


def test_what_is_kept_of_a_group_that_is_gone_is_removed_in_all_its_incarnations(disk: LocalDisk, root: Path) -> None:
    (root / "quarantine" / f"{S}.12").mkdir()
    quarantine.remove_aside(disk, root, S)
    assert sorted(path.name for path in (root / "quarantine").iterdir()) == [f"{T}.9", "notes"]


def test_a_copy_that_has_gone_meanwhile_is_not_looked_for(disk: LocalDisk, root: Path) -> None:
    found = quarantine.copies(disk, root)
    quarantine.remove(disk, found[0])
    assert quarantine.still_there(disk, found) == found[1:]
