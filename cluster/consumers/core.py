"""The part of a consumer that pull and push share: redelivery, and the choice of the next message. Pure.

A core is the leader's working copy of one consumer, made from the replicated state (store/stream/consumer_state.py)
when leadership begins. It runs ahead of that state: a delivery or ack changes the core at once, and comes back as a
committed command later. Events are methods (those of acks are in acknowledging.py); they collect effects, and `step`
adds what can be delivered now and hands them over. Nothing here reads a clock or sends a byte.

Choice: what waits for redelivery goes first, then new messages in stream order, up to `max_ack_pending` unacked.
Source: consumer.go (getNextMsg, processAckMsg, checkPending), ADR-13, ADR-15.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from jetraft.cluster.consumers.acknowledging import Acknowledging
from jetraft.cluster.consumers.delivery import counted_for
from jetraft.cluster.consumers.effects import ConsumerEffects, CoreStatistics
from jetraft.cluster.consumers.pausing import Pausing, left_ns
from jetraft.cluster.consumers.pending import NEVER_NS
from jetraft.cluster.consumers.rate_limiter import BURST_BYTES, RateLimiter
from jetraft.cluster.ports import DeliveryRun
from jetraft.cluster.state import commands
from jetraft.store.model.config import AckPolicy
from jetraft.store.stream._runs import Runs
from jetraft.store.stream.consumer_state import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jetraft.cluster.consumers.delivery import Run
    from jetraft.cluster.consumers.effects import Now, StatusMessage
    from jetraft.cluster.consumers.selector import Selector
    from jetraft.cluster.ports import StoredLike
    from jetraft.store.model.config import ConsumerConfig
    from jetraft.store.stream.consumer_state import ConsumerState

DELIVERIES_PER_STEP_MAX: Final = 1000  # the bound on one consumer's work in one turn
CHOSEN_AHEAD: Final = 64  # new messages looked up at a time, when they are given out one by one
ONCE: Final = b"\x01"  # the column of delivery counts of first deliveries: as many of these


class ConsumerCore(Acknowledging):
    """See the module. Subclasses decide where messages go: `_deliver`, `_sweep` and `_is_idle`."""

    def __init__(  # noqa: PLR0913  (what a core asks of its surroundings, by name)
        self,
        state: ConsumerState,
        selector: Selector,
        *,
        stream: str,
        has_interest: Callable[..., bool],
        now: Now,
        burst_bytes: int = BURST_BYTES,
    ) -> None:
        super().__init__(state, selector, stream=stream, has_interest=has_interest, now=now)
        self._burst_bytes = burst_bytes
        self._pace = RateLimiter(state.config, burst_bytes)
        self._held_until_ns = NEVER_NS  # when the pace lets the next message go; valid within a step
        self._pausing = Pausing()
        self.delivered_consumer = state.delivered_consumer
        self._ack_prefix = f"$JS.ACK.{stream}.{state.name}.".encode()
        self._fresh: deque[int] = deque()  # chosen, not yet delivered; valid within a step
        self._redelivered: list[tuple[int, int]] = []  # (stream sequence, count) of this step
        self._delivered = NOTHING  # new stream sequences of this step
        self._left = 0  # messages after the last delivery; valid within a step
        self._last_delivered_unix_ns = state.delivered_ns

    # --- events

    def close(self, _reason: bytes) -> ConsumerEffects:
        """The consumer ends here; subclasses tell who waits."""
        return ConsumerEffects()

    def begin_again(self, _before: ConsumerCore) -> None:
        """Take the place of the core of before a reset: acks of what it delivered do not count."""
        self.takes_acks_ahead = False

    def configure(self, config: ConsumerConfig, selector: Selector) -> None:
        """A new configuration took effect."""
        if config.rate_limit_bps != self.config.rate_limit_bps:
            self._pace = RateLimiter(config, self._burst_bytes)
        self.hear_by(config, selector)

    def unsent(self, run: DeliveryRun, copies: Mapping[int, StoredLike]) -> None:
        """A run has left without the messages that the stream had no longer, and of which there was no copy.

        What was spent on them is given back: the requests' counts, the window's and the pace's bytes, the places among
        those that wait for an ack. The next step spends it again.
        """
        exists = self._selector.exists
        gone = [place for place, seq in enumerate(run.stream_seqs) if seq not in copies and not exists(seq)]
        unseen = Runs(sorted(run.stream_seqs[place] for place in gone if run.counts[place] == 1))
        if unseen and (done := self.pending.remove(unseen)):
            self._out.commands.append(commands.Acked(self.name, done))
        self._give_back(run, gone, copies)

    def recalled(self, sends: Iterable[DeliveryRun | StatusMessage]) -> None:
        """None of these leave, because the consumer ends here: what was spent on them is given back."""
        for send in sends:
            if isinstance(send, DeliveryRun):
                self._give_back(send, range(len(send.stream_seqs)), {})

    def last_word(self, status: StatusMessage) -> StatusMessage | None:
        """The status as it is true when it leaves; None when it is true no longer, and is not sent."""
        return status

    def step(self, now: Now) -> ConsumerEffects:
        """Deliver what can be delivered, and hand over everything that has collected."""
        self.pending.arrange()
        if self._is_at_ack_limit() or self.is_looking:
            self.forget_missing(now)
        queued = self.pending.queued
        self._give_up(self.pending.expire(now.mono_ns), now)
        if self.pending.queued > queued:  # the wait for an ack was a use of the consumer
            self._last_active_ns = now.mono_ns
        self._sweep(now)
        self._left = self._num_pending() if self._wants_messages() else 0
        self._held_until_ns = NEVER_NS
        self._out.has_resumed = self._pausing.look(self.config, now)
        has_more = self._rest(now) if self._pausing.is_paused else self._deliver(now)
        self._record(now)
        out, self._out = self._out, ConsumerEffects()
        out.wake_ns = now.mono_ns + 1 if has_more or self.is_looking else self._wake_ns(now)
        out.is_abandoned = self._is_abandoned(now)
        return out

    def statistics(self) -> CoreStatistics:
        """A frozen look."""
        first = self.pending.first()
        floor = (self.delivered_consumer, self.delivered_stream) if first is None else (first[0] - 1, first[1] - 1)
        return CoreStatistics(
            delivered_consumer=self.delivered_consumer,
            delivered_stream=self.delivered_stream,
            ack_floor=floor,
            num_ack_pending=self._num_ack_pending,
            num_redelivered=self.pending.num_redelivered,
            num_waiting=self.num_waiting,
            num_pending=self._num_pending(),
            last_delivered_ns=self._last_delivered_unix_ns or None,
            last_ack_ns=self._last_ack_unix_ns or None,
        )

    @property
    def num_waiting(self) -> int:
        """Pull requests in the queue."""
        return 0

    @property
    def is_hungry(self) -> bool:
        """True when a new message in the stream would be delivered at once."""
        return not self._pausing.is_paused and self._wants_messages()

    @property
    def has_news(self) -> bool:
        """False when the stream surely has no message for a first delivery; cheaper than a step."""
        return self._selector.may_have_after(self.delivered_stream)

    # --- for subclasses

    def _wants_messages(self) -> bool:
        raise NotImplementedError

    def _sweep(self, now: Now) -> None:
        """Do what time asks for: end requests, send signs of life."""
        raise NotImplementedError

    def _deliver(self, now: Now) -> bool:
        """Deliver; True when there is more to do at once."""
        raise NotImplementedError

    def _give_back(self, run: DeliveryRun, gone: Sequence[int], copies: Mapping[int, StoredLike]) -> None:
        """Take back what was counted for the messages at these places of a run; of others there may be copies."""
        self._pace.returned(self._counted_for(run, gone, copies))

    def _rest(self, _now: Now) -> bool:
        """The consumer is paused: answer those who do not wait. True when there is more to do at once."""
        return False

    def _is_idle(self) -> bool:
        """True when no client is there to use the consumer."""
        raise NotImplementedError

    def _next_seq(self, now: Now) -> tuple[int, bool] | None:
        """The next message and whether it is a redelivery; None when there is none that may be delivered now."""
        seq = self._next_redelivery()
        if seq is not None:
            return (seq, True) if self._pace.is_free or self._may_go(seq, now, redelivery=True) else None
        if self._is_at_ack_limit() or self.extensions.key_order is not None:
            return None
        if not self._fresh:
            self._fresh.extend(self._choose(CHOSEN_AHEAD))
        if not self._fresh:
            self._pace.caught_up()
            return None
        seq = self._fresh[0]
        return (seq, False) if self._pace.is_free or self._may_go(seq, now, redelivery=False) else None

    def _may_go(self, seq: int, now: Now, *, redelivery: bool) -> bool:
        """True when the pace allows the next delivery now; else it is remembered when it will."""
        size = self._size_of(seq, redelivery=redelivery)
        due_ns = self._pace.due_ns(self._selector.ts_ns(seq), size, now.mono_ns)
        if due_ns > now.mono_ns:
            self._held_until_ns = due_ns
        return due_ns <= now.mono_ns

    def _take(  # noqa: PLR0913  (what a delivery is, by name)
        self, run: Run, seq: int, now: Now, *, redelivery: bool, size: int, request: object = None
    ) -> None:
        """Count the delivery of what `_next_seq` has found, and put it into a run."""
        if not self._pace.is_free:
            size = size or self._size_of(seq, redelivery=redelivery)
            self._pace.delivered(self._selector.ts_ns(seq), size, now.mono_ns)
        if redelivery:
            self.delivered_consumer += 1
            count = self.pending.redelivered(seq, now.mono_ns)
            self._redelivered.append((seq, count))
        else:
            count = 1
            self._fresh.popleft()
            self._count_new(Runs((seq,)), now)
        run.add(seq, self.delivered_consumer, count, max(self._left, 0), request, size)

    def _count_new(self, seqs: Runs, now: Now) -> None:
        """Count first deliveries."""
        first = self.delivered_consumer + 1
        self.delivered_consumer += len(seqs)
        self.delivered_stream = seqs.last
        self._left -= len(seqs)
        if not self._delivered:
            self._delivered = Runs()
        self._delivered.extend(seqs)
        if self.config.ack_policy is not AckPolicy.NONE:
            self.pending.add(seqs, first, now.mono_ns)

    def _choose_many(self, wanted: int) -> Runs:
        """New messages to be delivered in one go, within `max_ack_pending`.

        Only when nothing waits for redelivery and nothing has been chosen before: the common case, and the fast one.
        """
        assert not self._fresh
        if self.config.ack_policy is not AckPolicy.NONE and self.config.max_ack_pending > 0:
            wanted = min(wanted, self.config.max_ack_pending - self._num_ack_pending)
        return self._choose(wanted) if wanted > 0 else NOTHING

    def _take_ahead(self, wanted: int, now: Now) -> None:
        """Take new messages from the stream until so many may be sent, in the order of their keys, or none is left."""
        while self.pending.queued < wanted and (seqs := self._choose_many(CHOSEN_AHEAD)):
            first = self.delivered_consumer + 1
            self._count_new(seqs, now)
            self._delivered = NOTHING
            self._out.commands.append(commands.Delivered(self.name, now.unix_ns, first, seqs))
            self._selector.delivered(self.delivered_stream, self._left)

    def _send_new(
        self, receivers: Sequence[bytes], seqs: Runs, now: Now, *, requests: Sequence[object] = (), size: int = 0
    ) -> None:
        """Deliver new messages to these receivers in turn; every one gets as many.

        `requests` are those of the receivers, and `size` is what was counted for a single one.
        """
        step, left = len(receivers), self._left
        first, each = self.delivered_consumer + 1, len(seqs) // step
        assert each * step == len(seqs)
        for place, to in enumerate(receivers):
            run = DeliveryRun(
                to=to,
                ack_prefix=self._ack_prefix,
                stream_seqs=seqs if step == 1 else seqs.every(step, place),
                consumer_seqs=range(first + place, first + place + each * step, step),
                counts=ONCE * each,
                nums_pending=range(left - 1 - place, left - 1 - place - each * step, -step),
                headers_only=self.config.headers_only,
                requests=requests[place : place + 1],
                sizes=(size,) if size else (),
            )
            self._out.sends.append(run)
        self._count_new(seqs, now)

    def _next_redelivery(self) -> int | None:
        """The next message to be delivered again that the stream still has."""
        while (seq := self.pending.next_redelivery()) is not None:
            if self._selector.exists(seq):
                return seq
            self.pending.remove(Runs((seq,)))  # removed from the stream: it needs no acknowledgement
            self._out.commands.append(commands.Acked(self.name, Runs((seq,))))
        return None

    def _send(self, run: Run) -> None:
        """Hand a run over, unless it is empty."""
        if run.stream_seqs:
            self._out.sends.append(run.finish(self._ack_prefix, headers_only=self.config.headers_only))

    def _size_of(self, seq: int, *, redelivery: bool) -> int:
        """Bytes of a delivery, its ack subject included: what a request's max_bytes and a push window count."""
        count = self.pending.count(seq) + 1 if redelivery else 1
        left = self._left if redelivery else self._left - 1
        return self._size(self._selector.load(seq), seq, count, self.delivered_consumer + 1, left)

    def _size(self, found: StoredLike | None, seq: int, count: int, consumer_seq: int, left: int) -> int:
        numbers = (count, seq, consumer_seq, 0 if found is None else found.ts_ns, max(left, 0))
        own = 0 if found is None else len(found.subject) + len(found.hdr) + len(found.payload)
        return own + len(self._ack_prefix) + len(b"%d.%d.%d.%d.%d" % numbers)

    def _counted_for(self, run: DeliveryRun, gone: Sequence[int], copies: Mapping[int, StoredLike]) -> int:
        """Bytes that were counted for the messages at these places of a run."""

        def size_of(place: int) -> int:
            seq = run.stream_seqs[place]
            found = copies.get(seq) or self._selector.load(seq)
            return self._size(found, seq, 1, run.consumer_seqs[place], run.nums_pending[place])

        return counted_for(run, gone, size_of)

    def _measure(self, seqs: Runs, room_bytes: int) -> tuple[int, int, int]:
        """How many of these new messages fill a room: (messages, their bytes, bytes of the last)."""
        return self._selector.measure(
            seqs,
            room_bytes,
            consumer_seq=self.delivered_consumer + 1,
            num_pending=max(0, self._left - 1),
            prefix_bytes=len(self._ack_prefix),
        )

    # --- inside

    def _num_pending(self) -> int:
        """Messages that are still to be delivered for the first time."""
        if self._acked_ahead:
            self._acked_ahead = {seq for seq in self._acked_ahead if seq > self.delivered_stream}
        return self._selector.num_pending(self.delivered_stream) - len(self._acked_ahead)

    def _choose(self, wanted: int) -> Runs:
        if self._acked_ahead:
            return self._selector.next_without(self._acked_ahead, self.delivered_stream, wanted)
        return self._selector.next_after(self.delivered_stream, max(1, wanted))

    def _record(self, now: Now) -> None:
        """Turn this step's deliveries into commands; redeliveries have the lower consumer sequences."""
        self._fresh.clear()
        if self._delivered or self._redelivered:
            self._last_active_ns, self._last_delivered_unix_ns = now.mono_ns, now.unix_ns
        first = self.delivered_consumer - len(self._delivered) + 1
        if self._redelivered:
            start = first - len(self._redelivered)
            again = commands.Redelivered(self.name, now.unix_ns, start, tuple(self._redelivered))
            self._out.commands.append(again)
            self._redelivered = []
        if self._delivered:
            new = commands.Delivered(self.name, now.unix_ns, first, self._delivered)
            self._out.commands.append(new)
            self._delivered = NOTHING
            if not self._acked_ahead:
                self._selector.delivered(self.delivered_stream, self._left)

    def _wake_ns(self, now: Now) -> int | None:
        wake_ns = min(self.pending.wake_ns, self._held_until_ns)
        if self._pausing.is_paused:
            wake_ns = min(wake_ns, now.mono_ns + left_ns(self.config, now))
        if self.config.inactive_threshold:
            wake_ns = min(wake_ns, max(self._last_active_ns + self.config.inactive_threshold, now.mono_ns + 1))
        return None if wake_ns == NEVER_NS else wake_ns

    def _is_abandoned(self, now: Now) -> bool:
        threshold_ns = self.config.inactive_threshold
        if not threshold_ns or now.mono_ns - self._last_active_ns < threshold_ns:
            return False
        if self._is_idle():
            return True
        self._last_active_ns = now.mono_ns
        return False
