"""How what was appended becomes durable: batches for the writer threads, and what their end means.

The second layer of a log in files (store/log.py). `submit` turns everything that waits into one batch, whose facts the
ledger then takes (store/backlog.py has the order and why it is safe); while that runs, more gathers for the next. A
batch that only adds frames to a block has no facts: it is durable when it is written. Where the block grows, zeros are
written ahead of it (store/prepare.py).

Invariants: `durable_token` never goes back; `durable_index <= last_index`; the first error is the last thing that a log
does: nothing is handed over after it, and nothing that ends later counts.
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs

from jetraft.store import ledger_records
from jetraft.store.backlog import Backlog, LogPlace, clean_up, fill, promise, records
from jetraft.store.frame_reader import FrameReader
from jetraft.store.io import Batch
from jetraft.store.kept_checkpoints import KeptCheckpoints
from jetraft.store.ledger_records import Point
from jetraft.store.log_appending import AppendingLog
from jetraft.store.log_start import LogOptions, LogStart
from jetraft.store.model.fifo import Fifo
from jetraft.store.port import HardState
from jetraft.store.prepare import Piece, Preparation

NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
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


def _ignore(_error: OSError | None) -> None:
    """A floor that could not be written is one that nobody has."""


class DurableLog(AppendingLog):
    """A log whose end is handed to the writer, and that knows what is on disk."""

    __slots__ = (
        "_batches",
        "_bytes_written",
        "_checkpoints",
        "_cleaning",
        "_floor_index",
        "_handed_token",
        "_in_flight",
        "_preparation",
        "_submit_wanted",
        "durable_index",
        "durable_token",
        "hard_state",
        "hard_state_token",
        "is_starved",
        "on_durable",
    )

    def __init__(self, place: LogPlace, options: LogOptions, start: LogStart, reader: FrameReader) -> None:
        super().__init__(place, options, start, reader)
        self.hard_state = start.hard_state
        self._checkpoints = KeptCheckpoints(place, start.checkpoints, start.founding)
        self._in_flight: Fifo[_InFlight] = Fifo()  # the second one follows the first
        self._cleaning: list[Backlog] = []  # durable, and what they make superfluous is being removed
        self._preparation = Preparation(options.pieces)
        self._submit_wanted = False
        self.is_starved = False
        self._floor_index = start.floor_index
        self._handed_token = 0
        self._batches = 0
        self._bytes_written = 0
        self.hard_state_token = 0
        self.durable_token = 0
        self.durable_index = self.last_index
        self.on_durable: Callable[[], None] | None = None

    def cut_from(self, index: int) -> None:
        """See GroupLog."""
        super().cut_from(index)
        self.durable_index = min(self.durable_index, index - 1)
        self._floor_index = min(self._floor_index, index - 1)  # the block that begins there lowers it in the ledger
        for place, flight in enumerate(self._in_flight):
            self._in_flight[place] = attrs.evolve(flight, last_index=min(flight.last_index, index - 1))

    def set_hard_state(self, hard_state: HardState) -> None:
        """See GroupLog."""
        self._check_usable()
        assert hard_state.term >= self.hard_state.term
        end = self._end_to_note() if hard_state.term > self.hard_state.term else None
        if end is not None:
            # Entries of the new term may follow: if the last one before them is damaged, its own term is still known.
            self._backlog.facts.append(ledger_records.floor(self._place.key, end))
        self.hard_state = self._backlog.hard_state = hard_state
        self._token += 1
        self.hard_state_token = self._token

    def note_floor(self) -> bool:
        """Have the ledger know how far this log is durable; False when it does already.

        Then the loss of the newest block's last page is found too, which nothing in that block can prove. No batch of
        the log waits for it: a cut that lowers it comes later in the ledger, with the block that begins there.
        """
        end = None if self.failed is not None or self._closed else self._end_to_note()
        if end is None:
            return False
        self._place.ledger.append([ledger_records.floor(self._place.key, end)], _ignore)
        return True

    def _end_to_note(self) -> Point | None:
        """The last durable entry, if the ledger does not know it yet and its term is known; from now on it does."""
        index = self.durable_index
        term = self.term_at(index)
        if index <= self._floor_index or term is None:
            return None
        self._floor_index = index
        return Point(index, term)

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
        first = self._in_flight[0]
        if len(self._in_flight) > 1 or not (first.backlog.only_grows and self._backlog.only_grows):
            return False
        return self._backlog.frame_bytes() >= self._in_flight[0].frame_bytes * FOLLOWER_SHARE_MIN

    def _start_batch(self, *, may_block: bool = False) -> None:
        self._submit_wanted = False
        backlog, self._backlog = self._backlog, Backlog()
        if backlog.empty_directories and not backlog.makes_files:
            self._backlog.empty_directories = backlog.empty_directories
        handed, self._handed_token = self._handed_token, self._token
        self.is_starved = False
        place = self._place
        batch = place.disk.batch()
        fds: list[int] = []
        try:
            fill(batch, backlog, place, fds)
        except OSError as error:
            self._close_files(fds)
            if error.errno in NO_DESCRIPTORS:
                self._put_back(backlog, handed)
            else:
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
            place.disk.follow(batch, self._written, before)
        elif first := promise(backlog, place):
            place.ledger.append(first, partial(self._promised, batch))
        else:
            self._write(batch, may_block=may_block)

    def _put_back(self, backlog: Backlog, handed: int) -> None:
        """No file can be opened now. Nothing was written, so nothing is wrong: `submit` tries again."""
        for segment in backlog.segments:
            segment.block.used = segment.end  # without the mark that was to follow
        self._backlog, self._handed_token = backlog, handed
        self.is_starved = self._submit_wanted = True

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

    @property
    def is_busy(self) -> bool:
        """Whether anything is on its way to disk: until it is there, nobody may open the log again."""
        return bool(self._in_flight or self._cleaning) or self._preparation.piece is not None

    def _prepared(self, fd: int, error: OSError | None) -> None:
        """A piece is prepared. An error may be one of the frames', so it is final.

        The kernel tells an error once to each descriptor that was open: with one of its own this fsync cannot take the
        news away from the one that the frames wait for.
        """
        self._place.disk.close_file(fd)
        self._preparation.done()
        if self._closed:
            self._close_when_idle()
            return
        if error is not None:
            self._fail(error)
        elif self.failed is None and self._submit_wanted and self._may_start():
            self._start_batch()
        if self.on_durable is not None:
            self.on_durable()

    def _promised(self, batch: Batch, error: OSError | None) -> None:
        """Term and vote are durable: what comes after them may be written."""
        if error is None and not self._closed and self.failed is None:
            self._write(batch, may_block=False)
        else:
            self._batch_done(error)

    def _write(self, batch: Batch, *, may_block: bool) -> None:
        if len(batch):
            self._place.disk.submit(batch, self._written, may_block=may_block)
        else:
            self._written(None)

    def _written(self, error: OSError | None) -> None:
        """The files are on disk, or the log has failed; the ledger comes next where it has to."""
        backlog = self._in_flight[0].backlog
        facts = [] if backlog.only_grows or error is not None else records(backlog, self._place)
        if facts and not self._closed and self.failed is None:  # else zeros ahead of its frames may have failed
            self._place.ledger.append(facts, self._batch_done)
        else:
            self._batch_done(error)

    def _batch_done(self, error: OSError | None) -> None:
        """What was in the batch is durable, or the log has failed."""
        done = self._in_flight.popleft()
        self._close_files(done.fds)
        if self._closed:
            self._backlog.close += done.backlog.close
            self._close_when_idle()
            return
        if error is not None:
            self._fail(error)
            return
        if self.failed is None:
            self._settle(done)
            self._clean_up(done.backlog)
        if self.failed is None and self._submit_wanted and self._may_start():
            self._start_batch()
        if self.on_durable is not None:
            self.on_durable()

    def _clean_up(self, backlog: Backlog) -> None:
        """Remove what a durable change has made superfluous. An opening does it where this does not come to an end."""
        if not (backlog.retired or backlog.unlink or backlog.close):
            return
        disk = self._place.disk
        batch, fds = disk.batch(), list[int]()
        try:
            clean_up(batch, backlog, disk, fds)
        except OSError as error:
            self._close_files(fds)
            self._fail(error)
            return
        self._cleaning.append(backlog)
        disk.submit(batch, partial(self._cleaned_up, backlog, fds), aside=True)

    def _cleaned_up(self, backlog: Backlog, fds: list[int], error: OSError | None) -> None:
        self._cleaning.remove(backlog)
        self._close_files(fds)
        if self._closed:
            self._close_when_idle()
            return
        if error is not None:
            self._fail(error)
        elif self.on_durable is not None:
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
        if done.backlog.founding is not None:
            self._checkpoints.written(done.backlog.founding)

    def _fail(self, error: OSError) -> None:
        self.failed = error
        if self.on_durable is not None:
            self.on_durable()

    def close(self) -> None:
        """See GroupLog. A batch that the writer has is still finished; who asks for it is told when nothing is left."""
        if self._closed:
            return
        self._closed = True
        self.on_durable = None
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        """Give the descriptors back once no thread uses them."""
        if not self.is_busy:
            self._close_files(self._backlog.close)
            self._reader.close()
            if self.on_durable is not None:
                self.on_durable()

    def _close_files(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self._place.disk.close_file(fd)
