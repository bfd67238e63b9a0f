"""Atomic batches (ADR-50): what the leader of a stream keeps of them until the commit asks for the whole batch.

Pure. A step is a message of a batch or a moment; an effect says what became of it: it waits with the others, the batch
is whole, or it is refused, and perhaps ends its batch. Nothing that is staged is in the log, has a sequence, or
outlives the term of leadership: a batch whose leader changes is unknown to the next one, which says so to the
publisher. A whole batch becomes one entry of the log (decision 83), so all of it is committed or nothing.

The order of the checks is nats-server 2.15.1's, observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.batch_room import BATCH_ID_BYTES_MAX, BatchRoom
from jetraft.cluster.state.headers import parse_seq
from jetraft.cluster.streams.batches._staging import run_of
from jetraft.store.model import errors
from jetraft.store.model.versioning import is_level_served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.limits import BatchLimits

COMMIT: Final = b"1"  # the message is the last one of its batch
COMMIT_BEFORE: Final = b"eob"  # the batch ends with the message before this one, which is not stored

INCOMPLETE: Final = "incomplete"  # reasons of advisories
TOO_LARGE: Final = "large"
TIMED_OUT: Final = "timeout"
UNSUPPORTED: Final = "unsupported"


@attrs.frozen(slots=True)
class Kept:
    """The message waits for the commit."""


@attrs.frozen(slots=True)
class StagedRun:
    """Messages that follow each other and ask for nothing: capture records, back to back (_staging.pyx)."""

    records: bytes
    count: int


@attrs.frozen(slots=True)
class Whole:
    """The batch is complete: these are its messages, capture records and runs; it is staged no longer."""

    batch_id: bytes
    records: list[bytes | StagedRun]
    ends_before: bool  # committed by a message that is not one of them


@attrs.frozen(slots=True)
class Declined:
    """The message is not taken; with a reason, its batch had begun and is abandoned."""

    error: ApiError
    abandoned: str = ""


Step = Kept | Whole | Declined


@attrs.define(eq=False)
class _Batch:
    """One that has begun."""

    touched_ns: int
    records: list[bytes | StagedRun] = attrs.Factory(list)
    count: int = 0  # messages
    size: int = 0  # bytes of records


class AtomicBatches:
    """The batches of one stream during one term of leadership."""

    def __init__(self, room: BatchRoom) -> None:
        self._room = room
        self._batches: dict[bytes, _Batch] = {}  # the one that has waited longest is first

    def take(self, headers: Mapping[bytes, bytes], record: bytes, now_ns: int) -> Step:
        """A message with a batch id, as a capture record; `headers` are its own."""
        batch_id = headers[b"Nats-Batch-Id"]
        if len(batch_id) > BATCH_ID_BYTES_MAX:
            return Declined(errors.ATOMIC_PUBLISH_INVALID_BATCH_ID.with_values())
        seq = parse_seq(headers.get(b"Nats-Batch-Sequence", b""))
        if seq < 0:
            return Declined(errors.ATOMIC_PUBLISH_MISSING_SEQ.with_values())
        batch = self._batches.pop(batch_id, None)
        if batch is None:
            refusal = self._why_not_begun(seq)
            if refusal is not None:
                return Declined(refusal)
            batch = _Batch(now_ns)
        else:
            self._release(batch)
        step = self._continued(batch_id, batch, seq, headers, record)
        if isinstance(step, Kept):
            batch.touched_ns = now_ns
            self._batches[batch_id] = batch
            self._room.atomic += 1
            self._room.staged_bytes += batch.size
        return step

    def take_run(self, batch_id: bytes, captured: bytes, start: int, message_bytes_max: int) -> int:
        """Stage the run that begins at an offset, behind a message that was kept; returns where it ends."""
        batch = self._batches[batch_id]
        head = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: " % batch_id
        limits = self._room.limits
        rooms = limits.messages - batch.count, limits.bytes_max - batch.size
        end, count = run_of(captured, start, head, batch.count + 1, message_bytes_max, *rooms)
        if count:
            batch.records.append(StagedRun(captured[start:end], count))
            batch.count += count
            batch.size += end - start
            self._room.staged_bytes += end - start
        return end

    def expire(self, now_ns: int) -> list[bytes]:
        """The ids of batches that have waited too long; they are abandoned."""
        found = []
        while (deadline_ns := self.deadline_ns) is not None and deadline_ns <= now_ns:
            batch_id = next(iter(self._batches))
            self._release(self._batches.pop(batch_id))
            found.append(batch_id)
        return found

    @property
    def deadline_ns(self) -> int | None:
        """When the first batch has waited too long; None without batches."""
        for batch in self._batches.values():
            return batch.touched_ns + self._room.limits.idle_ns
        return None

    def end(self) -> None:
        """Drop all of them: the term is over, or the stream takes batches no more."""
        for batch in self._batches.values():
            self._release(batch)
        self._batches.clear()

    def __len__(self) -> int:
        return len(self._batches)

    def _release(self, batch: _Batch) -> None:
        self._room.atomic -= 1
        self._room.staged_bytes -= batch.size

    def _why_not_begun(self, seq: int) -> ApiError | None:
        """Why no batch begins with this message."""
        room, limits = self._room, self._room.limits
        if seq > limits.messages:
            return errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH.with_values(size=limits.messages)
        if seq != 1:
            return errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH.with_values()
        is_full = room.atomic >= limits.per_server or room.staged_bytes >= limits.staged_bytes
        if is_full or len(self._batches) >= limits.per_stream:
            return errors.ATOMIC_PUBLISH_TOO_MANY_IN_FLIGHT.with_values()
        return None

    def _continued(
        self, batch_id: bytes, batch: _Batch, seq: int, headers: Mapping[bytes, bytes], record: bytes
    ) -> Step:
        """The fate of a batch, and of the message that claims to be its next."""
        refused = _why_refused(batch, seq, headers, len(record), self._room.limits)
        if refused is not None:
            return refused
        commit = headers.get(b"Nats-Batch-Commit")
        if commit != COMMIT_BEFORE:
            batch.records.append(record)
            batch.count += 1
            batch.size += len(record)
        return Kept() if commit is None else Whole(batch_id, batch.records, ends_before=commit == COMMIT_BEFORE)


def _why_refused(
    batch: _Batch, seq: int, headers: Mapping[bytes, bytes], size: int, limits: BatchLimits
) -> Declined | None:
    commit = headers.get(b"Nats-Batch-Commit")
    if commit not in (None, COMMIT, COMMIT_BEFORE):
        return Declined(errors.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT.with_values())
    if not is_level_served(headers.get(b"Nats-Required-Api-Level")):
        return Declined(errors.REQUIRED_API_LEVEL.with_values(), UNSUPPORTED)
    if seq != batch.count + 1 or (commit == COMMIT_BEFORE and seq == 1):
        return Declined(errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH.with_values(), INCOMPLETE)
    if commit == COMMIT_BEFORE:
        return None
    for taken, limit in ((seq, limits.messages), (batch.size + size, limits.bytes_max)):
        if taken > limit:
            return Declined(errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH.with_values(size=limit), TOO_LARGE)
    return None
