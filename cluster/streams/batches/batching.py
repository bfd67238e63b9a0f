"""Messages of batches on their way through admission: what is staged, what becomes one publish, what is refused.

`atomic.py` keeps what waits for its commit, `members.py` judges a whole batch, `fast.py` answers to messages that are
stored as they come; here they meet the admission of the stream, which gives sequences. A whole atomic batch is a
publish of its own, so it is one entry of the log whatever its size. Messages of fast batches are publishes like others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from jetraft.cluster.capture._capture import capture_at, captures, encode_capture
from jetraft.cluster.streams.batches._staging import add_run
from jetraft.cluster.streams.batches.atomic import (
    COMMIT_BEFORE,
    TIMED_OUT,
    AtomicBatches,
    Declined,
    Kept,
    StagedRun,
    Step,
    Whole,
)
from jetraft.cluster.streams.batches.batch_members import Members, StreamBefore
from jetraft.cluster.streams.batches.fast import FastBatches, Place
from jetraft.cluster.streams.publishing.candidate import Candidate, PublishRefused, check_shape
from jetraft.cluster.streams.publishing.puback import batch_ack, error_ack, puback_prefix
from jetraft.cluster.streams.publishing.publish import Abandoned, InFastBatch
from jetraft.cluster.streams.publishing.traced import refused_text
from jetraft.cluster.streams.rules.schema_check import SchemaCheck
from jetraft.cluster.streams.schedules.delaying import check_not_in_batch
from jetraft.store.model import errors, message
from jetraft.store.model.extensions import stream_extensions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jetraft.cluster.batch_room import BatchRoom
    from jetraft.cluster.streams.publishing.publish import Known, Publish, Turn
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig

NO_LIMIT: Final = -1
AFTER_HEAD: Final = 3  # parts of a reply subject of a fast batch: sequence, operation, suffix
HEADERS_OF_BATCH: Final = 2  # of JetStream, that each message of a batch has: Nats-Batch-Id, Nats-Batch-Sequence


class AdmittingStream(StreamBefore, Protocol):
    """The admission of the stream, as batches use it."""

    def begin_alone(self, turn: Turn) -> Publish:
        """A publish of its own, behind all that the turn has admitted so far."""

    def open(self, turn: Turn) -> Publish:
        """The publish that takes records now."""

    def check(self, publish: Publish, message: Candidate) -> Known | None:
        """Raise PublishRefused, or say where the stream already has the message, or return None for a new one."""

    def newest(self, publish: Publish) -> Publish:
        """The open publish when it has messages, else the last one that is in flight."""

    def add(self, publish: Publish, message: Candidate, batch: bytes, start: int, *, acked: bool) -> None:
        """Give a message that was checked its sequence. Raises PublishRefused, and then nothing has changed."""

    def add_fast_run(self, publish: Publish, batch: bytes, start: int, head: bytes, seq: int) -> tuple[int, int]:
        """Give the messages that go on with a fast batch and ask for nothing else their sequences (_staging.pyx)."""

    def end_alone(self, turn: Turn, publish: Publish) -> None:
        """The publish is complete: it is to be proposed."""

    def take_back(self, publish: Publish) -> None:
        """The publish is not to be: none of its messages has passed."""

    def refuse(self, turn: Turn, reply: bytes, error: ApiError) -> None:
        """Answer that a message is not taken, behind what that rests on."""


class Batching:
    """The batches of one stream during one term of leadership."""

    def __init__(self, room: BatchRoom, *, stream: bytes, domain: str) -> None:
        self._stream = stream
        self._domain = domain
        self._atomic = AtomicBatches(room)
        self._schemas: SchemaCheck | None = None
        self._fast = FastBatches(room, puback_prefix(stream, domain))

    def follow(self, config: StreamConfig) -> None:
        """Judge by this configuration from now on; what it does not allow is dropped."""
        self._config = config
        schemas = SchemaCheck.of(config)
        if not config.allow_atomic or schemas != self._schemas:  # what is staged was judged by other schemas
            self._atomic.end()
        self._schemas = schemas
        self._takes_runs = schemas is None and not stream_extensions(config).delayed  # what asks to wait is refused
        if not config.allow_batched:
            self._fast.end()

    @property
    def deadline_ns(self) -> int | None:
        """When the first batch has waited too long for its next message; None without batches."""
        return min(
            (at for at in (self._atomic.deadline_ns, self._fast.deadline_ns) if at is not None),
            default=None,
        )

    def expire(self, now_ns: int) -> list[Abandoned]:
        """End what has waited too long; of atomic batches an advisory tells."""
        self._fast.expire(now_ns)
        return [Abandoned(batch_id, TIMED_OUT) for batch_id in self._atomic.expire(now_ns)]

    def end(self) -> None:
        """The term is over: what is staged is dropped, and no publisher hears of it."""
        self._atomic.end()
        self._fast.end()

    def take(  # noqa: PLR0913, PLR0917  (what a message of a batch meets)
        self, admission: AdmittingStream, turn: Turn, captured: bytes, start: int, message: Candidate, now_ns: int
    ) -> int:
        """The message at an offset says that it is of a batch; the reply subject is looked at first.

        Returns the offset of the next one that is to be judged: a run of its batch behind it is taken with it.
        """
        record = captured[start : message.end]
        if message.is_fast:
            place = self._take_fast(admission, turn, record, message, now_ns)
            return message.end if place is None else self._take_fast_run(admission, turn, captured, message.end, place)
        if self._is_kept(admission, turn, record, message, now_ns) and self._takes_runs:
            config = self._config
            message_bytes_max = config.max_msg_size if config.max_msg_size > 0 else NO_LIMIT
            return self._atomic.take_run(message.headers[b"Nats-Batch-Id"], captured, message.end, message_bytes_max)
        return message.end

    def _is_kept(self, admission: AdmittingStream, turn: Turn, record: bytes, member: Candidate, now_ns: int) -> bool:
        """Whether a message of an atomic batch waits now, and does not end its batch."""
        reply = member.reply if not self._config.no_ack else b""
        try:
            step = self._staged(record, member, now_ns)
            if isinstance(step, Declined):
                self._refuse(admission, turn, reply, member, step)
                return False
            if isinstance(step, Whole):
                self._admit(admission, turn, step, reply, now_ns)
        except PublishRefused as refused:
            self._refuse(admission, turn, reply, member, Declined(refused.error))
            return False
        is_kept = isinstance(step, Kept)
        if is_kept:
            turn.admitted.has_batches = True
            turn.answer(reply, b"")
        turn.trace(member)
        return is_kept

    def _staged(self, record: bytes, member: Candidate, now_ns: int) -> Step:
        check_shape(member, self._config)
        check_not_in_batch(member.hdr, self._config)
        if not self._config.allow_atomic:
            return Declined(errors.ATOMIC_PUBLISH_DISABLED.with_values())
        if self._schemas is not None and member.headers.get(b"Nats-Batch-Commit") != COMMIT_BEFORE:
            self._schemas.check(member)
        return self._atomic.take(member.headers, record, now_ns)

    @staticmethod
    def _refuse(admission: AdmittingStream, turn: Turn, reply: bytes, member: Candidate, refused: Declined) -> None:
        if refused.abandoned:
            turn.admitted.abandoned.append(Abandoned(member.headers[b"Nats-Batch-Id"], refused.abandoned))
        admission.refuse(turn, reply, refused.error)
        turn.trace(member, refused_text(refused.error, member.headers))

    def _take_fast(
        self, admission: AdmittingStream, turn: Turn, record: bytes, message: Candidate, now_ns: int
    ) -> Place | None:
        """A message whose reply subject says that it is of a fast batch; returns its place there when it has one."""
        found = self._placed(message)
        if not isinstance(found, Place):
            reply = message.reply if not self._config.no_ack else b""
            self._refuse(admission, turn, reply, message, Declined(found))
            return None
        level = message.headers.get(b"Nats-Required-Api-Level")
        step = self._fast.take(found, level, now_ns, acked=not self._config.no_ack)
        if step.error is not None:
            reply = message.reply if not self._config.no_ack else b""
            self._refuse(admission, turn, reply, message, Declined(step.error))
            return None
        turn.admitted.has_batches = True
        answers, text = step.answers, ""
        if step.goes_on:
            try:
                answers += self._stored_fast(admission, turn, record, message, found)
            except PublishRefused as refused:
                answers += self._fast.refused(found, refused.error, error_ack(self._stream, refused.error))
                text = refused_text(refused.error, message.headers)
        for answer in answers:
            turn.answer(message.reply, answer)
        turn.trace(message, text)
        return found

    def _take_fast_run(self, admission: AdmittingStream, turn: Turn, captured: bytes, start: int, place: Place) -> int:
        """Take the messages that are appended to the batch of a message behind it; return where they end."""
        batch = self._fast.begun(place)
        if batch is None:
            return start
        head = place.reply.rsplit(b".", AFTER_HEAD)[0] + b"."
        publish = admission.open(turn)
        end, count = admission.add_fast_run(publish, captured, start, head, batch.last_seq + 1)
        if count:
            self._fast.admitted_run(batch, count)
            seq, stream_seq = batch.last_seq, publish.records.next_seq - 1
            publish.in_fast.append(InFastBatch(batch, seq, stream_seq, b"%b%d.1.$FI" % (head, seq), count))
        return end

    def _placed(self, message: Candidate) -> Place | ApiError:
        """The place of the message in its batch, or why it is not taken."""
        try:
            check_shape(message, self._config)
            check_not_in_batch(message.hdr, self._config)
        except PublishRefused as refused:
            return refused.error
        if not self._config.allow_batched:
            return errors.BATCH_PUBLISH_DISABLED.with_values()
        return Place.parse(message.reply) or errors.BATCH_PUBLISH_INVALID_PATTERN.with_values()

    def _stored_fast(
        self, admission: AdmittingStream, turn: Turn, record: bytes, message: Candidate, place: Place
    ) -> list[bytes]:
        """Admit a message of a fast batch as any other; raises PublishRefused. Returns what is answered now."""
        publish = admission.open(turn)
        known = admission.check(publish, message)
        if known is not None and known.publish is None:
            return self._fast.repeated(place, known.seq)
        seq = publish.records.next_seq
        if known is None:
            stored = as_stored(record, commits=False)
            admission.add(publish, Candidate.at(stored, 0), stored, 0, acked=False)
        else:
            seq = known.seq  # in flight: it counts as stored when all that is in flight is committed
        in_fast = InFastBatch(self._fast.admitted(place), place.seq, seq, message.reply)
        admission.newest(publish).in_fast.append(in_fast)
        return []

    def committed(self, publish: Publish) -> bytes:
        """The answers to the messages of fast batches in it, as a batch for `Outbox.send_batch`."""
        return b"".join(
            encode_capture(reply, payload=answer)
            for one in publish.in_fast
            for reply, answer in self._fast.stored(one.batch, one.seq, one.stream_seq, one.reply, count=one.count)
        )

    def _admit(self, admission: AdmittingStream, turn: Turn, whole: Whole, reply: bytes, now_ns: int) -> None:
        """Make the messages of a batch one publish; raises PublishRefused for all of them."""
        publish = admission.begin_alone(turn)
        members = Members(admission, self._config, publish, now_ns=now_ns)
        staged = whole.records if members.takes_plain else list(singly(whole.records))
        if whole.ends_before:  # the last message is stored with the header of the commit
            staged = [*staged[:-1], *singly(staged[-1:])]
        try:
            for place, one in enumerate(staged, 1):
                commits = whole.ends_before and place == len(staged)
                if isinstance(one, StagedRun):
                    add_run(publish.records, one.records)
                elif members.takes_plain and not commits and is_plain(one):
                    # Most messages, never the last one: `add` of that one says what the last message id is.
                    publish.records.add_at(one, 0, 0, acked=False)
                else:
                    record = as_stored(one, commits=commits)
                    member = Candidate.at(record, 0)
                    members.check(member)
                    admission.add(publish, member, record, 0, acked=False)
        except PublishRefused:
            admission.take_back(publish)
            raise
        if reply:
            seq, count = publish.records.next_seq - 1, publish.records.count
            publish.answers.append((reply, batch_ack(self._stream, seq, whole.batch_id, count, self._domain)))
        admission.end_alone(turn, publish)


def singly(staged: Iterable[bytes | StagedRun]) -> Iterator[bytes]:
    """Capture records, those of runs too."""
    for one in staged:
        if isinstance(one, StagedRun):
            yield from (found.record for found in captures(one.records))
        else:
            yield one


def is_plain(record: bytes) -> bool:
    """Whether a message of a batch asks for nothing but to be part of it."""
    return capture_at(record, 0).hdr.count(b"Nats-") == HEADERS_OF_BATCH


def as_stored(record: bytes, *, commits: bool) -> bytes:
    """A staged message as it is stored: without the API level that it required; `commits` adds the commit to it."""
    found = capture_at(record, 0)
    hdr = found.hdr
    if message.REQUIRED_API_LEVEL in hdr:
        hdr = message.strip(hdr, message.REQUIRED_API_LEVEL)
    if commits:
        hdr = message.append(hdr, message.BATCH_COMMIT, b"1")
    return record if hdr == found.hdr else encode_capture(found.subject, found.reply, hdr, found.payload)
