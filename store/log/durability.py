"""Makes the changes of a log durable: batches for the writer threads, and what their completion means.

`submit` turns the write queue into one batch, whose facts the ledger then takes (store/log/write_queue.py has the order
and why it is safe). While that batch runs, further changes gather for the next one. A batch that only adds frames to a
block has no facts: it is durable when it is written. Where the block grows, zeros are written ahead of it
(store/log/preallocate.py).

Invariants: `durable_token` never goes back; `durable_index <= last_index`; after the first error nothing is handed to
the writer, and nothing that completes later counts.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import attrs

from jetraft.store.blocks.block import BlockList
from jetraft.store.disk.io import Batch
from jetraft.store.ledger import ledger_records
from jetraft.store.ledger.ledger_records import Point
from jetraft.store.log._growth import Segment, WriteQueue, release_written
from jetraft.store.log.cleanup import Cleanup
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.preallocate import PieceSizes, Preparation
from jetraft.store.log.retained_checkpoints import RetainedCheckpoints
from jetraft.store.log.state import LogState
from jetraft.store.log.write_queue import (
    begin_in_ledger,
    fill,
    fill_growing,
    is_first_step,
    promise,
    records,
)
from jetraft.store.model._fifo import Fifo
from jetraft.store.port import HardState

NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
FOLLOWER_SHARE_MIN: Final = 0.5  # of the batch before it: a smaller one gathers more before it is closed


@attrs.define(eq=False)
class _InFlight:
    """A batch that the writer has. `last_index` is the last entry that it makes durable; a cut lowers it."""

    token: int
    last_index: int
    frame_bytes: int
    only_grows: bool  # as the write queue said when the batch began
    batch: Batch
    write_queue: WriteQueue
    fds: list[int]


def _ignore(_error: OSError | None) -> None:
    """A floor that was not written is not relied on."""


class Durability:
    """Writes what waits, and knows what is on disk."""

    __slots__ = (
        "__weakref__",
        "_assumed",
        "_begun_bytes_max",
        "_blocks",
        "_checkpoints",
        "_cleanup",
        "_disk",
        "_floor_index",
        "_handed_token",
        "_in_flight",
        "_is_alone",
        "_may_assume",
        "_preparation",
        "_reader",
        "_state",
        "_submit_wanted",
        "batches",
        "bytes_written",
        "hard_state",
        "hard_state_token",
        "is_starved",
        "on_durable",
    )

    def __init__(  # noqa: PLR0913  (what an opening has found, and the parts that a batch reports to)
        self,
        state: LogState,
        blocks: BlockList,
        reader: FrameReader,
        checkpoints: RetainedCheckpoints,
        *,
        hard_state: HardState,
        floor_index: int,
        pieces: PieceSizes,
        begun_bytes_max: int,
    ) -> None:
        self._state = state
        self._blocks = blocks
        self._reader = reader
        self._checkpoints = checkpoints
        self._disk = state.place.disk
        self._cleanup = Cleanup(self._disk)
        self._preparation = Preparation(pieces)
        self._in_flight: Fifo[_InFlight] = Fifo()  # at most two: the second follows the first
        self._handed_token = 0  # the token when the last batch was started
        self._submit_wanted = False  # the write queue is to be handed over as soon as it may
        self._floor_index = floor_index  # the ledger knows that the log is durable up to here
        self._begun_bytes_max = begun_bytes_max  # of first entries that go to the ledger
        self._may_assume = self._is_alone = False  # it begins as something says that is durable, until it goes on
        self._assumed = 0  # the ledger's number of what counts because of that
        self.hard_state = hard_state
        self.hard_state_token = 0
        state.durable_index = blocks.last_index
        self.is_starved = False
        self.on_durable: Callable[[], None] | None = None
        self.batches = 0
        self.bytes_written = 0

    def found_begun(self) -> None:
        """The ledger has what the log begins with: durable, not in a block, and nothing that has to be written now."""
        self._state.token = 0
        self._state.durable_index = self._floor_index = self._blocks.last_index

    def note_cut(self, index: int) -> None:
        """The log was cut: `index` and what followed it will not become durable."""
        self._state.durable_index = min(self._state.durable_index, index - 1)
        self._floor_index = min(self._floor_index, index - 1)  # the block that begins there lowers it in the ledger
        for flight in self._in_flight:
            flight.last_index = min(flight.last_index, index - 1)

    def set_hard_state(self, hard_state: HardState) -> None:
        """See GroupLog."""
        self._state.check_usable()
        assert hard_state.term >= self.hard_state.term
        end = self._end_to_note() if hard_state.term > self.hard_state.term else None
        if end is not None:
            # Entries of the new term may follow: if the last one before them is damaged, its own term is still known.
            self._state.write_queue.facts.append(ledger_records.floor(self._state.place.key, end))
        self.hard_state = self._state.write_queue.hard_state = hard_state
        self._state.token += 1
        self.hard_state_token = self._state.token

    def note_floor(self) -> bool:
        """Write to the ledger how far this log is durable; False when the ledger knows already.

        With that an opening finds the loss of the newest block's last page too, which nothing in that block can prove.
        No batch of the log waits for it: a cut that lowers it comes later in the ledger, with the block that it starts.
        Nothing is noted while facts of the opening wait for the first batch: of a block that the ledger does not know
        yet, a floor beyond its first entry would say that its entries are elsewhere.
        """
        if not self.is_secure:
            self._state.place.ledger.write_noted()
        place, waits = self._state.place, self._is_stopped or self._state.write_queue.facts
        end = None if waits else self._end_to_note()
        if end is not None:
            place.ledger.append([ledger_records.floor(place.key, end)], _ignore)
        return end is not None

    def assume_beginning(self, *, is_alone: bool) -> None:
        """A new log begins as something durable says: its first step counts at once (decision 124)."""
        self._may_assume = (
            not self._blocks.terms.last_index and not self.hard_state.term and not self._state.durable_token
        )
        self._is_alone = is_alone

    @property
    def is_secure(self) -> bool:
        """See GroupLog."""
        return not self._assumed or self._state.place.ledger.has_written(self._assumed)

    def _end_to_note(self) -> Point | None:
        """The last durable entry, unless the ledger knows it or its term is unknown. The caller notes it."""
        index = self._state.durable_index
        term = self._blocks.terms.at(index)
        if index <= self._floor_index or term is None:
            return None
        self._floor_index = index
        return Point(index, term)

    def would_block(self, bytes_max: int) -> bool:
        """See GroupLog."""
        queue = self._state.write_queue
        return not self._in_flight and queue.only_grows and queue.frame_bytes() <= bytes_max

    def submit(self, *, may_block: bool = False) -> None:
        """See GroupLog."""
        state = self._state
        if state.token == self._handed_token or state.failed is not None or state.is_closed:
            return
        if (self._in_flight or self._preparation.piece is not None) and not self._may_start():
            self._submit_wanted = True
        elif may_block and self._may_write_here():
            self._write_here()
        else:
            self._start_batch()

    def _may_write_here(self) -> bool:
        """Whether the write queue is frames for files that are open, and the disk is fast."""
        queue = self._state.write_queue
        if self._in_flight or self._may_assume or not queue.only_grows or not self._disk.is_fast:
            return False
        for segment in queue.segments:  # noqa: SIM110  (nearly always one: `all` costs two calls)
            if segment.file.fd is None:
                return False
        return True

    def _write_here(self) -> None:
        """Write the frames that wait in this thread: they are durable on return, or the log has failed.

        Nothing comes between, so there is nothing to remember of the batch, and the write queue goes on without them.
        """
        state = self._state
        queue, token, batch = state.write_queue, state.token, self._disk.batch()
        self._submit_wanted, self._handed_token, self.is_starved = False, token, False
        fill_growing(batch, queue, state.place)
        frame_bytes = queue.frame_bytes()
        self.bytes_written += frame_bytes
        error = self._disk.perform_here(batch)
        if error is not None:
            self.fail(error)
            return
        self._complete(token, self._blocks.terms.last_index, queue.segments)
        queue.segments = []
        self._prepare(frame_bytes)
        if self.on_durable is not None:
            self.on_durable()

    @property
    def _is_stopped(self) -> bool:
        """Whether nothing more is handed to the writer."""
        return self._state.failed is not None or self._state.is_closed

    def _may_start(self) -> bool:
        """Whether the write queue may be handed over: nothing is in flight, or the new batch may follow what is."""
        queue, in_flight = self._state.write_queue, self._in_flight
        if self._preparation.must_wait(queue):
            return False
        if not in_flight:
            return True
        first = in_flight[0]
        if len(in_flight) > 1 or not (first.only_grows and queue.only_grows):
            return False
        return queue.frame_bytes() >= first.frame_bytes * FOLLOWER_SHARE_MIN

    def _start_batch(self) -> None:
        state = self._state
        self._submit_wanted = False
        queue, state.write_queue = state.write_queue, WriteQueue()
        only_grows = queue.only_grows
        if not only_grows:
            # What the ledger takes is written to the first block too, with what comes next.
            state.write_queue.segments = begin_in_ledger(queue, state.place, self._begun_bytes_max)
        if queue.empty_directories and not queue.makes_files:  # nothing in them yet: synced with the first file
            state.write_queue.empty_directories = queue.empty_directories
        handed, self._handed_token = self._handed_token, state.token
        self.is_starved = False
        place = state.place
        batch = self._disk.batch()
        fds: list[int] = []
        try:
            if only_grows:
                fill_growing(batch, queue, place)
            else:
                fill(batch, queue, place, fds)
        except OSError as error:
            self._close_files(fds)
            if error.errno in NO_DESCRIPTORS:
                self._put_back(queue, handed)
            else:
                self.fail(error)
            return
        frame_bytes = queue.frame_bytes()
        self.bytes_written += frame_bytes
        before = self._in_flight[-1].batch if self._in_flight else None
        flight = _InFlight(
            token=state.token,
            last_index=self._blocks.terms.last_index,
            frame_bytes=frame_bytes,
            only_grows=only_grows,
            batch=batch,
            write_queue=queue,
            fds=fds,
        )
        self._in_flight.append(flight)
        self._prepare(frame_bytes)
        if before is not None:
            self._disk.follow(batch, self._written, before)
        elif only_grows and not self._may_assume and len(batch):  # nearly always
            self._disk.submit(batch, self._batch_done)
        else:
            self._promise(flight)

    def _prepare(self, frame_bytes: int) -> None:
        """Write zeros ahead of a batch of this size, if it is time to; none for entries that the ledger takes."""
        piece = self._preparation.next_piece(self._state.growing, frame_bytes)
        if piece is not None:
            path = self._reader.files[piece.block.number].path
            self._preparation.start(self._disk, path, self._prepared)

    def _promise(self, flight: _InFlight) -> None:
        """Have the ledger take what it must have before the files are written."""
        queue, place = flight.write_queue, self._state.place
        self._may_assume = self._may_assume and is_first_step(queue, place, is_alone=self._is_alone)
        first = () if flight.only_grows else promise(queue, place)
        if self._may_assume:
            self._assumed = place.ledger.assume(first)
            self._written(None)
        elif first:
            place.ledger.append(first, partial(self._promised, flight.batch))
        else:
            self._write(flight.batch)

    def _put_back(self, queue: WriteQueue, handed: int) -> None:
        """No file can be opened at present. Nothing was written, so nothing has failed: `submit` tries again."""
        for segment in queue.segments:
            segment.block.used = segment.end  # without the mark that was to follow
        self._state.write_queue, self._handed_token = queue, handed
        self.is_starved = self._submit_wanted = True

    @property
    def is_busy(self) -> bool:
        """Whether a batch is being written. The log must not be opened again before it is complete."""
        return bool(self._in_flight or self._cleanup) or self._preparation.piece is not None

    def unfinished(self) -> Iterator[WriteQueue]:
        """The changes that are not durable yet, or whose superfluous files are still being removed."""
        yield from self.unwritten()
        yield from self._cleanup

    def unwritten(self) -> Iterator[WriteQueue]:
        """The changes that are not durable yet."""
        yield self._state.write_queue
        yield from (flight.write_queue for flight in self._in_flight)

    def _prepared(self, error: OSError | None) -> None:
        """Zeros ahead of the block were written. An error may concern the frames in the same file, so it is final."""
        if self._state.is_closed:
            self._close_when_idle()
            return
        if error is not None:
            self.fail(error)
        else:
            self._start_wanted()
        if self.on_durable is not None:
            self.on_durable()

    def _promised(self, batch: Batch, error: OSError | None) -> None:
        """Term and vote are durable: what comes after them may be written."""
        if error is None and not self._is_stopped:
            self._write(batch)
        else:
            self._batch_done(error)

    def _write(self, batch: Batch) -> None:
        if len(batch):
            self._disk.submit(batch, self._written)
        else:
            self._written(None)

    def _written(self, error: OSError | None) -> None:
        """The files are on disk, or the log has failed. The ledger takes the facts of the batch next, if it has any."""
        done, place = self._in_flight[0], self._state.place
        facts = [] if done.only_grows or error is not None else records(done.write_queue, place)
        if facts and not self._is_stopped:  # the write of zeros may have failed meanwhile
            place.ledger.append(facts, self._batch_done)
        else:
            self._batch_done(error)

    def _batch_done(self, error: OSError | None) -> None:
        """The oldest batch is durable, or the log has failed."""
        done = self._in_flight.popleft()
        if done.fds:
            self._close_files(done.fds)
        if self._state.is_closed:
            self._state.write_queue.close += done.write_queue.close
            self._close_when_idle()
            return
        if error is not None:
            self.fail(error)
            return
        if self._state.failed is None:
            self._complete(done.token, done.last_index, done.write_queue.segments)
            if done.write_queue.begun:
                self._floor_index = done.last_index
            if not done.only_grows:
                _account_for_files(done.write_queue, self._reader, self._checkpoints)
                self._clean_up(done.write_queue)
        if self._submit_wanted:
            self._start_wanted()
        if self.on_durable is not None:
            self.on_durable()

    def _start_wanted(self) -> None:
        """Start the batch that `submit` asked for, if it may start now."""
        if self._submit_wanted and self._state.failed is None and self._may_start():
            self._start_batch()

    def _complete(self, token: int, last_index: int, segments: Sequence[Segment]) -> None:
        """Account for a batch that is on disk."""
        state = self._state
        assert token > state.durable_token
        state.durable_token, state.durable_index = token, last_index
        self.batches += 1
        created_index = release_written(segments, self._reader)
        if created_index is not None:
            self._floor_index = min(self._floor_index, created_index - 1)  # as the ledger has it now

    def _clean_up(self, queue: WriteQueue) -> None:
        """Remove what a durable change has made superfluous."""
        if queue.retired or queue.unlink or queue.close:
            try:
                self._cleanup.start(queue, self._cleaned_up)
            except OSError as error:
                self.fail(error)

    def _cleaned_up(self, error: OSError | None) -> None:
        if self._state.is_closed:
            self._close_when_idle()
        elif error is not None:
            self.fail(error)
        elif self.on_durable is not None:
            self.on_durable()

    def fail(self, error: OSError) -> None:
        """Stop: see `LogState.failed`."""
        self._state.failed = error
        if self.on_durable is not None:
            self.on_durable()

    def close(self) -> None:
        """See GroupLog. Batches in flight still finish; an `on_durable` that is set afterwards is called at the end."""
        if self._state.is_closed:
            return
        self._state.is_closed = True
        self.on_durable = None
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        """Close the descriptors once no thread uses them."""
        if not self.is_busy:
            self._close_files(self._state.write_queue.close)
            self._reader.close()
            if self.on_durable is not None:
                self.on_durable()

    @property
    def pieces_prepared(self) -> int:
        """How many pieces of growing blocks were filled with zeros ahead."""
        return self._preparation.pieces_done

    def _close_files(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self._disk.close_file(fd)


def _account_for_files(queue: WriteQueue, reader: FrameReader, checkpoints: RetainedCheckpoints) -> None:
    """More than frames at the end of a block is on disk."""
    for key, item in queue.rewrites.items():
        reader.rewritten(key, item.frame)
    for checkpoint in (queue.checkpoint, queue.founding):
        if checkpoint is not None:
            checkpoints.written(checkpoint)
