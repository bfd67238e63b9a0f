"""How what was appended becomes durable: batches for the writer threads, and what their end means.

The second layer of a log in files (store/log.py). `submit` turns everything that waits into one batch (store/backlog.py
has the order and why it is safe); while it runs, more gathers for the next. Where the block grows, zeros are written
ahead of it (store/prepare.py).

Invariants: `durable_token` never goes back; `durable_index <= last_index`; the first error is the last thing that a log
does: nothing is handed over after it, and nothing that ends later counts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs

from jetraft.store.backlog import Backlog, LogPlace, fill
from jetraft.store.frame_reader import FrameReader
from jetraft.store.hard_state import Copy
from jetraft.store.io import Batch
from jetraft.store.kept_checkpoints import KeptCheckpoints
from jetraft.store.log_appending import AppendingLog
from jetraft.store.log_start import LogOptions, LogStart
from jetraft.store.model.fifo import Fifo
from jetraft.store.port import HardState
from jetraft.store.prepare import Piece, Preparation

FOLLOWER_SHARE_MIN: Final = 0.5  # of the batch before it: a smaller one gathers more before it is closed


@attrs.frozen(kw_only=True, slots=True)
class _InFlight:
    """A batch that the writer has. `last_index` is what it makes durable, unless it is cut meanwhile."""

    token: int
    last_index: int
    frame_bytes: int
    batch: Batch
    backlog: Backlog
    fds: list[int]


class DurableLog(AppendingLog):
    """A log whose end is handed to the writer, and that knows what is on disk."""

    __slots__ = (
        "_batches",
        "_bytes_written",
        "_checkpoints",
        "_copy",
        "_handed_token",
        "_in_flight",
        "_preparation",
        "_submit_wanted",
        "durable_index",
        "durable_token",
        "hard_state_token",
        "on_durable",
    )

    def __init__(self, place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader) -> None:
        super().__init__(place, options, start, reader)
        self._copy = start.copy
        self._checkpoints = KeptCheckpoints(place, start.checkpoints)
        self._in_flight: Fifo[_InFlight] = Fifo()  # the second one follows the first
        self._preparation = Preparation(options.pieces)
        self._submit_wanted = False
        self._handed_token = 0
        self._batches = 0
        self._bytes_written = 0
        self.hard_state_token = 0
        self.durable_token = 0
        self.durable_index = self.last_index
        self.on_durable: Callable[[], None] | None = None

    @property
    def hard_state(self) -> HardState:
        """See GroupLog."""
        return self._copy.hard_state

    def cut_from(self, index: int) -> None:
        """See GroupLog."""
        super().cut_from(index)
        self.durable_index = min(self.durable_index, index - 1)
        for place, flight in enumerate(self._in_flight):
            self._in_flight[place] = attrs.evolve(flight, last_index=min(flight.last_index, index - 1))

    def set_hard_state(self, hard_state: HardState) -> None:
        """See GroupLog."""
        self._check_usable()
        assert hard_state.term >= self.hard_state.term
        self._copy = Copy(counter=self._copy.counter + 1, hard_state=hard_state)
        self._backlog.hard_state = self._copy
        self._token += 1
        self.hard_state_token = self._token

    def would_block(self, bytes_max: int) -> bool:
        """See GroupLog."""
        return not self._in_flight and self._backlog.only_grows and self._backlog.frame_bytes() <= bytes_max

    def submit(self, *, may_block: bool = False) -> None:
        """See GroupLog."""
        if self.failed is not None or self._closed or self._token == self._handed_token:
            return
        if self._may_start():
            self._start_batch(may_block=may_block)
        else:
            self._submit_wanted = True

    def _may_start(self) -> bool:
        """True when the backlog may be handed over: nothing is on its way, or it may follow what is."""
        if self._preparation.must_wait(self._backlog):
            return False
        if not self._in_flight:
            return True
        if len(self._in_flight) > 1 or not self._backlog.only_grows:
            return False
        return self._backlog.frame_bytes() >= self._in_flight[0].frame_bytes * FOLLOWER_SHARE_MIN

    def _start_batch(self, *, may_block: bool = False) -> None:
        self._submit_wanted = False
        backlog, self._backlog = self._backlog, Backlog()
        self._handed_token = self._token
        place = self._place
        batch = place.disk.batch()
        fds: list[int] = []
        try:
            fill(batch, backlog, place, fds)
        except OSError as error:
            self._close_files(fds)
            self._fail(error)
            return
        frame_bytes = backlog.frame_bytes()
        self._bytes_written += frame_bytes
        before = self._in_flight[-1].batch if self._in_flight else None
        self._in_flight.append(
            _InFlight(
                token=self._token,
                last_index=self.last_index,
                frame_bytes=frame_bytes,
                batch=batch,
                backlog=backlog,
                fds=fds,
            )
        )
        piece = self._preparation.next_piece(self._growing, frame_bytes)
        if piece is not None:
            self._prepare(piece)
        if before is not None:
            place.disk.follow(batch, self._batch_done, before)
            return
        place.disk.submit(batch, self._batch_done, may_block=may_block)

    def _prepare(self, piece: Piece) -> None:
        """Write zeros where the block will grow (store/prepare.py)."""
        disk = self._place.disk
        try:
            fd = disk.open_file(self._reader.files[piece.block.number].path)
        except OSError:
            self._preparation.abandon()  # nothing is lost: the block grows a little slower
            return
        batch = disk.batch()
        self._preparation.fill(batch, fd)
        disk.submit(batch, partial(self._prepared, fd), aside=True)

    def _prepared(self, fd: int, error: OSError | None) -> None:
        """A piece is prepared. An error may be one of the frames', so it is final.

        The kernel tells an error once to each descriptor that was open: with one of its own this fsync cannot take the
        news away from the one that the frames wait for.
        """
        self._place.disk.close_file(fd)
        self._preparation.done()
        if self._closed:
            self._close_when_idle()
        elif error is not None:
            self._fail(error)
        elif self.failed is None and self._submit_wanted and self._may_start():
            self._start_batch()

    def _batch_done(self, error: OSError | None) -> None:
        """The writer has finished the batch: what was in it is on disk, or the log has failed."""
        done = self._in_flight.popleft()
        self._close_files(done.fds)
        if self._closed:
            self._close_when_idle()
            return
        if error is not None:
            self._fail(error)
            return
        if self.failed is not None:
            return
        self._settle(done)
        if self._submit_wanted and self._may_start():
            self._start_batch()
        if self.on_durable is not None:
            self.on_durable()

    def _settle(self, done: _InFlight) -> None:
        """Account for a batch that is on disk."""
        assert done.token > self.durable_token
        self.durable_token = done.token
        self.durable_index = done.last_index
        self._batches += 1
        for segment in done.backlog.segments:
            segment.file.written = segment.end
            offset = segment.offset
            for frame in segment.frames:
                self._reader.release(segment.block, offset)
                offset += len(frame)
        for key, item in done.backlog.rewrites.items():
            self._reader.rewritten(key, item.frame)
        if done.backlog.checkpoint is not None:
            self._checkpoints.written(done.backlog.checkpoint)

    def _fail(self, error: OSError) -> None:
        self.failed = error
        if self.on_durable is not None:
            self.on_durable()

    def close(self) -> None:
        """See GroupLog. A batch that the writer has is still finished; nobody is told."""
        if self._closed:
            return
        self._closed = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        """Give the descriptors back once no thread uses them."""
        if not self._in_flight and self._preparation.piece is None:
            self._close_files(self._backlog.close)
            self._reader.close()

    def _close_files(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self._place.disk.close_file(fd)
