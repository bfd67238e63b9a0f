"""Admission: what the leader of a stream does with a batch of published messages before it proposes them.

A message is judged against the state that it will meet when it is applied: applied state plus everything in flight
(proposed, not yet applied). A message that passes gets its sequence and its time here, so that applying never refuses.
In-flight state belongs to one term of leadership: a new `PublishAdmission` is made when a replica becomes leader and
thrown away when it stops being one.

Plain messages are handled in C in runs (`_admission.pyx`); one with JetStream headers, or one that finds the stream
full, is judged one by one: by itself in `candidate.py`, against the state here. The order of the checks is nats-server
2.15's, observed by sending it messages that break two rules at once. Source: stream.go (processJetStreamMsg),
jetstream_batching.go (checkMsgHeadersPreClusteredProposal).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.batch_room import BatchRoom
from jetraft.cluster.capture._capture import capture_at, encode_capture
from jetraft.cluster.state.ttl import marker_hdr
from jetraft.cluster.streams.batches._staging import add_fast_run
from jetraft.cluster.streams.batches.batching import Batching
from jetraft.cluster.streams.publishing._admission import RecordBatch
from jetraft.cluster.streams.publishing.candidate import (
    Candidate,
    PublishRefused,
    check_rollup,
    check_shape,
    check_size,
    check_supported,
    check_unsupported_origin,
    rolls_up,
)
from jetraft.cluster.streams.publishing.puback import counter_ack, error_ack
from jetraft.cluster.streams.publishing.publish import Admitted, Known, Publish, Turn
from jetraft.cluster.streams.publishing.refusals import answer_duplicate, refuse_all
from jetraft.cluster.streams.publishing.traced import DUPLICATE, refused_text
from jetraft.cluster.streams.rules.counters import Counters, check_increment
from jetraft.cluster.streams.rules.expectations import check_expected_sequences, check_last_msg_id
from jetraft.cluster.streams.rules.schema_check import SchemaCheck
from jetraft.cluster.streams.rules.stored_form import as_stored
from jetraft.cluster.streams.rules.subject_bound import SubjectBound
from jetraft.cluster.streams.rules.subject_quota import SubjectQuota
from jetraft.cluster.streams.schedules.delaying import asks_to_wait, check_due, is_due_now, waiting_form
from jetraft.cluster.streams.schedules.scheduling import check_schedule, check_scheduler
from jetraft.store.frames.format import RECORD_HAS_ROLLUP, RECORD_HAS_TTL
from jetraft.store.model import errors
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.config import DiscardPolicy, StorageType
from jetraft.store.model.extensions import stream_extensions
from jetraft.store.model.limits import NO_LIMITS
from jetraft.store.model.subject import is_literal
from jetraft.store.stream.retention import SizeModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.streams.rules.applied_state import AppliedState
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.limits import QueueLimits

ENTRY_BYTES_MAX: Final = 1 << 20  # records of one entry; a single larger message is an entry of its own
NO_LIMIT: Final = -1
REFUSALS_IN_FLIGHT_MAX: Final = 10_000  # answers that wait for a commit, 100 bytes each; more are asked to come again
RESTS_ON_WHAT_IS_STORED: Final = frozenset(
    spec.err_code
    for spec in (errors.STREAM_WRONG_LAST_SEQUENCE, errors.STREAM_WRONG_LAST_MSG_ID, errors.STREAM_STORE_FAILED)
)
PATTERN_VISITS_PER_TURN: Final = 40_000  # subjects that expectations of patterns are compared with, about 2 ms


class PublishAdmission:
    """The judge of one stream during one term of leadership. Synchronous; touched by the node's one task."""

    def __init__(
        self,
        config: StreamConfig,
        applied: AppliedState,
        *,
        domain: str = "",
        room: BatchRoom | None = None,
        limits: QueueLimits = NO_LIMITS.queues,
    ) -> None:
        """`room` is what batches take on this server; None: of this stream alone."""
        self._domain, self._limits = domain, limits
        self._stream = config.name.encode()
        self.batching = Batching(room or BatchRoom(), stream=self._stream, domain=domain)
        self._applied = applied
        self._counters = Counters(applied) if config.allow_msg_counter else None
        self._size_model = SizeModel.FILE if config.storage is StorageType.FILE else SizeModel.MEMORY
        self._next_seq, self._last_ts_ns = applied.next_seq, applied.last_ts_ns
        self._overheads = self._size_model.overhead_bytes, self._size_model.hdr_overhead_bytes
        self._bound: SubjectBound | None = None
        self.follow(config)
        self.last_msg_id = applied.last_msg_id
        self._in_flight: Fifo[Publish] = Fifo()
        self._in_flight_ids: dict[bytes, Known] = {}
        self._in_flight_messages = self._in_flight_bytes = self._in_flight_stored = 0
        self._refusals_in_flight = 0
        self._pattern_visits_left = PATTERN_VISITS_PER_TURN

    def follow(self, config: StreamConfig) -> None:
        """Judge by this configuration from now on."""
        self.config = config
        self._bound = SubjectBound.of(config, self._applied, self._bound)
        self._quota = SubjectQuota.of(config)
        self._schemas = SchemaCheck.of(config)
        self._delays = stream_extensions(config).delayed
        self._takes_plain = not config.sealed and not config.discard_new_per_subject and not config.allow_msg_counter
        self._takes_plain &= self._bound is None and self._quota is None and self._schemas is None
        self._bounds_room = config.discard is DiscardPolicy.NEW
        self._message_bytes_max = config.max_msg_size if config.max_msg_size > 0 else NO_LIMIT
        self._plain_rooms = None  # what `plain_rooms` gives, where that never changes
        if self._takes_plain and not self._bounds_room:
            self._plain_rooms = self._message_bytes_max, NO_LIMIT, NO_LIMIT, ENTRY_BYTES_MAX
        self._is_acked = not config.no_ack
        self.batching.follow(config)

    def admit(self, batch: bytes, now_unix_ns: int, *, refuse_with: ApiError | None = None) -> Admitted:
        """Judge a capture batch in order; what it returns is to be proposed in order, in this turn.

        With `refuse_with` every message gets that error (a store that is full, say). Timestamps never go back.
        """
        limits = self._limits
        if refuse_with is None and (
            self._in_flight_messages >= limits.messages or self._in_flight_bytes >= limits.bytes  # `is_overloaded`
        ):
            refuse_with = errors.STREAM_TOO_MANY_REQUESTS.with_values()
        if refuse_with is not None:
            refuse_all(refused := Turn(admitted=Admitted(publishes=[], answers=[])), batch, refuse_with, self.config)
            return refused.admitted
        self._last_ts_ns = max(self._last_ts_ns, now_unix_ns)
        position, end = 0, len(batch)
        records = RecordBatch(self._next_seq, self._last_ts_ns, *self._overheads)
        publish = Publish(records, self.last_msg_id)
        position = self._take_plain(publish, batch, position)
        if position == end:  # nearly always
            if end:
                self._enlist(publish)
            return Admitted(publishes=[publish] if end else [], answers=[])
        turn = self.begin(now_unix_ns)
        turn.open = publish
        if publish.records.size < ENTRY_BYTES_MAX:
            position = self._take_one(turn, publish, batch, position)
        while position < end:
            publish = self.open(turn)
            position = self._take_plain(publish, batch, position)
            if position < end and publish.records.size < ENTRY_BYTES_MAX:
                position = self._take_one(turn, publish, batch, position)
        self.close(turn)
        return turn.admitted

    def admit_markers(self, expiring: Iterable[tuple[bytes, int]], now_unix_ns: int) -> Admitted:
        """Judge markers for subjects whose last message, of this sequence, expires; to be proposed in this turn.

        A subject that has a newer message by now, or in flight, gets none. No limit stands in the way of a marker: it
        replaces what it rolls up.
        """
        turn, hdr = self.begin(now_unix_ns), marker_hdr(self.config.subject_delete_marker_ttl)
        for subject, seq in expiring:
            publish = self.open(turn)
            if self._last_seq_of(publish, subject) == seq:
                marker = encode_capture(subject, hdr=hdr)
                publish.records.add_at(marker, 0, RECORD_HAS_ROLLUP | RECORD_HAS_TTL, acked=False)
                if self._bound is not None:
                    self._bound.note(subject)
                self.last_msg_id = b""
        self.close(turn)
        return turn.admitted

    def admit_scheduled(self, batch: bytes, now_unix_ns: int) -> Admitted:
        """Judge what schedules have produced; to be proposed in order, in this turn. No answer is given."""
        turn, position = self.begin(now_unix_ns), 0
        while position < len(batch):
            position = self._take_one(turn, self.open(turn), batch, position, is_scheduled=True)
        self.close(turn)
        return turn.admitted

    def refuse(self, turn: Turn, reply: bytes, error: ApiError) -> None:
        """Answer that a message is not taken; behind what that rests on.

        A comparison, and a limit, count what is in flight. Leadership may end before that is committed: then the
        message was refused because of something that never was. So such a refusal leaves with the ack of the newest
        publish, or never; its publisher tries again, and the next leader judges it.
        """
        behind = None
        if reply and error.err_code in RESTS_ON_WHAT_IS_STORED:
            is_open = turn.open is not None and turn.open.records.count
            behind = turn.open if is_open else (self._in_flight[-1] if self._in_flight else None)
        if behind is None:
            turn.answer(reply, error_ack(self._stream, error))
        elif self._refusals_in_flight >= REFUSALS_IN_FLIGHT_MAX:
            turn.answer(reply, error_ack(self._stream, errors.STREAM_TOO_MANY_REQUESTS.with_values()))
        else:
            self._refusals_in_flight += 1
            behind.refusals += 1
            behind.answers.append((reply, error_ack(self._stream, error)))

    def is_last(self, subject: bytes, seq: int) -> bool:
        """Whether this is the last sequence of a subject, with what is in flight."""
        return self._last_seq_of(self._new_publish(), subject) == seq

    def settled(self, publish: Publish) -> None:
        """Forget a publish that was applied: the applied state speaks for it now."""
        oldest = self._in_flight.popleft()
        assert oldest is publish, "publishes settle in the order of their proposal"
        self._in_flight_messages -= publish.records.count
        self._in_flight_bytes -= publish.records.size
        self._in_flight_stored -= publish.records.stored_bytes
        self._refusals_in_flight -= publish.refusals
        for msg_id in publish.msg_ids:
            self._in_flight_ids.pop(msg_id, None)
        if self._counters is not None:
            self._counters.settled(publish)
        if self._bound is not None:
            self._bound.settled(publish.records.subjects())

    @property
    def is_overloaded(self) -> bool:
        """Whether nothing is taken because too much is in flight."""
        return self._in_flight_messages >= self._limits.messages or self._in_flight_bytes >= self._limits.bytes

    @property
    def next_seq(self) -> int:
        """The sequence of the next message."""
        return self._next_seq

    def skip_to(self, seq: int) -> None:
        """The next message gets this sequence: what was proposed in this turn moves the stream there, once applied."""
        self._next_seq = max(self._next_seq, seq)

    @property
    def in_flight_messages(self) -> int:
        """Messages proposed and not yet applied."""
        return self._in_flight_messages

    def begin(self, now_unix_ns: int) -> Turn:
        """Judge at this time, which never goes back, until `close`."""
        self._last_ts_ns = max(self._last_ts_ns, now_unix_ns)
        self._pattern_visits_left = PATTERN_VISITS_PER_TURN
        return Turn(admitted=Admitted(publishes=[], answers=[]))

    def open(self, turn: Turn) -> Publish:
        """The publish that takes records now; a full one is closed and followed by another."""
        if turn.open is not None and turn.open.records.size >= ENTRY_BYTES_MAX:
            self.close(turn)
        if turn.open is None:
            turn.open = self._new_publish()
        return turn.open

    def _new_publish(self) -> Publish:
        records = RecordBatch(self._next_seq, self._last_ts_ns, *self._overheads)
        return Publish(records=records, last_msg_id_before=self.last_msg_id)

    def close(self, turn: Turn) -> None:
        """The publish that the turn has taken is complete: it is to be proposed."""
        publish, turn.open = turn.open, None
        if publish is not None and publish.records.count:
            self._enlist(publish)
            turn.admitted.publishes.append(publish)

    def _enlist(self, publish: Publish) -> None:
        """Count a publish among what is in flight."""
        records = publish.records
        self._next_seq = records.next_seq
        self._in_flight.append(publish)
        self._in_flight_messages += records.count
        self._in_flight_bytes += records.size
        self._in_flight_stored += records.stored_bytes

    def plain_rooms(self) -> tuple[int, int, int, int] | None:
        """Bytes of one, messages and bytes of the stream, bytes of an entry (or NO_LIMIT); None where none is plain."""
        if not self._takes_plain:
            return None
        config = self.config
        messages_room = bytes_room = NO_LIMIT
        if self._bounds_room and config.max_msgs > 0:
            messages_room = max(0, config.max_msgs - self._applied.messages - self._in_flight_messages)
        if self._bounds_room and config.max_bytes > 0:
            bytes_room = max(0, config.max_bytes - self._applied.stored_bytes - self._in_flight_stored)
        return self._message_bytes_max, messages_room, bytes_room, ENTRY_BYTES_MAX

    def _take_plain(self, publish: Publish, batch: bytes, start: int) -> int:
        rooms = self._plain_rooms or self.plain_rooms()
        if rooms is None:
            return start
        end = publish.records.take_plain(batch, start, *rooms, self._is_acked, self._delays)
        if end > start:
            self.last_msg_id = b""
        return end

    def _take_one(self, turn: Turn, publish: Publish, batch: bytes, start: int, *, is_scheduled: bool = False) -> int:
        """Judge one message in full; add it to the publish or answer it."""
        message = Candidate.at(batch, start)
        end = message.end
        if message.is_of_batch and not message.is_trace_only and not is_scheduled:
            return self.batching.take(self, turn, batch, start, message, self._last_ts_ns)
        try:
            duplicate = self.check(publish, message, is_scheduled=is_scheduled)
            if duplicate is None and not message.is_trace_only:
                stored = message, batch, start
                if self._delays and not is_scheduled and asks_to_wait(message.hdr):
                    seq, now_ns = publish.records.next_seq, self._last_ts_ns
                    stored = waiting_form(stored, seq=seq, now_ns=now_ns, config=self.config)
                self.add(publish, *stored, acked=not self.config.no_ack)
        except PublishRefused as refused:
            self.refuse(turn, message.reply if not self.config.no_ack else b"", refused.error)
            turn.trace(message, refused_text(refused.error, message.headers))
            return end
        if duplicate is not None:
            answer_duplicate(turn, message.reply, duplicate, self.config, self._domain)
            turn.trace(message, DUPLICATE)
            return end
        if message.trace is not None:
            turn.trace(message, no_interest=self._applied.is_unwanted(message.subject))
        return end

    def add(self, publish: Publish, message: Candidate, batch: bytes, start: int, *, acked: bool) -> None:
        """Give a message that was checked its sequence. Raises PublishRefused, and then nothing has changed."""
        total = self._counters.sum_with(message, batch, start) if self._counters is not None else None
        if total is not None:
            check_size(len(total.hdr), len(total.payload), self.config)
        if self._bound is not None:
            (self._bound.note if is_due_now(message.headers) else self._bound.admit)(message.subject)
        hdr, flags = as_stored(message, self.config)
        if message.msg_id:
            publish.msg_ids.append(message.msg_id)
            self._in_flight_ids[message.msg_id] = Known(publish.records.next_seq, publish)
        self.last_msg_id = message.msg_id
        if self._counters is not None and total is not None:
            if message.reply and acked:
                ack = counter_ack(self._stream, publish.records.next_seq, total.value, self._domain)
                publish.answers.append((message.reply, ack))
            record = encode_capture(message.subject, hdr=total.hdr, payload=total.payload)
            publish.records.add_at(record, 0, flags, acked=False)
            self._counters.note(message.subject, total, publish)
            return
        if hdr == message.hdr:
            publish.records.add_at(batch, start, flags, acked)
            return
        changed = encode_capture(message.subject, message.reply, hdr, capture_at(batch, start).payload)
        publish.records.add_at(changed, 0, flags, acked)

    def add_fast_run(self, publish: Publish, batch: bytes, start: int, head: bytes, seq: int) -> tuple[int, int]:
        """Take messages that are appended to a fast batch, as long as they are plain and fit (`_staging.pyx`)."""
        if (rooms := self.plain_rooms()) is None:
            return start, 0
        end, count = add_fast_run(publish.records, batch, start, head, seq, *rooms, self._delays)
        if count:
            self.last_msg_id = b""
        return end, count

    def begin_alone(self, turn: Turn) -> Publish:
        """A publish of its own, behind all that the turn has admitted so far."""
        self.close(turn)
        if self._counters is not None:
            self._counters.begin_alone()
        return self._new_publish()

    def end_alone(self, turn: Turn, publish: Publish) -> None:
        """The publish is complete: it is to be proposed."""
        if self._counters is not None:
            self._counters.end_alone()
        self._enlist(publish)
        turn.admitted.publishes.append(publish)

    def take_back(self, publish: Publish) -> None:
        """The publish is not to be: none of its messages has passed."""
        if self._counters is not None:
            self._counters.take_back()
        if self._bound is not None:
            self._bound.settled(publish.records.subjects())
        self.last_msg_id = publish.last_msg_id_before
        for msg_id in publish.msg_ids:
            del self._in_flight_ids[msg_id]

    def newest(self, publish: Publish) -> Publish:
        """The open publish when it has messages, else the last one that is in flight."""
        return publish if publish.records.count else self._in_flight[-1]

    def check(self, publish: Publish, message: Candidate, *, is_scheduled: bool = False) -> Known | None:
        """Raise PublishRefused, or say where the stream already has the message, or return None for a new one."""
        if is_scheduled and is_due_now(message.headers):
            check_due(self.config)
            return None
        check_shape(message, self.config)
        headers = message.headers
        if headers:
            check_increment(message, self.config)
            check_supported(headers, self._stream, self.config)
            last_seq = publish.records.next_seq - 1
            check_expected_sequences(message, last_seq, lambda pattern: self._last_seq_of(publish, pattern))
            if not is_scheduled:
                check_schedule(message, self.config, self._last_ts_ns)
                check_scheduler(message, self.config)
            check_unsupported_origin(headers)
            duplicate = self.duplicate_of(message)
            if duplicate is not None:
                return duplicate
            check_last_msg_id(headers, self.last_msg_id)
            check_rollup(headers, self.config)
        if self._schemas is not None:
            self._schemas.check(message)
        self.check_room(publish, message)
        return None

    def duplicate_of(self, message: Candidate) -> Known | None:
        """The first copy of a message with an id: stored, in flight, or admitted in this turn."""
        if not message.msg_id or not self.config.duplicate_window:
            return None
        # Applied state does not know it yet, so a repetition would be stored twice.
        in_flight = self._in_flight_ids.get(message.msg_id)
        if in_flight is not None:
            return in_flight
        seq = self._applied.seq_of_msg_id(message.msg_id, self._last_ts_ns)
        return None if seq is None else Known(seq, publish=None)

    def check_room(self, publish: Publish, message: Candidate) -> None:
        """Discard policy `new`: judged on what the stream will hold when everything in flight is applied."""
        if self._bound is not None:
            self._bound.check(message.subject)
        if self._quota is not None:
            self._quota.check(self, publish, message, self.config)
        config, at_subject_limit = self.config, False
        if config.discard is not DiscardPolicy.NEW:
            return
        if config.max_msgs_per_subject > 0:
            count = self.count_before(message.subject) + publish.records.count_of(message.subject)
            at_subject_limit = count >= config.max_msgs_per_subject
        if at_subject_limit and config.discard_new_per_subject and not rolls_up(message, config):
            raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err="maximum messages per subject exceeded"))
        if at_subject_limit:
            return  # it replaces the oldest of its subject
        messages, stored = self.held_before()
        if 0 < config.max_msgs <= messages + publish.records.count:
            raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err="maximum messages exceeded"))
        if 0 < config.max_bytes < stored + publish.records.stored_bytes + self.message_bytes(message):
            raise PublishRefused(errors.STREAM_STORE_FAILED.with_values(err="maximum bytes exceeded"))

    def _last_seq_of(self, publish: Publish, pattern: bytes) -> int:
        """The last sequence of a subject, or of all that match a pattern, counting what is in flight."""
        if not is_literal(pattern):
            self._visit_for_pattern(publish.records.count)
        return publish.last_seq_of(pattern) or self.last_seq_before(pattern)

    def last_seq_before(self, pattern: bytes) -> int:
        """The same without an open publish. Raises PublishRefused for patterns that take more than a part of a turn."""
        is_wild = not is_literal(pattern)
        if is_wild:
            self._visit_for_pattern(self._in_flight_messages)
        for earlier in reversed(self._in_flight):
            found = earlier.last_seq_of(pattern)
            if found:
                return found
        if not is_wild:
            return self._applied.last_for(pattern)
        search = self._applied.search_last(pattern)
        is_unfinished = search.step(self._pattern_visits_left)
        self._visit_for_pattern(search.spent)
        if is_unfinished:
            raise PublishRefused(errors.STREAM_TOO_MANY_REQUESTS.with_values())
        return search.found

    def _visit_for_pattern(self, subjects: int) -> None:
        """Count subjects that a pattern is compared with. Raises PublishRefused beyond those of a turn."""
        self._pattern_visits_left -= subjects
        if self._pattern_visits_left <= 0:
            raise PublishRefused(errors.STREAM_TOO_MANY_REQUESTS.with_values())

    def count_before(self, subject: bytes) -> int:
        """Messages of one subject, applied or in flight."""
        return self._applied.count_for(subject) + sum(one.records.count_of(subject) for one in self._in_flight)

    def bytes_before(self, subject: bytes) -> int:
        """The bytes that the messages of one subject, applied or in flight, count against a limit of its bytes."""
        return self._applied.bytes_for(subject) + sum(one.records.bytes_of(subject) for one in self._in_flight)

    def held_before(self) -> tuple[int, int]:
        """Messages applied and in flight, and what they count against max_bytes."""
        applied = self._applied
        return applied.messages + self._in_flight_messages, applied.stored_bytes + self._in_flight_stored

    def message_bytes(self, message: Candidate) -> int:
        """The bytes that a message will count against max_bytes."""
        return self._size_model.message_bytes(len(message.subject), len(message.hdr), message.payload_len)
