"""What a log is opened with: options and sizes, and what an opening has found.

Made by `open_log` (store/log_open.py), taken by the layers of a log in files (store/log.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from jetraft.store import trimmed
from jetraft.store.backlog import LogPlace
from jetraft.store.block import BlockList
from jetraft.store.block_cache import BlockCache
from jetraft.store.keyring import Secrets
from jetraft.store.ledger_records import GroupState, Point
from jetraft.store.port import HardState
from jetraft.store.prepare import DEFAULT_SIZES, PieceSizes
from jetraft.store.recovery import FoundBlock, RecoveryMode, RecoveryReport

if TYPE_CHECKING:
    from jetraft.store.log import FileLog

BLOCK_BYTES_FIRST: Final = 64 << 10  # a thousand small streams reserve 64 MB; a large one rolls once more
BLOCK_BYTES_MAX: Final = 32 << 20  # a trim gives space back in these steps; a roll costs three fsyncs
BLOCK_GROWTH: Final = 4


@attrs.frozen(kw_only=True, slots=True)
class LogOptions:
    """How a log is opened, and the sizes of its blocks: each BLOCK_GROWTH times the one before, up to the maximum.

    `room_bytes` is asked when a block begins: with little room it is smaller (store/space.py). None: there is plenty.
    """

    block_bytes_first: int = BLOCK_BYTES_FIRST
    block_bytes_max: int = BLOCK_BYTES_MAX
    room_bytes: Callable[[], int] | None = None
    pieces: PieceSizes = DEFAULT_SIZES  # of zeros ahead of a growing block
    mode: RecoveryMode = RecoveryMode.TORN_TAIL
    accept_lost_hard_state: bool = False  # open without knowing for whom this member voted: it must not vote then
    distrust_cache: bool = False  # a write or fsync has failed before: read everything from the device
    secrets: Secrets | None = None  # of the configuration, for what is encrypted


DEFAULT_OPTIONS: Final = LogOptions()


class OpenAgain(Protocol):
    """Opens a log again, or the one that was installed in its place."""

    def __call__(
        self, place: LogPlace, cache: BlockCache, options: LogOptions, *, installed: GroupState | None = None
    ) -> "FileLog":
        """See `open_log`."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class LogStart:
    """What a log begins with: an empty one, or what store/log_open.py found on disk."""

    blocks: BlockList
    hard_state: HardState
    serial: int  # of the next block
    dropped: trimmed.Ranges
    checkpoints: tuple[int, ...]
    founding: bytes | None  # the members with which the log began, see GroupState
    new_directories: tuple[Path, ...]  # whose entries are not durable yet
    has_files: bool  # in them
    facts: tuple[bytes, ...]  # records of the ledger that the first batch must add
    superfluous: tuple[Path, ...]  # files to be removed once the facts are durable
    continues: bool  # the newest block can go on growing: it is sound, and nothing but zeros is behind its end
    torn: bool
    hard_state_lost: bool
    floor_index: int  # up to here the ledger knows that the log is durable
    report: RecoveryReport
    damaged: tuple[FoundBlock, ...]  # blocks with gaps or a damaged head
    identities: tuple[Point, ...]  # entries whose terms are known apart from their bytes
    open_again: "OpenAgain"  # one for all logs
