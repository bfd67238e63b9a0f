"""The parameters of an opening: options and sizes, and the findings of an opening.

`open_log` (store/log/opening.py) makes them, `FileLog` (store/log/file_log.py) takes them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.blocks.block import BlockList
from jetraft.store.frames.keyring import Secrets
from jetraft.store.ledger.ledger_records import Point
from jetraft.store.log.preallocate import DEFAULT_SIZES, PieceSizes
from jetraft.store.log.recovery import FoundBlock, RecoveryMode, RecoveryReport
from jetraft.store.model.files import index_ranges
from jetraft.store.model.files.block_sizes import BLOCK_BYTES_FIRST, BLOCK_BYTES_MAX
from jetraft.store.port import Entry, HardState

BLOCK_GROWTH: Final = 4
BEGUN_BYTES_MAX: Final = 2 << 10  # a stream's configuration takes some 600 bytes; all logs share the ledger


@attrs.frozen(kw_only=True, slots=True)
class LogOptions:
    """How a log is opened, and the sizes of its blocks: each BLOCK_GROWTH times the one before, up to the maximum.

    `available_bytes` is called when a block starts: with little space the block is smaller (store/disk/space.py). None:
    space is not limited.
    """

    block_bytes_first: int = BLOCK_BYTES_FIRST
    block_bytes_max: int = BLOCK_BYTES_MAX
    available_bytes: Callable[[], int] | None = None
    pieces: PieceSizes = DEFAULT_SIZES  # of zeros ahead of a growing block
    mode: RecoveryMode = RecoveryMode.TORN_TAIL
    accept_lost_hard_state: bool = False  # open without term and vote: this member must not vote then
    distrust_cache: bool = False  # a write or fsync has failed: read everything from the device
    secrets: Secrets | None = None  # the configured keys, for an encrypted store
    begun_bytes_max: int = 0  # of the first entries, which the ledger keeps until there is a block; 0: none
    end_index: int = 0  # how far the log may have gone according to others (raft/recovery/repair_end.py); 0: unknown


DEFAULT_OPTIONS: Final = LogOptions()


@attrs.frozen(kw_only=True, slots=True)
class LogStart:
    """The start of a log: nothing, or what store/log/opening.py found on disk."""

    blocks: BlockList
    hard_state: HardState
    serial: int  # of the next block
    dropped: index_ranges.Ranges
    checkpoints: tuple[int, ...]
    founding: bytes | None  # the members with which the log began, see GroupState
    begun: tuple[Entry, ...]  # its first entries, when only the ledger has them
    new_directories: tuple[Path, ...]  # whose directory entries are not durable yet
    has_files: bool  # whether the log has any file
    facts: tuple[bytes, ...]  # records of the ledger that the first batch must add
    superfluous: tuple[Path, ...]  # files to be removed once the facts are durable
    continues: bool  # the newest block can grow on: it is sound, and only zeros follow its end
    torn: bool
    hard_state_lost: bool
    floor_index: int  # up to here the ledger knows that the log is durable
    report: RecoveryReport
    damaged_blocks: tuple[FoundBlock, ...]  # blocks with gaps or a damaged head
    identities: tuple[Point, ...]  # entries whose terms are known apart from their bytes
