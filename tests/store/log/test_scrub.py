"""Which block is read next, how fast, and what a reading finds."""

from pathlib import Path

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.scrub import Scrub, Target, verify
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.store.ledgers import ledger_of

GROUP = Path("/groups/S-R1F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)


def target(name: str, size: int = 1000) -> Target:
    return Target(path=Path(name), identity=IDENTITY, first_index=1, last_index=9, size=size)


def entry(index: int) -> Entry:
    frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=b"x" * 100)
    return Entry(index=index, term=1, kind=Kind.NOOP, frame=frame)


def opened(disk: LossyDisk) -> FileLog:
    return open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, BlockCache())


def test_every_block_is_read_once_in_a_round() -> None:
    scrub = Scrub()
    blocks = [target("a"), target("b"), target("c")]
    seen = []
    while (found := scrub.next_target(blocks)) is not None:
        seen.append(found.path.name)
        scrub.note(found, damaged=found.path.name == "b")
    assert seen == ["a", "b", "c"]
    assert scrub.next_target(blocks) == blocks[0]
    figures = scrub.statistics()
    assert (figures.rounds, figures.blocks_verified, figures.bytes_verified, figures.blocks_damaged) == (1, 3, 3000, 1)


def test_rests_fill_the_period_and_keep_the_rate() -> None:
    scrub = Scrub(period_ns=100 * NS_PER_S, bytes_per_s_max=1000)
    assert scrub.rest_ns(target("a", 1000), 4000) == 25 * NS_PER_S
    assert scrub.rest_ns(target("a", 1000), 1_000_000) == NS_PER_S


def test_what_is_durable_of_a_growing_block_is_verified_and_all_of_a_sealed_one() -> None:
    disk = LossyDisk()
    log = opened(disk)
    log.append([entry(1), entry(2)])
    log.submit()
    assert log.upkeep.scrub_targets() == []
    disk.finish()
    (growing,) = log.upkeep.scrub_targets()
    verify(disk, growing)
    log.close()
    log = opened(disk)
    log.roll_early()
    log.append([entry(3)])
    log.submit()
    disk.finish()

    found, growing = log.upkeep.scrub_targets()

    assert (growing.first_index, growing.last_index) == (3, 3)
    assert (found.first_index, found.last_index) == (1, 2)
    verify(disk, found)
    disk.flip_bit(found.path, BLOCK_HEAD_BYTES + 148 + 60)
    with pytest.raises(StoreCorrupt, match="entry 2"):
        verify(disk, found)
    disk.flip_bit(found.path, BLOCK_HEAD_BYTES + 148 + 60)
    with pytest.raises(StoreCorrupt):
        verify(disk, attrs.evolve(found, last_index=3))
    disk.flip_bit(found.path, 3)
    with pytest.raises(StoreCorrupt):
        verify(disk, found)
