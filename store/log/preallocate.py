"""Writes zeros ahead of a growing block, so that an fdatasync of frames does not have to commit extents.

A block is allocated at once, but the file system records for each extent whether it was ever written. The first write
to an unwritten extent changes that record, and the next fdatasync must commit the file system's journal too: on ext4
170 us instead of 85 for a small batch, 380 instead of 160 for one of 128 KiB (measured). So a second writer thread
writes and syncs zeros where frames will be written, a piece at a time, while the log goes on.

An allocated extent reads as zeros anyway, so recovery does not depend on them. But zeros must never overwrite frames.
A piece therefore starts at a distance after everything that was handed to the writer. A batch waits until the piece is
done if it would reach the piece, or if it does anything but append to the block.

An fdatasync of frames writes every dirty page of the file, zeros included. So a piece is written in small steps, each
synced before the next: with 1 MiB at a time, one publish in fifty had to wait for zeros and took 4 ms instead of 0.9.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.blocks.block import Block
from jetraft.store.disk.io import Batch, Disk
from jetraft.store.frames.format import MARK_BYTES
from jetraft.store.log._growth import WriteQueue

PREPARE_AFTER_BATCHES: Final = 16  # a block that hardly grows needs no zeros; most of a thousand streams are idle
PIECE_BYTES: Final = 1 << 20  # at small batches: thousands of them
PIECE_BATCHES_MIN: Final = 8  # a piece is made in the time of a few batches, and should last for more
BATCH_BYTES_MAX: Final = 96 << 10  # larger batches spend their time on writing; writing twice would cost more
DISTANCE_BATCHES: Final = 4  # what arrives while a piece is written
STEP_BYTES: Final = 128 << 10  # written and synced at a time: the frames' own fdatasync waits for that much
ALIGNED_BYTES: Final = 4096  # a page
BATCH_WEIGHT: Final = 0.1  # of the newest batch in the moving average of their sizes


@attrs.frozen(kw_only=True, slots=True)
class PieceSizes:
    """When a piece is prepared, and how large it is."""

    after_batches: int = PREPARE_AFTER_BATCHES
    piece_bytes: int = PIECE_BYTES
    piece_batches_min: int = PIECE_BATCHES_MIN
    step_bytes: int = STEP_BYTES
    aligned_bytes: int = ALIGNED_BYTES


DEFAULT_SIZES: Final = PieceSizes()
DEFAULT_ZEROS: Final = bytes(STEP_BYTES)  # one for all logs


@attrs.frozen(kw_only=True, slots=True)
class Piece:
    """Bytes `start` to `end` of a block's file, which zeros are written to."""

    block: Block
    start: int
    end: int


class Preparation:
    """How far the growing block is filled with zeros. At most one piece is being written."""

    def __init__(self, sizes: PieceSizes = DEFAULT_SIZES) -> None:
        self._sizes = sizes
        self._zeros = DEFAULT_ZEROS if sizes.step_bytes == STEP_BYTES else bytes(sizes.step_bytes)
        self._block: Block | None = None
        self._batches = 0
        self._batch_bytes = 0.0
        self._prepared_end = 0
        self._pieces_done = 0
        self.piece: Piece | None = None

    def must_wait(self, write_queue: WriteQueue) -> bool:
        """Whether this write queue could conflict with the zeros that are being written."""
        piece = self.piece
        if piece is None:
            return False
        if (
            write_queue.retired
            or write_queue.close
            or write_queue.unlink
            or write_queue.rewrites
            or write_queue.checkpoint
        ):
            return True
        return any(
            segment.create or segment.block is not piece.block or segment.end + MARK_BYTES > piece.start
            for segment in write_queue.segments
        )

    def next_piece(self, block: Block | None, batch_bytes: int) -> Piece | None:
        """After a batch of `batch_bytes`, whose last frame is in `block`: the piece to write zeros to, if any."""
        if block is None or not batch_bytes:
            return None
        if block is not self._block:
            self._block, self._batches, self._prepared_end = block, 0, 0
        self._batches += 1
        self._batch_bytes += (batch_bytes - self._batch_bytes) * BATCH_WEIGHT
        sizes = self._sizes
        if self.piece is not None or self._batches < sizes.after_batches or self._batch_bytes > BATCH_BYTES_MAX:
            return None
        piece_bytes = int(self._batch_bytes) * sizes.piece_batches_min
        piece_bytes = sizes.piece_bytes if piece_bytes <= sizes.piece_bytes else self._aligned(piece_bytes)
        if self._prepared_end >= block.used + piece_bytes // 2:
            return None
        if self._prepared_end >= block.size:
            return None
        distance = int(self._batch_bytes * DISTANCE_BATCHES)
        start = max(self._prepared_end, self._aligned(block.used + MARK_BYTES + distance))
        end = min(start + piece_bytes, block.size)
        if start >= end:
            return None
        self.piece = Piece(block=block, start=start, end=end)
        return self.piece

    def start(self, disk: Disk, path: Path, done: Callable[[OSError | None], None]) -> None:
        """Write the current piece to the block's file, and call `done` in the trio thread at the end.

        Does nothing when the file cannot be opened: the block then grows a little slower. The kernel reports an error
        once to each descriptor that is open: because this fsync has its own one, it cannot take the report away from
        the descriptor that the frames are written with.
        """
        try:
            fd = disk.open_file(path)
        except OSError:
            self._abandon()
            return
        batch = disk.batch()
        self.fill(batch, fd)
        disk.submit(batch, partial(self._finish, disk, fd, done), background=True)

    def fill(self, batch: Batch, fd: int) -> None:
        """Add the operations of the current piece to a batch."""
        piece = self.piece
        assert piece is not None
        for offset in range(piece.start, piece.end, len(self._zeros)):
            batch.write(fd, [self._zeros[: piece.end - offset]], offset)
            batch.sync_data(fd)

    def _abandon(self) -> None:
        """Nothing of the current piece was written. Another one comes after as many batches as the first one took."""
        assert self.piece is not None
        self.piece = None
        self._batches = 0

    def _finish(self, disk: Disk, fd: int, done: Callable[[OSError | None], None], error: OSError | None) -> None:
        """The current piece is on disk, or has failed."""
        disk.close_file(fd)
        assert self.piece is not None
        if self.piece.block is self._block:
            self._prepared_end = self.piece.end
        self._pieces_done += 1
        self.piece = None
        done(error)

    @property
    def pieces_done(self) -> int:
        """The number of pieces written so far."""
        return self._pieces_done

    def _aligned(self, size: int) -> int:
        unit = self._sizes.aligned_bytes
        return -(-size // unit) * unit
