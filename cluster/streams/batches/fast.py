"""Fast batches (fast ingest of nats-server 2.14): messages that are stored as they come, acknowledged every so many.

Pure. The reply subject of each message says which batch it is of, and where in it; the leader answers with flow acks,
notes of gaps and errors, and at the end with an ack of the whole. A batch that may have gaps (`ok`) goes on after one;
another (`fail`) ends at the last message before it. How many messages the next ack may wait for grows, and falls with
the number of batches of the stream. Nothing here decides what is stored, so nothing is replicated: a leader that does
not know a batch says so, and its publisher knows from the last ack what is stored.

Texts, order of the checks and flow: nats-server 2.15.1's, observed; source: jetstream_batching.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.batch_room import (
    BATCH_ID_BYTES_MAX,
    FAST_PER_SERVER_MAX,
    FAST_PER_STREAM_MAX,
    BatchRoom,
)
from jetraft.cluster.streams.publishing.publish import FastBatch
from jetraft.store.model import errors
from jetraft.store.model.encoding.gojson import quote
from jetraft.store.model.limits import BATCH_IDLE_NS_MAX
from jetraft.store.model.versioning import is_level_served

if TYPE_CHECKING:
    from jetraft.store.model.api_error import ApiError

START, APPEND, COMMIT, COMMIT_BEFORE, PING = range(5)
FIRST_OPS: Final = (START, COMMIT, PING)  # of the first message of a batch
LATER_OPS: Final = (APPEND, COMMIT, COMMIT_BEFORE, PING)
PARTS: Final = 7  # of a reply subject: inbox, id, flow, gaps, sequence, operation, suffix
FLOW_DEFAULT: Final = 10
FLOW_MAX: Final = 65_535
FLOW_SHARED: Final = 500  # messages between two acks of all batches of a stream together
SEQ_DIGITS_MAX: Final = 19


@attrs.frozen(slots=True)
class Place:
    """The parts of a reply subject: `<inbox>.<id>.<flow>.<ok|fail>.<sequence>.<operation>.$FI`."""

    batch_id: bytes
    flow: int  # messages between two acks, at most
    may_have_gaps: bool
    seq: int
    op: int
    reply: bytes

    @classmethod
    def parse(cls, reply: bytes) -> Place | None:
        """None for another pattern."""
        parts = reply.rsplit(b".", PARTS - 1)
        if len(parts) != PARTS:
            return None
        _, batch_id, flow, gaps, seq, op, _ = parts
        if gaps not in (b"ok", b"fail") or not (seq.isdigit() and len(seq) <= SEQ_DIGITS_MAX and int(seq)):
            return None
        if not op.isdigit() or int(op[-SEQ_DIGITS_MAX:]) not in (FIRST_OPS if int(seq) == 1 else LATER_OPS):
            return None
        return cls(batch_id, _flow(flow), gaps == b"ok", int(seq), int(op), reply)


def _flow(text: bytes) -> int:
    """The flow that a publisher asks for."""
    if not (text.isdigit() and int(text[:SEQ_DIGITS_MAX])):
        return FLOW_DEFAULT
    return min(int(text[:SEQ_DIGITS_MAX]), FLOW_MAX)


@attrs.frozen(slots=True)
class FastStep:
    """The answer to the message's reply subject, and whether the message is to be judged and stored."""

    answers: list[bytes] = attrs.Factory(list)
    goes_on: bool = False
    error: ApiError | None = None  # it is of no batch that this stream knows or begins


class FastBatches:
    """The batches of one stream during one term of leadership."""

    def __init__(self, room: BatchRoom, ack_prefix: bytes) -> None:
        """`ack_prefix` is an ack of the stream up to the sequence (puback.py)."""
        self._room = room
        self._ack_prefix = ack_prefix
        self._batches: dict[bytes, FastBatch] = {}  # the one that has waited longest is first

    def take(self, place: Place, required_level: bytes | None, now_ns: int, *, acked: bool) -> FastStep:
        """A message, or an end or a ping without one."""
        refusal = self._why_not(place)
        if refusal is not None:
            return FastStep(error=refusal)
        batch = self._batches.pop(place.batch_id, None)
        if batch is None:
            flow = 1 if self._batches else min(FLOW_SHARED, place.flow)
            batch = FastBatch(place.batch_id, place.may_have_gaps, place.flow, flow, now_ns)
        else:
            self._room.fast -= 1
        if not is_level_served(required_level):
            return FastStep(error=errors.REQUIRED_API_LEVEL.with_values())
        batch.touched_ns = now_ns
        self._batches[place.batch_id] = batch
        self._room.fast += 1
        if place.op == PING:
            return FastStep(self._pinged(batch, place))
        if batch.ends_at is not None:
            return FastStep()
        return self._continued(batch, place, acked=acked)

    def _why_not(self, place: Place) -> ApiError | None:
        if len(place.batch_id) > BATCH_ID_BYTES_MAX:
            return errors.BATCH_PUBLISH_INVALID_BATCH_ID.with_values()
        if place.batch_id in self._batches:
            return None
        if place.seq != 1 or place.op == PING:
            return errors.BATCH_PUBLISH_UNKNOWN_BATCH_ID.with_values()
        if len(self._batches) >= FAST_PER_STREAM_MAX or self._room.fast >= FAST_PER_SERVER_MAX:
            return errors.BATCH_PUBLISH_TOO_MANY_IN_FLIGHT.with_values()
        return None

    def _continued(self, batch: FastBatch, place: Place, *, acked: bool) -> FastStep:
        answers = []
        expected = batch.last_seq + 1
        if place.seq != expected:
            answers.append(_gap(expected, place.seq))
            if not batch.may_have_gaps or place.seq < expected:
                return FastStep(answers + self._ended(batch, place.reply))
        if place.op == COMMIT_BEFORE:
            batch.last_seq = place.seq - 1
            if not batch.pending:
                batch.stored_seq = batch.last_seq
            return FastStep(answers + self._ended(batch, place.reply))
        batch.last_seq = place.seq
        if place.op == COMMIT:
            batch.ends_at = place.reply
        elif place.seq == 1 and acked:
            answers.append(_flow_ack(0, batch.flow))
        return FastStep(answers, goes_on=True)

    def _pinged(self, batch: FastBatch, place: Place) -> list[bytes]:
        """A ping says how many messages there should be."""
        answers = []
        if place.seq > batch.last_seq:
            answers.append(_gap(batch.last_seq + 1, place.seq + 1))
            if not batch.may_have_gaps:
                ended = self._ended(batch, place.reply)
                return answers + (ended or [_flow_ack(batch.flow_seq, batch.flow)])
            batch.last_seq = place.seq
            if not batch.pending:
                batch.stored_seq = place.seq
            told = self._flow_acks(batch)
            return answers + (told or [_flow_ack(batch.flow_seq, batch.flow)])
        return [_flow_ack(batch.flow_seq, batch.flow)]

    def begun(self, place: Place) -> FastBatch | None:
        """The batch that a message which was taken began or went on with, while more may follow; else None."""
        batch = self._batches.get(place.batch_id)
        return batch if batch is not None and batch.ends_at is None else None

    @staticmethod
    def admitted_run(batch: FastBatch, count: int) -> None:
        """So many messages that follow the last one are proposed: `stored` follows for all of them at once."""
        batch.last_seq += count
        batch.pending += count

    # --- what became of a message that goes on

    def admitted(self, place: Place) -> FastBatch:
        """It is proposed, or a repeat of one that is: `stored` follows."""
        batch = self._batches[place.batch_id]
        batch.pending += 1
        return batch

    def repeated(self, place: Place, first_seq: int) -> list[bytes]:
        """The stream has it already, applied at `first_seq`: it counts as stored."""
        batch, answers = self._batches[place.batch_id], []
        if not batch.pending:
            batch.stored_seq = place.seq
            answers = self._flow_acks(batch)
        if place.op != COMMIT:
            return answers
        if batch.last_seq == 1 and not batch.may_have_gaps:
            self._drop(batch)
            return [*answers, self._ack(batch, first_seq, b',"duplicate": true')]
        return answers + self._ended(batch, place.reply)

    def refused(self, place: Place, error: ApiError, plain: bytes) -> list[bytes]:
        """It is not stored; `plain` is what a message of no batch would be answered."""
        batch = self._batches[place.batch_id]
        if not batch.may_have_gaps and batch.last_seq == 1:
            self._drop(batch)
            return [plain]
        answers = [_error(place.seq, error)]
        if batch.may_have_gaps and place.op != COMMIT:
            return answers
        batch.last_seq = place.seq - 1
        return answers + self._ended(batch, place.reply)

    def stored(
        self, batch: FastBatch, seq: int, stream_seq: int, reply: bytes, *, count: int = 1
    ) -> list[tuple[bytes, bytes]]:
        """It is committed, and so are the `count` - 1 before it.

        Returns what is answered, and to which reply subject: its own, or that of the end. Of the acks that fall due
        among several messages the last one is given, which says what the others do.
        """
        if self._batches.get(batch.batch_id) is not batch:
            return []  # it has ended; another one may have its id by now
        batch.pending = max(0, batch.pending - count)
        batch.stream_seq = max(batch.stream_seq, stream_seq)
        before = self._passed(batch, seq - 1) if count > 1 else []
        batch.stored_seq = seq if batch.pending else batch.last_seq
        if batch.ends_at is not None:
            return [(batch.ends_at, answer) for answer in self._ended(batch, batch.ends_at)]
        return [(reply, answer) for answer in self._flow_acks(batch) or before]

    # --- ends

    def expire(self, now_ns: int) -> None:
        """Forget the batches that have waited too long; their publishers hear of it when they come back."""
        while (deadline_ns := self.deadline_ns) is not None and deadline_ns <= now_ns:
            self._drop(next(iter(self._batches.values())))

    @property
    def deadline_ns(self) -> int | None:
        """When the first batch has waited too long; None without batches."""
        for batch in self._batches.values():
            return batch.touched_ns + BATCH_IDLE_NS_MAX
        return None

    def end(self) -> None:
        """Forget all of them."""
        self._room.fast -= len(self._batches)
        self._batches.clear()

    def __len__(self) -> int:
        return len(self._batches)

    def _ended(self, batch: FastBatch, reply: bytes) -> list[bytes]:
        """No message is taken any more; the ack of the batch, once all that was taken is committed."""
        batch.ends_at = reply
        if batch.pending:
            return []
        self._drop(batch)
        return [self._ack(batch, batch.stream_seq)]

    def _drop(self, batch: FastBatch) -> None:
        del self._batches[batch.batch_id]
        self._room.fast -= 1

    def _flow_acks(self, batch: FastBatch) -> list[bytes]:
        """The ack that is due; then the flow goes towards the batch's share."""
        steps = (batch.stored_seq - batch.flow_seq) // batch.flow
        if not steps:
            return []
        batch.flow_seq += steps * batch.flow
        self._adapt(batch)
        return [_flow_ack(batch.flow_seq, batch.flow)]

    def _passed(self, batch: FastBatch, seq: int) -> list[bytes]:
        """The last of the acks that were due, one by one, until `seq` was stored."""
        flow_seq = batch.flow_seq
        while seq - batch.flow_seq >= batch.flow:
            was = batch.flow
            batch.flow_seq += was
            self._adapt(batch)
            if batch.flow == was:  # it has its share, and keeps it
                batch.flow_seq += (seq - batch.flow_seq) // was * was
        return [_flow_ack(batch.flow_seq, batch.flow)] if batch.flow_seq > flow_seq else []

    def _adapt(self, batch: FastBatch) -> None:
        """The flow goes towards the batch's share."""
        share = min(max(FLOW_SHARED // len(self._batches), 1), batch.flow_max)
        batch.flow = min(batch.flow * 2, share) if batch.flow < share else max(batch.flow // 2, share)

    def _ack(self, batch: FastBatch, stream_seq: int, mark: bytes = b"") -> bytes:
        quoted = quote(batch.batch_id.decode(errors="replace")).encode()
        return b'%s%d%s,"batch":%s,"count":%d}' % (self._ack_prefix, stream_seq, mark, quoted, batch.last_seq)


def _flow_ack(seq: int, flow: int) -> bytes:
    return b'{"type":"ack","seq":%d,"msgs":%d}' % (seq, flow)


def _gap(expected: int, seq: int) -> bytes:
    return b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, seq)


def _error(seq: int, error: ApiError) -> bytes:
    text = quote(error.description).encode()
    body = b'{"code":%d,"err_code":%d,"description":%s}' % (error.code, error.err_code, text)
    return b'{"type":"err","seq":%d,"error":%s}' % (seq, body)
