"""The meaning of a committed entry of a stream's log: the stream's state, and that of all its consumers.

One deterministic state machine over one log. Everything that changes a replica is an entry: messages, removals,
configuration, and the life of consumers; what retention removes follows from applied state alone. So all replicas hold
the same messages and the same consumer state at the same applied index. Applying never refuses: the leader has
decided. All that it needs of a message is in the entry or in memory. Only an erasure, a digest and, in logs of earlier
versions, a consumer's start time touch the disk: what is damaged there is reported (`StreamStore.distrust`), and the
group stops before a checkpoint, is repaired, and applies the same entries again (decision 127). The machine tells its
`StreamEvents` what has changed; only a leader does something with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.state import commands
from jetraft.cluster.state._entries import flagged_records, subjects_of
from jetraft.cluster.state.ack_header import acked_in
from jetraft.cluster.state.consumer_transitions import ACKS, TRANSITIONS, new_consumer, restored_consumer
from jetraft.cluster.state.digest import KEPT, Digests, digests_of
from jetraft.cluster.state.headers import nats_headers
from jetraft.cluster.state.interest import Interest
from jetraft.cluster.state.schedules import PURGE, ScheduleTable
from jetraft.cluster.state.snapshot import Snapshot, encode_config
from jetraft.cluster.state.source_header import SourcePosition, position_in
from jetraft.cluster.state.ttl import TtlTable, parse_ttl
from jetraft.raft.machine import NO_LIVE_MESSAGES
from jetraft.store.frames.format import (
    FRAME_COUNT_AND_FIRST_SEQ,
    FRAME_COUNT_AT,
    FRAME_HEADER_BYTES,
    RECORD_HAS_ACK,
    RECORD_HAS_MSG_ID,
    RECORD_HAS_ROLLUP,
    RECORD_HAS_SCHEDULE,
    RECORD_HAS_TTL,
    RECORD_IS_SOURCED,
    Kind,
)
from jetraft.store.model.config import RetentionPolicy, StreamConfig, stored_stream_config
from jetraft.store.model.extensions import WAITING, hidden_by, stream_extensions
from jetraft.store.model.feature_level import BASE
from jetraft.store.model.subject import is_literal
from jetraft.store.model.validation.consumer_filters import ConsumerFilters, rivals_in, takes_messages
from jetraft.store.port import DeferredState, StoreError
from jetraft.store.stream.chain import Chain
from jetraft.store.stream.dedup import Dedup
from jetraft.store.stream.retention import limits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.state.events import StreamEvents
    from jetraft.store.model.ids import NodeId
    from jetraft.store.port import Entry
    from jetraft.store.stream._runs import Runs
    from jetraft.store.stream._search import LastSearch
    from jetraft.store.stream.consumer_state import ConsumerState
    from jetraft.store.stream.stream_store import StoredMessage, StreamStore


@attrs.frozen(slots=True)
class MachineStatistics:
    """A frozen look at the machine."""

    consumers: int
    entries_applied: int
    removals: int


class StreamMachine:
    """The state machine of one stream replica (raft/machine.py: StateMachine)."""

    def __init__(self, store: StreamStore, events: StreamEvents) -> None:
        self.store = store
        self.dedup = Dedup(0)
        self.ttl = TtlTable()
        self.schedules = ScheduleTable()
        self.config: StreamConfig | None = None  # None until the first entry of the stream
        self.config_revision = 0  # of the row that `config` is from; 0: a log of before revisions
        self.consumers: dict[str, ConsumerState] = {}
        self.hidden_consumers = 0  # of those: how many are another stream's, which lists and counts leave out
        self.last_msg_id = b""
        self.sources: dict[bytes, SourcePosition] = {}  # how far each source has been read, by its key
        self.chain: Chain | None = None  # of a stream with `jetraft.chain`
        self.digests: dict[int, Digests] = {}  # the newest ones that were asked for, by the index of their entry
        self._interest: Interest | None = None  # of a stream with interest retention, once it is asked
        self._rivals: ConsumerFilters | None = None  # of a work queue, once it is asked
        self.acked: list[ConsumerState] = []  # those of which the last call of `apply` has applied acks
        self.mutations = 0  # grows with every change of the set of messages; caches compare it
        self._events = events
        self._entries_applied = 0
        self._removals = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        """One result per entry: last sequence, messages removed, or a list with a result per consumer command."""
        results: list[object] = []
        messages_added = False
        if self.acked:
            self.acked = []
        for entry in entries:
            results.append(_APPLIERS[entry.kind](self, entry))
            messages_added = messages_added or entry.kind == Kind.MESSAGES
        self._entries_applied += len(entries)
        try:  # as `_tell`, which is a call more for each entry
            self._events.applied(messages_added=messages_added)
        except (StoreError, OSError) as error:
            self.store.distrust(error)
        return results

    def snapshot(self) -> bytes:
        """The state after the last applied entry."""
        return self.deferred_snapshot().made()

    def deferred_snapshot(self) -> DeferredState:
        """The same; the table of times to live is written when it is asked for, in any thread."""
        head, tail = Snapshot(
            config=b"" if self.config is None else encode_config(self.config),
            store=self.store.snapshot(),
            dedup=self.dedup.snapshot(),
            last_msg_id=self.last_msg_id,
            config_revision=self.config_revision,
            schedules=self.schedules.to_list(self.is_live),
            sources=self.sources,
            chain=None if self.chain is None else self.chain.tree.pack(),
            consumers=self.consumers.values(),
        ).around_ttl()
        ttl, liveness = self.ttl.copy(), self.store.liveness()
        size_about = len(head) + ttl.bytes_about + len(tail)
        return DeferredState(size_about, lambda: b"".join((head, ttl.pack(liveness), tail)))

    def restore(self, state: bytes) -> None:
        """Replace everything by a snapshot."""
        found = Snapshot.decode(state)
        self.last_msg_id, self.config_revision = found.last_msg_id, found.config_revision
        self.sources = dict(found.sources)
        self.config = stored_stream_config(found.config) if found.config else None
        if self.config is not None:
            self.store.set_limits(limits_of(self.config))
        self.store.restore(found.store)
        self.store.hide(hidden_by(self.config))
        self.dedup = Dedup.restore(found.dedup)
        self.ttl.restore(found.ttl)
        self.schedules.restore(found.schedules)
        self.chain = None if found.chain is None else Chain.restore(found.chain)
        self.consumers = {consumer.name: consumer for consumer in found.consumers}
        self.hidden_consumers = sum(consumer.config.direct for consumer in self.consumers.values())
        self._interest = self._rivals = None
        self.mutations += 1

    def _tell(self, event: Callable[..., None], *what: object, **how: object) -> None:
        """Say what was applied. A leader then reads messages; damage that it meets there does not concern the entry."""
        try:
            event(*what, **how)
        except (StoreError, OSError) as error:
            self.store.distrust(error)

    def level(self, in_use: int) -> int:
        """The feature level that new entries of this log may use; `in_use` is the table's.

        A log with a revision was written by servers of BASE, whatever the table says: where a member is away, the table
        is raised only when it is back, and meanwhile nothing that all of them know may be left out.
        """
        return max(in_use, BASE) if self.config_revision else in_use

    def became_leader(self, term: int) -> None:
        """The state is complete: the replica may admit."""
        self._events.became_leader(term)

    def became_follower(self, term: int, leader: NodeId | None) -> None:
        """The replica drops what was in flight."""
        self._events.became_follower(term, leader)

    @property
    def first_live_seq(self) -> int:
        """Blocks wholly below this sequence hold no live message."""
        return self.store.first_seq if self.store.messages else NO_LIVE_MESSAGES

    def statistics(self) -> MachineStatistics:
        """A frozen look."""
        return MachineStatistics(len(self.consumers), self._entries_applied, self._removals)

    # --- messages

    def _apply_messages(self, entry: Entry) -> int:
        frame = entry.frame
        last_seq = self.store.apply_messages(entry)
        if self.chain is not None:
            self.chain.tree.append(frame)
        self.mutations += 1
        self.last_msg_id = b""
        _, first_seq = FRAME_COUNT_AND_FIRST_SEQ.unpack_from(frame, FRAME_COUNT_AT)
        flagged = flagged_records(frame)
        for place, flags, ts_ns, subject, hdr in flagged:
            # A mark whose header is missing or cannot be read says nothing: what is committed must be applied.
            headers, seq = nats_headers(hdr), first_seq + place
            if flags & RECORD_HAS_MSG_ID and (msg_id := headers.get(b"Nats-Msg-Id")):
                self.dedup.expire(ts_ns)
                self.dedup.add(msg_id, seq, ts_ns)
                self.last_msg_id = msg_id if seq == last_seq else b""
            if flags & RECORD_HAS_TTL and (ttl_ns := parse_ttl(headers.get(b"Nats-TTL", b""))) is not None:
                self.ttl.add(seq, ttl_ns, ts_ns, self.store.is_live)
            if flags & RECORD_HAS_ACK and (acked := acked_in(hdr)) is not None:
                self._apply_consumer_command(acked)
            if flags & RECORD_IS_SOURCED:
                self._note_source(hdr)
            if flags & RECORD_HAS_ROLLUP and (rollup := headers.get(b"Nats-Rollup")):
                whole = rollup.lower() == b"all"
                self.store.purge(subject=None if whole else subject, below_seq=seq, keep=None)
        if self.schedules.rows or (flagged and any(flags & RECORD_HAS_SCHEDULE for _, flags, *_ in flagged)):
            self._schedule(first_seq, frame, flagged)
        if self.config is not None and self.config.retention is RetentionPolicy.INTEREST:
            self.interest.arrived(last_seq)
            self._remove_unwanted(first_seq, frame)
        return last_seq

    def _note_source(self, hdr: bytes) -> None:
        found = position_in(hdr)
        if found is not None:
            self.sources[found[0]] = found[1]

    def _schedule(self, first_seq: int, frame: bytes, flagged: Sequence[tuple[int, int, int, bytes, bytes]]) -> None:
        """Keep the table of schedules: the last message of a subject is its schedule, if it is one."""
        marked: dict[int, tuple[int, dict[bytes, bytes]]] = {
            place: (ts_ns, nats_headers(hdr)) for place, flags, ts_ns, _, hdr in flagged if flags & RECORD_HAS_SCHEDULE
        }
        for place, subject in enumerate(subjects_of(frame)):
            ts_ns, headers = marked.get(place, (0, {}))
            self.schedules.stored(subject, first_seq + place, ts_ns, headers)
            scheduler, following = headers.get(b"Nats-Scheduler"), headers.get(b"Nats-Schedule-Next")
            if scheduler and following:
                self.schedules.produced(scheduler, following)
                if following == PURGE and scheduler.startswith(WAITING):
                    self.store.remove([self.store.last_for(scheduler) or 0])  # no other message has its subject
                elif following == PURGE:
                    self.store.purge(subject=scheduler, below_seq=first_seq + place, keep=None)

    def _remove_unwanted(self, first_seq: int, frame: bytes) -> None:
        seqs = self.interest.unneeded_on_arrival(first_seq, frame)
        self._remove([seq for seq in seqs if not self.store.is_lost(seq)] if self.store.lost() else seqs)

    def _remove(self, seqs: Sequence[int]) -> None:
        if seqs:
            self._removals += len(self.store.remove(seqs))
            self.mutations += 1

    # --- the stream itself

    def _apply_stream_op(self, entry: Entry) -> object:  # noqa: C901, PLR0911  (one for each command)
        command = commands.decode_stream_command(entry.frame[FRAME_HEADER_BYTES:])
        self.mutations += 1
        match command:
            case commands.UpdateConfig() | commands.SetConfig():
                return self._configure(command)
            case commands.Remove():
                return len(self.store.remove(command.seqs, erase=command.erase))
            case commands.RemoveBelow():
                removed = self.store.remove_below(command.seq)
                self._purged()
                return removed
            case commands.Purge():
                removed = self.store.purge(subject=command.subject, below_seq=command.below_seq, keep=command.keep)
                if command.subject is None:  # an operator has looked, and knows what is there
                    self.store.note_forgotten(0, by_all=False)
                self._purged()
                return removed
            case commands.SkipTo():
                return self.store.skip_to(command.seq, command.ts_ns)
            case commands.NoteSource():
                self.sources[command.key] = SourcePosition(command.seq, command.identity)
                return command.seq
            case commands.NoteForgotten():
                self.store.note_forgotten(command.ts_ns, by_all=command.by_all)
                return command.ts_ns
            case commands.Digest():
                self.digests[entry.index] = digests_of(self, command)
                while len(self.digests) > KEPT:
                    del self.digests[next(iter(self.digests))]
                return entry.index

    def _configure(self, command: commands.UpdateConfig | commands.SetConfig) -> int:
        if isinstance(command, commands.SetConfig):
            if command.revision < self.config_revision:
                return 0
            self.config_revision = command.revision
        config = stored_stream_config(command.config)
        if config == self.config:
            return 0
        self.config, self._interest, self._rivals = config, None, None
        self.dedup.set_window(config.duplicate_window)
        removed = self.store.set_limits(limits_of(config))
        self.store.hide(hidden_by(self.config))
        if (self.chain is not None) is not stream_extensions(config).chain:
            self.chain = Chain() if self.chain is None else None
        self._tell(self._events.config_changed, config)
        return removed

    def _purged(self) -> None:
        """Consumers need not wait for what lies below the first message any more."""
        first_seq = self.store.first_seq
        for consumer in self.consumers.values():
            if consumer.is_behind(first_seq):  # the others are as they were in the last snapshot
                consumer.packed = b""
                consumer.purged_below(first_seq)
        self._tell(self._events.purged, first_seq)

    # --- consumers

    def _apply_consumer_op(self, entry: Entry) -> list[object]:
        batch = commands.decode_consumer_commands(entry.frame[FRAME_HEADER_BYTES:])
        return [self._apply_consumer_command(command) for command in batch]

    def _apply_consumer_command(self, command: commands.ConsumerCommand) -> bool:
        """True when the command found what it was about; False when an earlier entry made it pointless."""
        consumer = self.consumers.get(command.name)
        if isinstance(command, (commands.CreateConsumer, commands.RestoreConsumer)):
            if consumer is None:
                if isinstance(command, commands.CreateConsumer):
                    self.consumers[command.name] = new_consumer(command, self.store)
                else:
                    self.consumers[command.name] = restored_consumer(command)
                self.hidden_consumers += self.consumers[command.name].config.direct
                self._follow(self.consumers[command.name])
                self._tell(self._events.consumer_created, self.consumers[command.name])
            return consumer is None
        if consumer is None:
            return False
        if isinstance(command, commands.DeleteConsumer):
            self._delete_consumer(consumer)
            return True
        consumer.packed = b""
        self._done(consumer, TRANSITIONS[type(command)](consumer, command))
        if isinstance(command, ACKS):
            self.acked.append(consumer)
        if isinstance(command, (commands.UpdateConsumer, commands.ResetConsumer)):
            self._follow(consumer)
            self._tell(self._events.consumer_updated, consumer, is_reset=isinstance(command, commands.ResetConsumer))
        return True

    @property
    def interest(self) -> Interest:
        """The consumers that want each message, of a stream with interest retention."""
        if self._interest is None:
            self._interest = Interest(self.consumers, self.store)
        return self._interest

    @property
    def consumer_filters(self) -> ConsumerFilters:
        """The filters of the consumers whose acks decide what the stream keeps; none where limits do."""
        if self.config is None or self.config.retention is RetentionPolicy.LIMITS:
            return ConsumerFilters()
        if self.config.retention is RetentionPolicy.INTEREST:
            return self.interest.filters
        if self._rivals is None:
            self._rivals = rivals_in({name: consumer.config for name, consumer in self.consumers.items()})
        return self._rivals

    def _follow(self, consumer: ConsumerState) -> None:
        if self._interest is not None:
            self._interest.put(consumer)
        if self._rivals is not None and takes_messages(consumer.config):
            self._rivals.put(consumer.name, consumer.config)

    def _done(self, consumer: ConsumerState, seqs: Sequence[int]) -> None:
        if not seqs or self.config is None or self.config.retention is RetentionPolicy.LIMITS:
            return
        if self.config.retention is RetentionPolicy.INTEREST and len(self.consumers) > 1:
            seqs = self.interest.unneeded(seqs, but=consumer.name)
        self._remove(seqs)

    def _delete_consumer(self, consumer: ConsumerState) -> None:
        """Forget a consumer, and of an interest stream what no other consumer wants.

        Where that is much, the leader puts a reset before the deletion (consumer_deletion.py): nothing is waited for.
        """
        del self.consumers[consumer.name]
        self.hidden_consumers -= consumer.config.direct
        if self._interest is not None:
            self._interest.forget(consumer.name)
        if self._rivals is not None:
            self._rivals.forget(consumer.name)
        if self.config is not None and self.config.retention is RetentionPolicy.INTEREST:
            self._remove(self.interest.unneeded(self._waited_for_by(consumer)))
        self._tell(self._events.consumer_deleted, consumer)

    def _waited_for_by(self, consumer: ConsumerState) -> list[int]:
        """The messages that a consumer is still to be given, to acknowledge or to hand on."""
        first = consumer.pending.first()
        lowest = min(consumer.delivered_stream + 1 if first is None else first[1], *consumer.dead, self.store.next_seq)
        seqs = self.store.next_matches(self.store.visible(consumer.config.filters), lowest, self.store.messages)
        return [seq for seq in seqs if consumer.is_waiting_for(seq)]

    @property
    def vanished(self) -> int:
        """Changes when a message goes for another reason than an ack: limits, age, deletes, purges, rollups."""
        return self.store.absent - self._removals

    def is_live(self, seq: int) -> bool:
        """True while the stream has the message."""
        return self.store.is_live(seq)

    def count_live(self, seqs: Runs, above: int) -> int:
        """How many of these messages above a sequence the stream has."""
        return self.store.count_live(seqs, above)

    def live_of(self, seqs: Runs, above: int, count: int) -> Runs:
        """The first of these messages above a sequence that the stream has, so many at most."""
        return self.store.live_of(seqs, above, count)

    # --- what admission reads (streams/rules/applied_state.py)

    @property
    def messages(self) -> int:
        """Live messages."""
        return self.store.messages

    @property
    def stored_bytes(self) -> int:
        """The bytes that count against max_bytes."""
        return self.store.message_bytes_total

    @property
    def num_subjects(self) -> int:
        """Subjects with live messages."""
        return self.store.num_subjects

    @property
    def last_seq(self) -> int:
        """The last sequence given out."""
        return self.store.last_seq

    @property
    def next_seq(self) -> int:
        """The sequence of the next message."""
        return self.store.next_seq

    @property
    def last_ts_ns(self) -> int:
        """The time of the last message."""
        return self.store.last_ts_ns

    def last_for(self, pattern: bytes) -> int:
        """The last live sequence whose subject matches, 0 for none."""
        found = self.store.last_for(pattern) if is_literal(pattern) else self.store.last_match((pattern,))
        return found or 0

    def search_last(self, pattern: bytes) -> LastSearch:
        """A search for the same, in steps."""
        return self.store.search_last((pattern,))

    def count_for(self, subject: bytes) -> int:
        """Live messages of one subject."""
        return self.store.count_for(subject)

    def bytes_for(self, subject: bytes) -> int:
        """Their bytes, where a limit counts them, else 0."""
        return self.store.bytes_for(subject)

    # --- what selection reads (consumers/selector.Messages)

    def next_runs(self, filters: Sequence[bytes], from_seq: int, count: int) -> Runs:
        """The first live messages at or above a sequence that match."""
        return self.store.next_runs(self.store.visible(tuple(filters)), from_seq, count)

    def measure(
        self, seqs: Runs, room_bytes: int, *, consumer_seq: int, num_pending: int, prefix_bytes: int
    ) -> tuple[int, int, int]:
        """How many deliveries fill a room: (messages, bytes, bytes of the last)."""
        return self.store.records.measure(seqs, room_bytes, consumer_seq, num_pending, prefix_bytes)

    def num_pending(self, filters: Sequence[bytes], from_seq: int) -> int:
        """How many live messages at or above a sequence match."""
        return self.store.num_pending(self.store.visible(tuple(filters)), from_seq)

    def next_and_left(self, filters: Sequence[bytes], from_seq: int, count: int) -> tuple[int, Runs]:
        """(how many match at or above a sequence, the first of them)."""
        return self.store.next_and_left(self.store.visible(tuple(filters)), from_seq, count)

    def load(self, seq: int) -> StoredMessage | None:
        """A live message; None for one that is damaged on every replica: consumers pass it over."""
        return None if self.store.subject_of(seq) is None else self.store.load(seq)

    @property
    def retains_by_acks(self) -> bool:
        """True when the consumers' acks decide what the stream keeps."""
        return self.config is not None and self.config.retention is not RetentionPolicy.LIMITS

    def seq_of_msg_id(self, msg_id: bytes, now_unix_ns: int) -> int | None:
        """The sequence of a message with this id inside the window of duplicates."""
        return self.dedup.check(msg_id, now_ts_ns=now_unix_ns)

    def is_unwanted(self, subject: bytes) -> bool:
        """True when retention is by interest and no consumer is interested in this subject."""
        if self.config is None or self.config.retention is not RetentionPolicy.INTEREST:
            return False
        self.interest.arrived(self.next_seq)
        return not self.interest.is_wanted(self.next_seq, subject)


_APPLIERS: Final[dict[int, Callable[[StreamMachine, Entry], object]]] = {
    Kind.MESSAGES: StreamMachine._apply_messages,  # noqa: SLF001  (the class's own table: a dictionary for all machines)
    Kind.STREAM_OP: StreamMachine._apply_stream_op,  # noqa: SLF001
    Kind.CONSUMER_OP: StreamMachine._apply_consumer_op,  # noqa: SLF001
}
