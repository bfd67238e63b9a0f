"""A bad disk of one group ends that group on its node, and nothing else: not the node, nor its other groups."""

import errno
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSpec
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, CHECKPOINT_SUFFIX, Identity, Kind
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.scrub import verify
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.raft.lab import MS, Lab, ListMachine

A, B, C = (NodeId(letter * 8) for letter in "ABC")
ONE, TWO = GroupId("S-R3F-test0001"), GroupId("S-R3F-test0002")
BODY = b"x" * 5000  # more than a page
SMALL_BLOCKS = LogOptions(block_bytes_first=16 << 10, block_bytes_max=16 << 10)


@attrs.define(eq=False)
class WornDisk(LossyDisk):
    """A disk that cannot read some places of some files."""

    bad: set[Path] = attrs.Factory(set)

    def __attrs_post_init__(self) -> None:
        super().__init__()

    def read(self, fd: int, size: int, offset: int) -> bytes:
        for path in self.bad:
            file = self._directory(path.parent).names.get(path.name)
            if file is self._file(fd) and offset <= BLOCK_HEAD_BYTES + 4096 < offset + size:
                raise OSError(errno.EIO, "Input/output error")
        return super().read(fd, size, offset)


@attrs.define
class FileLab(Lab):
    """The lab with logs in files: two groups a node, one ledger."""

    disks: dict[NodeId, WornDisk] = attrs.Factory(dict)

    def create_both(self) -> None:
        for node in self.nodes:
            disk = self.disks[node] = WornDisk()
            ledger = Ledger.open(disk, Path("/store"))
            for group_id in (ONE, TWO):
                identity = Identity(node_id=node, group_id=group_id, incarnation=7)
                log = open_log(ledger, directory(group_id), identity, BlockCache(1), SMALL_BLOCKS)
                spec = GroupSpec(group_id=group_id, incarnation=7, members=self.nodes, preferred_leader=A)
                self.managers[node].create(spec, log, ListMachine())

    def settle(self) -> None:
        for _ in range(4):
            super().settle()
            for disk in self.disks.values():
                disk.finish()
        super().settle()

    def group(self, node: NodeId, group_id: GroupId) -> Group:
        return self.managers[node].groups[group_id]


def directory(group_id: GroupId) -> Path:
    return Path("/store/groups", group_id)


def block_of(group_id: GroupId) -> Path:
    return directory(group_id) / "log-00000001" / "00000000000000000001-00000001.blk"


@pytest.fixture
def lab() -> FileLab:
    """A leads both groups; C was cut off while ten entries were written."""
    found = FileLab((A, B, C), checkpoints=CheckpointPolicy(applied_bytes_min=1 << 40, applied_entries_min=1 << 40))
    found.create_both()
    found.run(1000 * MS)
    for other in (A, B):
        found.unlink(other, C)
    for _ in range(10):
        for group_id in (ONE, TWO):
            found.group(A, group_id).propose(Proposal(kind=Kind.META, body=BODY))
        found.settle()
    return found


def unreadable(lab: FileLab) -> None:
    lab.disks[A].bad.add(block_of(ONE))


def damaged(lab: FileLab) -> None:
    lab.disks[A].flip_bit(block_of(ONE), BLOCK_HEAD_BYTES + 4096)


@pytest.mark.parametrize("harm", [unreadable, damaged])
def test_a_leader_that_cannot_read_what_a_peer_lacks_ends_that_group_only(
    lab: FileLab, harm: Callable[[FileLab], None]
) -> None:
    harm(lab)
    lab.link(A, C)
    lab.run(100 * MS)
    lab.link(B, C)
    lab.run(3000 * MS)

    assert isinstance(lab.group(A, ONE).failed, StoreCorrupt | OSError)
    assert lab.group(A, ONE).statistics().failed is not None
    assert lab.managers[A].statistics().groups_failed == 1
    assert lab.group(B, ONE).is_leader, "the others go on"
    assert lab.group(C, TWO).log.last_index >= 11, "and so does the node"
    assert lab.group(A, TWO).failed is None


async def test_a_checkpoint_that_cannot_be_read_ends_no_group_before_somebody_wants_it(lab: FileLab) -> None:
    """Offers read nothing; who serves one reports what it found (test_catchup.py)."""
    for _ in range(3):
        lab.group(A, ONE).checkpoint()
        lab.settle()
        lab.group(A, ONE).propose(Proposal(kind=Kind.META, body=BODY))
        lab.settle()
    assert lab.group(A, ONE).log.first_index > 2
    lab.link(A, C)
    lab.run(20 * MS)
    for name in lab.disks[A].list_directory(block_of(ONE).parent):
        if name.endswith(CHECKPOINT_SUFFIX):
            lab.disks[A].flip_bit(block_of(ONE).parent / name, 60)

    lab.run(5000 * MS)

    with pytest.raises(StoreCorrupt):
        await lab.group(A, ONE).read_snapshot()
    assert lab.group(A, ONE).failed is lab.group(A, TWO).failed is None
    assert lab.group(C, TWO).log.last_index >= 11


def test_what_the_device_cannot_read_is_damage_and_is_mended_in_another_place(lab: FileLab) -> None:
    lab.disks[A].bad.add(block_of(ONE))
    for group_id in (ONE, TWO):
        lab.managers[A].groups[group_id].log.close()
    identity = Identity(node_id=A, group_id=ONE, incarnation=7)
    ledger = Ledger.open(lab.disks[A], Path("/store"))

    log = open_log(ledger, directory(ONE), identity, BlockCache(), LogOptions(mode=RecoveryMode.SALVAGE))

    assert log.damaged_entries
    assert log.last_index == lab.group(B, ONE).log.last_index


def test_the_scrubber_takes_what_the_device_cannot_read_for_damage(lab: FileLab) -> None:
    lab.disks[A].bad.add(block_of(ONE))
    log = lab.group(A, ONE).log
    assert isinstance(log, FileLog)

    with pytest.raises(StoreCorrupt, match="cannot be read"):
        verify(lab.disks[A], log.upkeep.scrub_targets()[0])
