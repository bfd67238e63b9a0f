"""Messages that passed admission, from their proposal until they are applied, and what is answered to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.streams.publishing.puback import duplicate_ack, puback_prefix
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model.subject import is_literal

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing._admission import RecordBatch
    from jetraft.cluster.streams.publishing.candidate import Candidate
    from jetraft.store.model.api_error import ApiError


@attrs.define(eq=False)
class Publish:
    """Messages that became one proposal, and who waits for its outcome."""

    records: RecordBatch
    last_msg_id_before: bytes = b""  # that of the message before the first one
    msg_ids: list[bytes] = attrs.Factory(list)
    duplicates: list[tuple[bytes, int]] = attrs.Factory(list)  # (reply, sequence): repeats of messages in flight
    answers: list[tuple[bytes, bytes]] = attrs.Factory(list)  # (reply, ack), where the records have none of their own
    in_fast: list[InFastBatch] = attrs.Factory(list)
    admitted_ns: int = 0  # when it was proposed, of the monotonic clock
    refusals: int = 0  # of other messages, among the answers: they rest on this publish, or on those before it

    def proposal(self) -> Proposal:
        """The entry that it is to become."""
        records = self.records
        body = [memoryview(records)]
        return Proposal(kind=Kind.MESSAGES, first_seq=records.first_seq, count=records.count, body=body)

    def last_seq_of(self, pattern: bytes) -> int:
        """The last sequence of a subject, or of all that match a pattern; 0 when there is none."""
        if is_literal(pattern):
            return self.records.last_seq_of(pattern)
        return self.records.last_match(pattern)

    def acks(self, stream: bytes, domain: str = "") -> bytes:
        """The positive acks as a batch for `Outbox.send_batch`."""
        acks = self.records.acks(puback_prefix(stream, domain))
        if not self.duplicates and not self.answers:
            return acks
        late = [encode_capture(reply, payload=ack) for reply, ack in self.answers]
        late += [encode_capture(reply, payload=duplicate_ack(stream, seq, domain)) for reply, seq in self.duplicates]
        return acks + b"".join(late)


@attrs.define(eq=False)
class FastBatch:
    """One that has begun. `flow_seq <= stored_seq <= last_seq`, all of the batch."""

    batch_id: bytes
    may_have_gaps: bool
    flow_max: int  # what the publisher allows
    flow: int
    touched_ns: int
    last_seq: int = 0  # the last message that came
    stored_seq: int = 0
    flow_seq: int = 0  # of the last flow ack
    stream_seq: int = 0  # of the last message that was stored
    pending: int = 0  # messages that were proposed and are not committed
    ends_at: bytes | None = None  # it is acknowledged there, and known no more, when what is pending is committed


@attrs.frozen(slots=True)
class InFastBatch:
    """Messages of a fast batch that follow each other; number, sequence in the stream and reply are the last one's."""

    batch: FastBatch
    seq: int
    stream_seq: int
    reply: bytes
    count: int = 1


@attrs.frozen(slots=True)
class Known:
    """The first copy of a message: its sequence, and its publish while that is in flight."""

    seq: int
    publish: Publish | None


@attrs.frozen(kw_only=True, slots=True)
class TraceOutcome:
    """The decision about a traced message; the number is that of its trace in this turn."""

    number: int
    subject: str = ""
    no_interest: bool = False
    error: str = ""


@attrs.frozen(slots=True)
class Abandoned:
    """A batch that had begun and ends without a message stored, and why."""

    batch_id: bytes
    reason: str


@attrs.define(eq=False)
class Admitted:
    """The outcome of a batch: proposals in order, and answers that need no proposal (refusals, known duplicates)."""

    publishes: list[Publish]
    answers: list[bytes]  # capture records for `Outbox.send_batch`
    traced: list[TraceOutcome] = attrs.Factory(list)
    abandoned: list[Abandoned] = attrs.Factory(list)
    has_batches: bool = False  # some of the messages are of batches


@attrs.define(eq=False)
class Turn:
    """The outcome of a captured batch in the making: the publish that takes records, and what is finished."""

    admitted: Admitted
    open: Publish | None = None

    def answer(self, reply: bytes, payload: bytes) -> None:
        """Answer at once, without a proposal; an empty reply wants nothing."""
        if reply:
            self.admitted.answers.append(encode_capture(reply, payload=payload))

    def trace(self, message: Candidate, error: str = "", *, no_interest: bool = False) -> None:
        """Say what became of a message, if it is traced."""
        if message.trace is not None:
            subject = message.subject.decode(errors="replace") if not error else ""
            outcome = TraceOutcome(number=message.trace, subject=subject, no_interest=no_interest, error=error)
            self.admitted.traced.append(outcome)


@attrs.frozen(kw_only=True, slots=True)
class AdmittedCopies:
    """The outcome of copies. `left`: how many at the end are passed over, or when it is `full`, not judged."""

    admitted: Admitted
    left: int
    full: ApiError | None
