"""The replicated state of one consumer: deliveries, pending acks, ack floor.

Pure: changed only by applied log entries, in the same order on every replica, so it is equal on all replicas at equal
applied index. The leader decides on a copy of its own (cluster/consumers); its decisions are applied here as entries.

Invariants: every pending stream sequence is at most `delivered_stream`; the ack floor is derived (just below the
lowest pending message, or the last delivered one), so it cannot go back. Stream sequences between the floor and
`delivered_stream` that are not pending are acknowledged, or do not match the filters.
Source: server/consumer.go (processAckMsg, trackPending), ADR-9 for the numbers in ack subjects.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgpack

from jetraft.store.model.config import AckPolicy, ConsumerConfig
from jetraft.store.stream._runs import Runs
from jetraft.store.stream._unacked import UnackedTable
from jetraft.store.stream.dead_letter import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMAT_VERSION: Final = 2  # 2: the unacknowledged deliveries are packed
WITH_DEAD: Final = 3  # 3: with dead letters; written where there are some, so that earlier servers read the others
INITIAL_AT: Final = 4  # in `to_tuple`
NOTHING: Final = Runs()
NO_SEQS: Final = cast("set[int]", frozenset())  # of all consumers that have none: replaced, never changed
NO_LETTERS: Final = cast("dict[int, DeadLetter]", MappingProxyType({}))  # the same


@attrs.define(eq=True, kw_only=True)
class ConsumerState:
    """The state of one consumer, on every replica of its stream."""

    name: str
    config: ConsumerConfig
    created_ns: int
    start_seq: int  # the first stream sequence that may be delivered
    initial: Runs = NOTHING  # deliver policy `last_per_subject`: delivered first, before those from resume_seq on
    resume_seq: int = 0
    delivered_consumer: int = 0
    delivered_stream: int = attrs.Factory(lambda self: max(self.start_seq - 1, 0), takes_self=True)
    delivered_ns: int = 0  # Unix time of the last delivery, 0 for none
    # Unacknowledged deliveries. Their time is the Unix time of the last delivery or progress ack, at which the ack wait
    # starts; their consumer sequence is that of the first delivery, from which the floor is derived.
    pending: UnackedTable = attrs.Factory(UnackedTable)
    acked_ahead: set[int] = NO_SEQS  # acks for deliveries that this state has not seen, above delivered
    dead: dict[int, DeadLetter] = NO_LETTERS  # given up, not handed on yet (store/model/extensions.py)
    config_json: bytes = attrs.field(default=b"", eq=False)  # of `config`, cached for snapshots; empty: not cached
    acked_ns: int = attrs.field(default=0, eq=False)  # Unix time at which this process applied the last ack; not stored
    packed: bytes = attrs.field(default=b"", eq=False)  # `to_tuple` in the last snapshot; empty if it changed since

    @property
    def tracks_acks(self) -> bool:
        """False for ack policy `none`: a delivered message counts as acknowledged."""
        return self.config.ack_policy is not AckPolicy.NONE

    @property
    def ack_floor(self) -> tuple[int, int]:
        """(consumer sequence, stream sequence): all deliveries up to here are acknowledged."""
        lowest = self.pending.first()
        return (self.delivered_consumer, self.delivered_stream) if lowest is None else (lowest[0] - 1, lowest[1] - 1)

    @property
    def lowest_pending_ns(self) -> int | None:
        """Unix time at which the lowest unacknowledged message was last delivered or in progress; None without one."""
        lowest = self.pending.first()
        row = None if lowest is None else self.pending.get(lowest[1])
        return None if row is None else row[1]

    def is_waiting_for(self, seq: int) -> bool:
        """Whether this message is still to be delivered, acknowledged or handed on, regardless of its subject."""
        if self.dead and seq in self.dead:
            return True
        if seq <= self.delivered_stream:
            return seq in self.pending
        if seq < self.resume_seq:
            return seq in self.initial
        return seq not in self.acked_ahead

    def deliver(self, seqs: Runs, consumer_seq: int, ts_ns: int) -> Runs:
        """Apply first deliveries; returns those that need no ack (ack policy `none`)."""
        done, last = NOTHING, seqs.last
        if seqs and (seqs.first <= self.delivered_stream or self.acked_ahead):
            done = self._deliver_late(seqs, consumer_seq, ts_ns)
        elif self.config.ack_policy is not AckPolicy.NONE:
            self.pending.add(seqs, consumer_seq, ts_ns)
        else:
            done = seqs
        self.delivered_stream = max(self.delivered_stream, last)
        self._delivered_up_to(consumer_seq + len(seqs) - 1, ts_ns)
        return done

    def _deliver_late(self, seqs: Runs, consumer_seq: int, ts_ns: int) -> Runs:
        """Apply deliveries of which some are already outdated by a purge or acknowledged by an earlier entry."""
        done = Runs()
        for offset, seq in enumerate(seqs):
            if seq <= self.delivered_stream or seq in self.acked_ahead:
                continue
            if self.tracks_acks:
                self.pending.put(seq, consumer_seq + offset, ts_ns, 1)
            else:
                done.append(seq)
        return done

    def redeliver(self, counts: Iterable[tuple[int, int]], consumer_seq: int, ts_ns: int) -> None:
        """Apply repeated deliveries: (stream sequence, number of deliveries)."""
        last = consumer_seq - 1
        for seq, count in counts:
            last += 1
            row = self.pending.get(seq)
            if row is not None:
                self.pending.set(seq, ts_ns, max(row[2], count))
        self._delivered_up_to(last, ts_ns)

    def ack(self, seqs: Runs) -> Runs:
        """Apply acks; returns the messages that were not acknowledged before."""
        done = self.pending.remove(seqs)
        if seqs.last > self.delivered_stream:
            ahead = Runs(seq for seq in seqs.above(self.delivered_stream) if seq not in self.acked_ahead)
            self._note_ahead(ahead)
            done.extend(ahead)
        return done

    def ack_late(self, seqs: Runs) -> Runs:
        """Apply acks of deliveries that are not waited for; returns those for which that is still so."""
        late = (seq for seq in seqs if seq <= self.delivered_stream and seq not in self.pending)
        return Runs(seq for seq in late if seq not in self.dead)

    def ack_up_to(self, seq: int) -> Runs:
        """Acknowledge all pending messages up to and including a sequence; returns them."""
        return self.pending.remove_up_to(seq)

    def progress(self, seqs: Runs, ts_ns: int) -> None:
        """Restart the ack wait of these messages."""
        self.pending.set_at(seqs, ts_ns)

    def drop(self, seqs: Runs) -> None:
        """Remove these pending messages without an ack (max_deliver)."""
        self.pending.remove(seqs)

    def give_up(self, seqs: Runs, ts_ns: int, cause: str, reason: str) -> None:
        """Wait no longer for an ack of these messages, and remember them until they are handed on.

        Those that an earlier entry was done with stay as they are; of one whose delivery this state has not seen, the
        ack is noted.
        """
        self.dead = self.dead or {}
        for seq in seqs:
            row = self.pending.get(seq)
            if row is None and (seq <= self.delivered_stream or seq in self.acked_ahead):
                continue
            if row is None:
                self._note_ahead((seq,))
            self.dead[seq] = DeadLetter(1 if row is None else row[2], ts_ns, cause, reason)
        self.pending.remove(seqs)

    def hand_on(self, letters: Iterable[tuple[int, int]]) -> Runs:
        """Another stream has these dead letters: (stream sequence, time of giving up); returns those that it was for.

        A message that was given up again since, after a reset, is another letter, and stays. One may be named twice.
        """
        known = {seq for seq, given_up_ns in letters if seq in self.dead and self.dead[seq].given_up_ns == given_up_ns}
        done = Runs(sorted(known))
        for seq in done:
            del self.dead[seq]
        return done

    def forget_dead(self) -> Runs:
        """Nothing is handed on any more; returns what was to be."""
        forgotten = Runs(sorted(self.dead))
        self.dead = NO_LETTERS
        return forgotten

    def is_behind(self, first_seq: int) -> bool:
        """Whether `purged_below` changes anything."""
        if self.delivered_stream < first_seq - 1 or self.dead or self.acked_ahead:
            return True
        first = self.pending.first()
        return first is not None and first[1] < first_seq

    def purged_below(self, first_seq: int) -> None:
        """Remove pending messages below `first_seq`, because the stream was purged."""
        if self.dead:
            self.dead = {seq: letter for seq, letter in self.dead.items() if seq >= first_seq}
        self.pending.remove_up_to(max(0, first_seq - 1))
        self.delivered_stream = max(self.delivered_stream, first_seq - 1)
        self._forget_acked_ahead()

    def reset(self, seq: int) -> None:
        """Restart delivery at `seq`; nothing is pending, and consumer sequences start again."""
        self.pending.clear()
        self.acked_ahead = NO_SEQS
        self.delivered_stream = max(seq - 1, 0)
        self.delivered_consumer = self.delivered_ns = 0

    def pack(self) -> bytes:
        """`to_tuple` as msgpack. There may be a million initial messages: no object is made for any of them."""
        if not self.initial:
            packed: bytes = msgpack.packb(self.to_tuple())
            return packed
        fields = attrs.evolve(self, initial=NOTHING).to_tuple()
        packer = msgpack.Packer()
        parts = [packer.pack_array_header(len(fields)), *map(packer.pack, fields)]
        parts[1 + INITIAL_AT] = self.initial.pack_list()
        return b"".join(parts)

    def to_tuple(self) -> tuple[object, ...]:
        """Everything except the configuration, for a snapshot."""
        dead = [(seq, *attrs.astuple(letter)) for seq, letter in sorted(self.dead.items())]
        version = WITH_DEAD if dead else FORMAT_VERSION
        head = (version, self.name, self.created_ns, self.start_seq, list(self.initial), self.resume_seq)
        delivered = (self.delivered_consumer, self.delivered_stream, self.delivered_ns)
        return (*head, *delivered, self.pending.pack(), sorted(self.acked_ahead), *([dead] if dead else ()))

    @classmethod
    def from_tuple(cls, config: ConsumerConfig, state: Sequence[Any]) -> ConsumerState:
        """The inverse of `to_tuple`."""
        version, name, created_ns, start_seq, initial, resume_seq, *rest = state
        assert version in (FORMAT_VERSION, WITH_DEAD)
        delivered_consumer, delivered_stream, delivered_ns, pending, acked_ahead, *dead = rest
        return cls(
            name=name,
            config=config,
            created_ns=created_ns,
            start_seq=start_seq,
            initial=Runs(initial),
            resume_seq=resume_seq,
            delivered_consumer=delivered_consumer,
            delivered_stream=delivered_stream,
            delivered_ns=delivered_ns,
            pending=UnackedTable.unpack(pending),
            acked_ahead=set(acked_ahead) or NO_SEQS,
            dead={seq: DeadLetter(*letter) for seq, *letter in dead[0]} if dead else NO_LETTERS,
        )

    def _delivered_up_to(self, consumer_seq: int, ts_ns: int) -> None:
        self.delivered_consumer = max(self.delivered_consumer, consumer_seq)
        self.delivered_ns = max(self.delivered_ns, ts_ns)
        if self.acked_ahead:
            self._forget_acked_ahead()

    def _note_ahead(self, seqs: Iterable[int]) -> None:
        self.acked_ahead = self.acked_ahead or set()
        self.acked_ahead.update(seqs)

    def _forget_acked_ahead(self) -> None:
        if self.acked_ahead:
            self.acked_ahead = {seq for seq in self.acked_ahead if seq > self.delivered_stream} or NO_SEQS
