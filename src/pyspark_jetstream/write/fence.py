"""Exactly once: what a task publishes, given what the stream says (decision 90).

Pure. A partition of a micro-batch is a list of pieces. Each piece is an atomic batch that ends with a *fence*: a
message on a subject of the query and the partition, which says how far this micro-batch is, and is stored only if the
fence before it is still the last one. So a piece and the record of it are stored together, once, by one attempt.

`publish_partition` yields effects and is sent their outcomes. Attempts may run twice, at the same time, or much later:
each one reads the fence, passes over what it covers, and goes on behind it. It compares a hash of what it passes over.
Rows that come in another order are found by reading back what is stored; other rows stop the task.
"""

import json
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import attrs

from pyspark_jetstream.errors import NotReproducibleError, SupersededError
from pyspark_jetstream.write.rows import Rows, cut, joined, no_rows

# Of an atomic batch the servers take 1,000 messages; one is the fence. jetraft takes 32 MiB.
PIECE_ROWS = 999
PIECE_BYTES = 4 << 20
FORM = 1


@attrs.frozen(kw_only=True, slots=True)
class Fence:
    """How far a micro-batch is in one partition; the payload of a fence message."""

    epoch: int
    pieces: int  # of this micro-batch that are stored, this one included
    rows: int  # in them
    last_rows: int  # in the last one: the messages just before the fence
    previous: int  # sequence of the fence of the piece before this one, 0 for the first
    digest: str  # of all rows, in order
    done: bool  # the attempt had no further piece; Spark ends the rows of a task that fails like those of any other
    seq: int = 0  # in the stream, 0 before it is stored

    def payload(self) -> bytes:
        """The payload of the message."""
        value = attrs.asdict(self, filter=attrs.filters.exclude("seq"))
        return json.dumps({"form": FORM, **value}).encode()


def parse_fence(payload: bytes, seq: int) -> Fence:
    """Return the fence in a message. Raises NotReproducibleError for a message of another origin."""
    try:
        value: dict[str, Any] = json.loads(payload)
        form = value.pop("form")
        fence = Fence(**value, seq=seq)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReproducibleError(f"message {seq} is on a fence subject and is no fence: {error}") from error
    if form != FORM:
        raise NotReproducibleError(f"message {seq} is on a fence subject and has form {form!r}, not {FORM}")
    return fence


@attrs.frozen(slots=True)
class ReadFence:
    """Ask the leader for the last fence of the partition; the outcome is a Fence or None."""


@attrs.frozen(slots=True)
class ReadBack:
    """Ask for the rows of the micro-batch that are stored up to a fence: their keys, or None if some are gone."""

    fence: Fence


@attrs.frozen(slots=True, eq=False)
class Publish:
    """Store the rows and the fence as one atomic batch, if `expected` is the sequence of the last fence.

    The outcome is the fence's sequence, or None where it is unknown whether it was stored, or another fence was there.
    `following` is probably published next.
    """

    rows: Rows
    fence: Fence
    expected: int
    following: Rows | None


Effect = ReadFence | ReadBack | Publish


def publish_partition(pieces: Iterator[Rows], epoch: int) -> Generator[Effect, Any, int]:
    """Publish what is not published yet; returns how many rows were new.

    Raises SupersededError, NotReproducibleError; then this attempt has published nothing that another could repeat.
    """
    return (yield from _Attempt(epoch).run(pieces))


class _Pieces:
    """The pieces of a partition, one ahead. A partition without rows has one piece, so that its fence is stored."""

    def __init__(self, pieces: Iterator[Rows]) -> None:
        self._pieces = pieces
        self.ahead: Rows | None = next(pieces, None) or no_rows()

    def take(self) -> Rows:
        """The next piece; `ahead` is the one behind it, None after the last."""
        assert self.ahead is not None
        piece, self.ahead = self.ahead, next(self._pieces, None)
        return piece

    def rest(self) -> list[Rows]:
        """All that were not taken."""
        return [] if self.ahead is None else [self.ahead, *self._pieces]

    def end(self) -> None:
        """There is no further piece."""
        self.ahead = None


class _Attempt:
    """One attempt to publish a partition."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._known: Fence | None = None  # the last fence, as far as known
        self._at = Fence(epoch=epoch, pieces=0, rows=0, last_rows=0, previous=0, digest="", done=False)
        self._passed: list[Rows] | None = []  # all rows so far; None after the first publish
        self._new_rows = 0

    def run(self, given: Iterator[Rows]) -> Generator[Effect, Any, int]:
        yield from self._look()
        pieces = _Pieces(given)
        while pieces.ahead is not None:
            piece = pieces.take()
            reached = after(self._at, piece, done=pieces.ahead is None)
            published = False
            while not self._covers(reached):
                published = yield from self._publish(piece, reached, pieces.ahead)
            if published:
                self._passed = None
            elif not self._agrees(reached):
                pieces = yield from self._in_other_order(piece, pieces)
                continue
            elif self._passed is not None:
                self._passed.append(piece)
            self._at = reached
        return self._new_rows

    def _look(self) -> Generator[Effect, Any, None]:
        """Learn the last fence. A follower of the old leader may answer with an older one, which changes nothing."""
        found: Fence | None = yield ReadFence()
        if found is None and self._known is not None:
            raise NotReproducibleError("the fence of this partition is gone: the stream was purged or created again")
        if found is None or (self._known is not None and found.seq <= self._known.seq):
            return
        if found.epoch > self._epoch:
            raise SupersededError(
                f"micro-batch {self._epoch} was written, and so was {found.epoch} after it: this task has outlived its "
                "micro-batch, or the checkpoint is an older one"
            )
        self._known = found

    def _covers(self, reached: Fence) -> bool:
        known = self._known
        return known is not None and known.epoch == self._epoch and known.pieces >= reached.pieces

    def _agrees(self, reached: Fence) -> bool:
        """Whether what is stored may be what was passed over; decided when the last stored piece is reached."""
        known = self._known
        assert known is not None
        if known.pieces > reached.pieces:
            return not reached.done
        return (known.digest, known.rows) == (reached.digest, reached.rows)

    def _publish(self, piece: Rows, reached: Fence, following: Rows | None) -> Generator[Effect, Any, bool]:
        known = self._known
        previous = known.seq if known is not None and known.epoch == self._epoch else 0
        fence = attrs.evolve(reached, previous=previous)
        expected = known.seq if known is not None else 0
        seq: int | None = yield Publish(piece, fence, expected, following)
        if seq is None:
            yield from self._look()
            return False
        self._known = attrs.evolve(fence, seq=seq)
        self._new_rows += len(piece)
        return True

    def _in_other_order(self, piece: Rows, pieces: _Pieces) -> Generator[Effect, Any, _Pieces]:
        """Compare row by row; returns the rows that are not stored, if all that are stored are among these."""
        known = self._known
        assert known is not None
        if self._passed is None:
            raise NotReproducibleError(
                "another attempt of this task has published; this one has other rows, or another order"
            )
        stored: list[tuple[bytes, bytes, bytes]] | None = yield ReadBack(known)
        if stored is None:
            raise NotReproducibleError(
                f"{known.rows} rows of micro-batch {self._epoch} were written by an earlier attempt in another order, "
                "and some are no longer in the stream: the others cannot be found"
            )
        rows = joined([*self._passed, piece, *pieces.rest()])
        new, gone = compared(rows, stored)
        if gone:
            raise NotReproducibleError(
                f"micro-batch {self._epoch}: an earlier attempt has written {known.rows} rows of this partition, of "
                f"which {gone} are not in it now, and {len(new)} others are: its rows must be the same in each "
                "attempt (the same partitions, and no random or present values)"
            )
        self._passed = None
        self._at = known
        left_over = _Pieces(cut([rows.take(new)], rows_max=PIECE_ROWS, bytes_max=PIECE_BYTES))
        if not new:
            left_over.end()
        return left_over


def compared(rows: Rows, stored: list[tuple[bytes, bytes, bytes]]) -> tuple[list[int], int]:
    """Return the places of rows that are not stored, and how many stored ones are not among the rows."""
    left = Counter(stored)
    new = []
    for place, key in enumerate(rows.keys()):
        if left[key]:
            left[key] -= 1
        else:
            new.append(place)
    return new, left.total()


def after(at: Fence, piece: Rows, *, done: bool) -> Fence:
    """The fence of the next piece, without its place in the stream."""
    return attrs.evolve(
        at,
        pieces=at.pieces + 1,
        rows=at.rows + len(piece),
        last_rows=len(piece),
        previous=0,
        digest=piece.digest(bytes.fromhex(at.digest)).hex(),
        done=done,
        seq=0,
    )
