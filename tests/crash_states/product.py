"""Everything that the explorer knows of the product's construction: paths, names, identities, options, `open_log`.

A change of how a node or a log is opened is made here and nowhere else in this package.
"""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames.format import BLOCK_SUFFIX, Identity
from jetraft.store.frames.keyring import Secrets
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.ledger.ledger_records import GroupKey
from jetraft.store.log.opening import open_log
from jetraft.store.log.preallocate import PieceSizes
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.stream.retention import UNLIMITED, StoreLimits

if TYPE_CHECKING:
    from jetraft.store.log.file_log import FileLog
    from tests.doubles.lossy_disk import LossyDisk

INCARNATION: Final = 7
_STORE: Final = Path("/store")
_GROUPS: Final = _STORE / "groups"
OWN: Final = NodeId("N1234567")
_DONOR: Final = NodeId("N7654321")
ASSUMED_BYTES: Final = 2000  # where so many may begin in the ledger, they are assumed
_CACHE_BYTES: Final = 1500  # so small that most reads go to the disk
_PIECES: Final = PieceSizes(after_batches=1, piece_bytes=512, piece_batches_min=1, step_bytes=128, aligned_bytes=32)
_LIMITS: Final = (
    StoreLimits(max_msgs_per_subject=1),
    StoreLimits(max_msgs_per_subject=1),
    StoreLimits(max_msgs=25, max_msgs_per_subject=3),
    StoreLimits(),
)


@attrs.frozen(kw_only=True)
class Setup:
    """What a node and its groups are opened with, for the length of a life."""

    groups: int = 1
    block_bytes: int = 1500
    secrets: Secrets | None = None
    is_compressed: bool = False  # whether blocks are packed when they are compacted
    mode: RecoveryMode = RecoveryMode.SALVAGE
    begun_bytes: int = 0  # of the first entries, which the ledger keeps; 0: blocks have all
    is_assumed: bool = False  # what a log begins with follows from something durable, and counts at once
    limits: StoreLimits = attrs.Factory(lambda: StoreLimits(max_msgs_per_subject=1))

    @classmethod
    def drawn(cls, random: Random) -> "Setup":
        """One of those that differ in what recovery has to do."""
        drawn = cls(
            groups=random.choice([1, 1, 1, 2]),
            block_bytes=random.choice([700, 1500, 4000]),
            secrets=Secrets(key=b"k" * 32) if random.random() < 0.25 else None,
            is_compressed=random.random() < 0.25,
            mode=random.choice([RecoveryMode.SALVAGE, RecoveryMode.TORN_TAIL]),
            limits=random.choice(_LIMITS),
            begun_bytes=random.choice([0, 0, 400, ASSUMED_BYTES]),
        )
        return attrs.evolve(drawn, is_assumed=drawn.begun_bytes == ASSUMED_BYTES)

    def __str__(self) -> str:
        words = [f"{self.groups} group(s)", f"blocks of {self.block_bytes} bytes", self.mode.value]
        words += ["encrypted"] if self.secrets else []
        words += ["compressed"] if self.is_compressed else []
        words += [f"{self.begun_bytes} bytes begin in the ledger"] if self.begun_bytes else []
        words += ["the beginning is assumed"] if self.is_assumed else []
        names = ("max_msgs", "max_msgs_per_subject")
        words += [f"{name} {value}" for name in names if (value := getattr(self.limits, name)) != UNLIMITED]
        return ", ".join(words)


class Node:
    """A started node: what its groups share. Starting one reads the disk as a process does that has just begun."""

    def __init__(self, disk: "LossyDisk", setup: Setup, *, is_donor: bool = False) -> None:
        known = [_key(number) for number in range(setup.groups) if disk.list_directory(_path(_key(number)))]
        self._ledger = Ledger.open(disk, _STORE, known)
        self._node_id = _DONOR if is_donor else OWN
        self._options = LogOptions(
            block_bytes_first=setup.block_bytes,
            block_bytes_max=setup.block_bytes,
            pieces=_PIECES,
            mode=setup.mode,
            secrets=setup.secrets,
            begun_bytes_max=setup.begun_bytes,
        )

    def open(self, group: int) -> "FileLog":
        """The log of a group, made if there is none. Raises what `open_log` raises."""
        key = _key(group)
        identity = Identity(node_id=self._node_id, group_id=key[0], incarnation=key[1])
        return open_log(self._ledger, _path(key), identity, BlockCache(bytes_max=_CACHE_BYTES), self._options)


def _key(group: int) -> GroupKey:
    return GroupId(f"S-R3F-group00{group}"), INCARNATION


def _path(key: GroupKey) -> Path:
    return _GROUPS / f"{key[0]}.{key[1]}"


def format_disk(disk: "LossyDisk") -> None:
    """The directories that a node's first start has made durable."""
    disk.make_directory(_GROUPS)  # as NodeDir.open
    disk.sync_names()


def has_failure(log: "FileLog") -> str | None:
    """What an opening found damaged; None when it took everything for sound. No crash may leave damage."""
    if log.hard_state_lost:
        return "term and vote are lost"
    if log.damaged_entries or log.lost or log.damaged_blocks:
        return f"entries {log.damaged_entries or log.lost} are damaged, in {len(log.damaged_blocks)} blocks"
    return None


def is_block(path: Path) -> bool:
    """Whether a file holds entries."""
    return path.name.endswith(BLOCK_SUFFIX)
