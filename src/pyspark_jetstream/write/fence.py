"""Exactly once: what a task publishes, given what the stream says (decision 90).

Pure. The rows of a partition of a micro-batch are stored in pieces. Each piece is an atomic batch that ends with a
*fence*: a message on a subject of the query and the partition, which says how far this micro-batch is, and is stored
only if the fence before it is still the last one. So a piece and the record of it are stored together, once, by one
attempt.

`publish_partition` yields effects and is sent their outcomes. Attempts may run twice, at the same time, or much later:
each one reads the fence, passes over the rows that it covers, and goes on behind them. A fence counts rows and has a
digest of them that does not depend on the pieces, so attempts may cut as they like, and a piece that the stream has no
room for becomes smaller. Rows that come in another order are found by reading back what is stored; other rows stop the
task.
"""

import hashlib
import json
from collections import Counter, deque
from collections.abc import Generator, Iterator
from typing import Any, Final

import attrs

from pyspark_jetstream.errors import NotReproducibleError, SupersededError
from pyspark_jetstream.write.rows import RowKey, Rows, cut, joined, no_rows, rows_of_keys

# Of an atomic batch the servers take 1,000 messages; one is the fence. jetraft takes 32 MiB.
PIECE_ROWS = 999
PIECE_BYTES = 4 << 20
# A piece that was stored lets the next one be larger by this part of it, after others were refused.
GROWTH = 8
# Form 1 (until 0.2) had a digest that depends on the pieces. It is read: its rows are compared one by one.
FORM = 2
FORMS = frozenset({1, FORM})


@attrs.frozen(kw_only=True, slots=True)
class Fence:
    """How far a micro-batch is in one partition; the payload of a fence message."""

    epoch: int
    rows: int  # of this micro-batch that are stored
    last_rows: int  # in the last piece: the messages just before the fence
    previous: int  # sequence of the fence of the piece before this one; 0: this one replaces those before it
    digest: str  # of all rows, in the order of the stream; "" where it is unknown
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
        if form == 1:
            value = {**value, "digest": ""}
            del value["pieces"], value["done"]
        fence = Fence(**value, seq=seq)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReproducibleError(f"message {seq} is on a fence subject and is no fence: {error}") from error
    if form not in FORMS:
        raise NotReproducibleError(f"message {seq} is on a fence subject and has form {form!r}, not {FORM}")
    return fence


class Digest:
    """A hash of rows in order, however they are cut: values and lengths of each column have a hash of their own."""

    def __init__(self) -> None:
        self._hashes = [hashlib.blake2b(digest_size=16) for _ in range(6)]

    def after(self, rows: Rows) -> "Digest":
        """The digest of the rows so far and these."""
        found = Digest()
        found._hashes = [one.copy() for one in self._hashes]
        for one, part in zip(found._hashes, rows.contents(), strict=True):
            one.update(part)
        return found

    def text(self) -> str:
        """The digest, in hexadecimal."""
        return hashlib.blake2b(b"".join(one.digest() for one in self._hashes), digest_size=16).hexdigest()


@attrs.frozen(slots=True)
class ReadFence:
    """Ask the leader for the last fence of the partition; the outcome is a Fence or None."""


@attrs.frozen(slots=True)
class ReadBack:
    """Ask for the rows of the micro-batch that are stored up to a fence; the outcome is StoredRows."""

    fence: Fence


@attrs.frozen(slots=True)
class StoredRows:
    """Rows that the stream has, in its order."""

    keys: list[RowKey]
    are_all: bool  # none of them is gone


@attrs.frozen(slots=True)
class NoRoom:
    """The outcome of a Publish that the stream refuses in this size: it is full, or takes smaller batches only."""


NO_ROOM: Final = NoRoom()


@attrs.frozen(slots=True)
class RemoveFences:
    """Make room in a stream that is full: of each subject of fences only the newest stays. There is no outcome.

    That of other partitions and queries too, which no rollup of this partition removes. No attempt is misled: it acts
    on the newest fence. One whose rows come in another order cannot read back what is stored, and says so.
    """


@attrs.frozen(slots=True, eq=False)
class Publish:
    """Store the rows and the fence as one atomic batch, if `expected` is the sequence of the last fence.

    The outcome is the fence's sequence; None where it is unknown whether it was stored, or another fence was there; or
    NO_ROOM. `following` is probably published next.
    """

    rows: Rows
    fence: Fence
    expected: int
    following: Rows | None


Effect = ReadFence | ReadBack | Publish | RemoveFences


def publish_partition(
    pieces: Iterator[Rows], epoch: int, *, replaces_fences: bool = False, accepts_changes: bool = False
) -> Generator[Effect, Any, int]:
    """Publish what is not published yet; returns how many rows were new. No piece is larger than the given ones.

    `replaces_fences`: the stream allows rollups, so that old fences need no room in a stream that is full.
    `accepts_changes`: the rows may be others than those of an earlier attempt; what is missing is stored.
    Raises SupersededError, NotReproducibleError; then this attempt has published nothing that another could repeat.
    """
    attempt = _Attempt(epoch, replaces_fences=replaces_fences, accepts_changes=accepts_changes)
    return (yield from attempt.run(_Pieces(pieces)))


class _Pieces:
    """The rows of a partition that are not taken yet."""

    def __init__(self, given: Iterator[Rows]) -> None:
        self._given = given
        self._waiting: deque[Rows] = deque()

    def next(self, rows_max: int) -> Rows | None:
        """The next piece, with so many rows at most, which stays here; None after the last row."""
        if not self._waiting:
            found = next(self._given, None)
            if found is None:
                return None
            self._waiting.append(found)
        piece = self._waiting[0]
        if len(piece) > rows_max:
            self._waiting[0] = piece.slice(0, rows_max)
            self._waiting.insert(1, piece.slice(rows_max, len(piece) - rows_max))
        return self._waiting[0]

    def following(self, rows_max: int) -> Rows | None:
        """What `next` gives after `drop`."""
        piece = self._waiting.popleft()
        found = self.next(rows_max)
        self._waiting.appendleft(piece)
        return found

    def drop(self) -> None:
        """The piece that `next` gave is done."""
        self._waiting.popleft()

    def rest(self) -> list[Rows]:
        """All rows that are not taken."""
        found = [*self._waiting, *self._given]
        self._waiting.clear()
        return found


class _Attempt:
    """One attempt to publish a partition."""

    def __init__(self, epoch: int, *, replaces_fences: bool, accepts_changes: bool) -> None:
        self._epoch = epoch
        self._replaces_fences = replaces_fences
        self._accepts_changes = accepts_changes
        self._known: Fence | None = None  # the last fence, as far as known
        self._row = 0  # of this attempt's rows so many are stored, in its order
        self._digest = Digest()  # of them
        self._passed: list[Rows] | None = []  # all rows so far; None after the first publish
        self._new_rows = 0
        self._rows_max = PIECE_ROWS
        self._is_full = False  # the stream has refused a piece for its size

    def run(self, pieces: _Pieces) -> Generator[Effect, Any, int]:
        yield from self._look()
        while True:
            if (covered := self._covered() - self._row) > 0:
                piece = pieces.next(covered)
                if piece is not None:
                    self._pass_over(piece)
                    pieces.drop()
                if (piece is None or self._row == self._covered()) and not self._agrees():
                    pieces = yield from self._in_other_order(pieces)
                continue
            piece = pieces.next(self._rows_max)
            if piece is None and self._known is not None and self._known.epoch == self._epoch:
                return self._new_rows
            if (yield from self._publish(piece or no_rows(), pieces)) and piece is not None:
                pieces.drop()

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

    def _covered(self) -> int:
        """How many rows of this micro-batch are stored, as far as known."""
        known = self._known
        return known.rows if known is not None and known.epoch == self._epoch else 0

    def _agrees(self) -> bool:
        """Whether what is stored is what was passed over."""
        known = self._known
        assert known is not None
        return (known.digest, known.rows) == (self._digest.text(), self._row)

    def _pass_over(self, piece: Rows) -> None:
        self._digest = self._digest.after(piece)
        self._row += len(piece)
        if self._passed is not None:
            self._passed.append(piece)

    def _publish(self, piece: Rows, pieces: _Pieces) -> Generator[Effect, Any, bool]:
        """Try to store a piece; whether it is known to be stored, by this attempt."""
        known = self._known
        has_begun = known is not None and known.epoch == self._epoch
        keeps_fences = has_begun and not (self._is_full and self._replaces_fences)
        digest = self._digest.after(piece)
        fence = Fence(
            epoch=self._epoch,
            rows=self._row + len(piece),
            last_rows=len(piece),
            previous=known.seq if known is not None and keeps_fences else 0,
            digest=digest.text(),
        )
        following = pieces.following(self._rows_max) if len(piece) else None
        seq: int | NoRoom | None = yield Publish(piece, fence, known.seq if known is not None else 0, following)
        if isinstance(seq, NoRoom):
            self._is_full = True
            if keeps_fences or len(piece) <= 1:
                yield RemoveFences()
            self._rows_max = max(1, min(self._rows_max, len(piece)) // 2)
        if not isinstance(seq, int):
            yield from self._look()
            return False
        self._known = attrs.evolve(fence, seq=seq)
        self._digest, self._row, self._passed = digest, fence.rows, None
        self._new_rows += len(piece)
        self._rows_max = min(PIECE_ROWS, self._rows_max + max(1, self._rows_max // GROWTH))
        return True

    def _in_other_order(self, pieces: _Pieces) -> Generator[Effect, Any, _Pieces]:
        """Compare row by row; returns the rows that are not stored, if all that are stored are among these."""
        known = self._known
        assert known is not None
        if self._passed is None:
            raise NotReproducibleError(
                "another attempt of this task has published; this one has other rows, or another order"
            )
        stored: StoredRows = yield ReadBack(known)
        if not stored.are_all and not self._accepts_changes:
            raise NotReproducibleError(
                f"{known.rows} rows of micro-batch {self._epoch} were written by an earlier attempt in another order, "
                "and some are no longer in the stream, or the fences that lead to them (a full stream keeps the newest "
                "only): which ones are missing cannot be found" + self._way_out()
            )
        rows = joined([no_rows(), *self._passed, *pieces.rest()])
        new, gone = compared(rows, stored.keys)
        if gone and not self._accepts_changes:
            raise NotReproducibleError(
                f"micro-batch {self._epoch}: an earlier attempt has written {known.rows} rows of this partition, of "
                f"which {gone} are not in it now, and {len(new)} others are: its rows must be the same in each "
                "attempt (the same partitions, and no random or present values)" + self._way_out()
            )
        self._passed = None
        self._row = known.rows
        self._digest = Digest().after(rows_of_keys(stored.keys))
        return _Pieces(cut([rows.take(new)], rows_max=PIECE_ROWS, bytes_max=PIECE_BYTES))

    def _way_out(self) -> str:
        return (
            f". acceptChangedRows={self._epoch} continues once: it stores the rows of this micro-batch that are not in "
            "the stream, and leaves what is there"
        )


def compared(rows: Rows, stored: list[RowKey]) -> tuple[list[int], int]:
    """Return the places of rows that are not stored, and how many stored ones are not among the rows."""
    left = Counter(stored)
    new = []
    for place, key in enumerate(rows.keys()):
        if left[key]:
            left[key] -= 1
        else:
            new.append(place)
    return new, left.total()
