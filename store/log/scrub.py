"""Verifies every block and checkpoint once in a period, to find bit rot while another member has the bytes.

Of a block that grows, what is durable is verified.

`Scrub` is pure planning: it says which block is next, and how long to rest after it, so that reads are spread evenly
over the period and stay below a rate. Blocks are taken in the order of the logs. Verified blocks are remembered by
path, so blocks may appear and disappear during a round. `verify` is the blocking read.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.disk.copies import DAMAGE_ERRNOS
from jetraft.store.disk.io import Disk
from jetraft.store.frames import checkpoint as checkpoint_file
from jetraft.store.frames._frame import scan
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, Identity, unpack_block_head
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import StoreCorrupt

PERIOD_NS: Final = 7 * 24 * 3600 * NS_PER_S  # a week, as ZFS and disk arrays are commonly scrubbed
IDLE_NS: Final = 60 * NS_PER_S  # between rounds; in a new store it takes a while until a block no longer grows
BYTES_PER_S_MAX: Final = 32 << 20  # a twentieth of what one SATA disk reads: publishers must not notice


@attrs.frozen(kw_only=True, slots=True)
class Target:
    """A block, and the entries that must be in it; or a checkpoint, and the entry that it is of."""

    path: Path
    identity: Identity
    first_index: int
    last_index: int
    size: int  # bytes used
    is_checkpoint: bool = False


@attrs.frozen(kw_only=True, slots=True)
class ScrubStatistics:
    """A snapshot of the figures of a scrub."""

    blocks_verified: int
    bytes_verified: int
    blocks_damaged: int
    rounds: int


class Scrub:
    """Chooses the next block. One for all logs of a node."""

    def __init__(self, *, period_ns: int = PERIOD_NS, bytes_per_s_max: int = BYTES_PER_S_MAX) -> None:
        self._period_ns = period_ns
        self._bytes_per_s_max = bytes_per_s_max
        self._verified: set[Path] = set()  # in the current round
        self._blocks = self._bytes = self._damaged = self._rounds = 0

    def next_target(self, targets: Iterable[Target]) -> Target | None:
        """The first block that is not verified in this round. None when all are: a new round begins."""
        for target in targets:
            if target.path not in self._verified:
                return target
        if self._verified:
            self._rounds += 1
        self._verified.clear()
        return None

    @property
    def idle_ns(self) -> int:
        """How long to wait after a round, or when there is no block to verify."""
        return min(IDLE_NS, self._period_ns)

    def rest_ns(self, target: Target, bytes_total: int) -> int:
        """How long to rest after this block when all blocks together have `bytes_total`."""
        evenly = self._period_ns * target.size // max(bytes_total, target.size)
        return max(evenly, target.size * NS_PER_S // self._bytes_per_s_max)

    def note(self, target: Target, *, damaged: bool) -> None:
        """Note that this block was read."""
        self._verified.add(target.path)
        self._blocks += 1
        self._bytes += target.size
        self._damaged += damaged

    def statistics(self) -> ScrubStatistics:
        """Figures for monitoring and tests."""
        return ScrubStatistics(
            blocks_verified=self._blocks,
            bytes_verified=self._bytes,
            blocks_damaged=self._damaged,
            rounds=self._rounds,
        )


def verify(disk: Disk, target: Target) -> None:
    """Read a file from the device and check all of it. Raises StoreCorrupt, or OSError when it is gone. Blocking."""
    fd = disk.open_file(target.path)
    try:
        disk.forget_cached(fd)
        data = disk.read(fd, disk.size(fd), 0)
    except OSError as error:
        if error.errno not in DAMAGE_ERRNOS:
            raise
        raise StoreCorrupt(f"{target.path}: cannot be read: {error}") from error
    finally:
        disk.close_file(fd)
    if target.is_checkpoint:
        checkpoint_file.unpack(data, target.identity, what=str(target.path), index=target.last_index)
        return
    head = unpack_block_head(data[:BLOCK_HEAD_BYTES], target.identity, what=str(target.path))
    walk = scan(
        data,
        offset=BLOCK_HEAD_BYTES,
        incarnation=target.identity.incarnation,
        next_index=head.first_index,
        term=head.boundary_term,
        last_index=target.last_index,
    )
    if head.first_index != target.first_index or walk.next_index != target.last_index + 1:
        raise StoreCorrupt(f"{target.path}: entry {walk.next_index} at byte {walk.end} is damaged")


def verify_twice(disk: Disk, target: Target) -> None:
    """Verify, and again on failure: a frame that is being overwritten in place looks damaged for a moment."""
    try:
        verify(disk, target)
    except StoreCorrupt:
        verify(disk, target)


def bytes_of(targets: Sequence[Target]) -> int:
    """The bytes of all targets."""
    return sum(target.size for target in targets)
