"""The effect of acks on a consumer: what waits for one, what is done with, what is given up. Pure.

The half of a consumer's core that hears clients; `core.py` is the other one, which delivers. Events collect commands
and answers in `_out`, which the next step hands over. A message that a consumer with dead letters gives up counts
against `max_ack_pending` until another stream has it, so a consumer whose dead letters find no stream stops, and what
it remembers is bounded. Source: consumer.go (processAckMsg), ADR-13, ADR-15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.cluster.capture.reach import MessageOrigin
from jetraft.cluster.consumers.acks import ACKNOWLEDGING, AckKind
from jetraft.cluster.consumers.effects import ConsumerEffects
from jetraft.cluster.consumers.key_lanes import KeyedPending
from jetraft.cluster.consumers.pending import PendingTable, WaitPolicy
from jetraft.cluster.consumers.samples import is_sampled, samples_of
from jetraft.cluster.state import commands
from jetraft.store.model import message
from jetraft.store.model.config import AckPolicy
from jetraft.store.model.extensions import consumer_extensions
from jetraft.store.stream._runs import Runs
from jetraft.store.stream.dead_letter import MAX_DELIVER, REASON_CHARS_MAX, TERM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jetraft.cluster.consumers.acks import Ack, AckSubject
    from jetraft.cluster.consumers.effects import Now
    from jetraft.cluster.consumers.selector import Selector
    from jetraft.store.model.config import ConsumerConfig
    from jetraft.store.stream.consumer_state import ConsumerState

LOOKS_PER_STEP: Final = 10_000  # at pending messages, 0.3 us each: whether they are still there
NONE_NAMED: Final[Mapping[int, int]] = {}
STALE_ACK: Final = message.status(409, b"Stale Ack")  # with `strict_acks`: of a delivery that is not the newest


class Acknowledging:
    """See the module."""

    def __init__(
        self,
        state: ConsumerState,
        selector: Selector,
        *,
        stream: str,
        has_interest: Callable[..., bool],
        now: Now,
    ) -> None:
        self.name = state.name
        self.config = state.config
        self.extensions = consumer_extensions(state.config)
        self.delivered_stream = state.delivered_stream
        policy, rule = WaitPolicy.of(state.config), self.extensions.key_order
        self.pending = PendingTable(policy) if rule is None else KeyedPending(policy, self._key_of)
        self.pending.take_over(state, now_ns=now.mono_ns, now_unix_ns=now.unix_ns)
        self.takes_acks_ahead = True  # of deliveries that this state does not know: an earlier leader's
        self.stale_acks = 0  # refused in this term
        self._acked_ahead = set(state.acked_ahead)
        self._dead = set(state.dead)  # given up, not handed on yet
        self._selector = selector
        self._has_interest = has_interest
        self.metric_subject = f"$JS.EVENT.METRIC.CONSUMER.ACK.{stream}.{state.name}".encode()
        self._metric = self.metric_subject if is_sampled(state.config) else b""
        self._out = ConsumerEffects()
        self._last_active_ns = now.mono_ns
        self._last_ack_unix_ns = state.acked_ns
        self._vanished = -1  # the stream's number when the last look for messages that are gone began
        self._looked_upto: int | None = None  # the sequence up to which it came, while it has to go on

    # --- events

    def acknowledge(self, seqs: Runs, now: Now, *, named: Mapping[int, int] = NONE_NAMED) -> None:
        """Plain acks of these stream sequences; `named` says which deliveries they name, where `names_count`."""
        if self._metric:
            self._sample(seqs, now, named)
        self._done(seqs, now)

    def answer(self, subject: AckSubject, ack: Ack, reply: bytes, now: Now) -> bool:
        """An ack that asks for more than to be noted; `reply` is answered when it is committed, unless it is empty.

        False for one that is refused: of a delivery that is not the newest, where only that one counts.
        """
        seq = subject.stream_seq
        if self.extensions.strict_acks and not self.is_newest(subject):
            self.refuse_stale(reply)
            return False
        if seq > self.delivered_stream and not (self.takes_acks_ahead and self._selector.exists(seq)):
            return True  # it names a message that the stream does not have yet, or a delivery of before a reset
        self._last_active_ns = now.mono_ns
        self._perform(subject, ack, now)
        if reply and ack.kind is not AckKind.NEXT:
            self._out.confirmations.append(reply)
        return True

    def is_newest(self, subject: AckSubject) -> bool:
        """Whether a delivery is the newest one of its message, and awaited."""
        return self.pending.is_newest(subject.stream_seq, subject.consumer_seq, subject.count)

    def refuse_stale(self, reply: bytes) -> None:
        """An ack is of a delivery that is not the newest."""
        self.stale_acks += 1
        if reply:
            self._out.refusals.append((reply, STALE_ACK))

    def settled(self, subject: AckSubject, now: Now) -> None:
        """The newest delivery is acknowledged by a message that is proposed: no command is needed."""
        self._last_active_ns, self._last_ack_unix_ns = now.mono_ns, now.unix_ns
        if self._metric:
            self._sample(Runs((subject.stream_seq,)), now, {subject.stream_seq: subject.consumer_seq})
        self.pending.remove(Runs((subject.stream_seq,)))

    def _perform(self, subject: AckSubject, ack: Ack, now: Now) -> None:
        seq = subject.stream_seq
        if ack.kind is AckKind.NAK:
            self.pending.redeliver_at(seq, now.mono_ns + self._nak_delay_ns(seq, ack))
        elif ack.kind is AckKind.TERM and self.extensions.dead_letter and self._is_awaited(seq):
            self._terminate(seq, ack.reason, now)
        elif ack.kind is AckKind.PROGRESS and self.pending.restart_wait(seq, now.mono_ns):
            self._out.commands.append(commands.ConsumerProgress(self.name, now.unix_ns, Runs((seq,))))
        elif ack.kind in ACKNOWLEDGING:
            if self._metric and ack.kind is not AckKind.TERM:
                self._sample(Runs((seq,)), now, {seq: subject.consumer_seq})
            self._done(Runs((seq,)), now)
            if not self._out.commands:
                self._out.commands.append(commands.Acked(self.name, Runs((seq,))))  # may be in flight: wait behind it

    def purged_below(self, first_seq: int, now: Now) -> None:
        """The stream has nothing below `first_seq` any more: nothing there waits for an ack."""
        first = self.pending.first()
        if first is not None and first[1] < first_seq:
            self._last_ack_unix_ns = now.unix_ns
            self.pending.remove_up_to(first_seq - 1)
        self._dead = {seq for seq in self._dead if seq >= first_seq}
        self.delivered_stream = max(self.delivered_stream, first_seq - 1)

    def forget_missing(self, now: Now) -> bool:
        """Forget what waits for an ack and is gone from the stream (consumer.go, decStreamPending); True: there was.

        Costs a look at each pending message, so it is for a consumer that is at its limit, or is asked for. Many are
        looked at over several steps: `is_looking` until then.
        """
        if not self.is_looking:
            if self._vanished == self._selector.vanished:
                return False
            self._vanished, self._looked_upto = self._selector.vanished, 0
        missing, self._looked_upto = self.pending.missing(self._selector.exists, self._looked_upto or 0, LOOKS_PER_STEP)
        if missing:
            seqs = Runs(delivery.seq for delivery in missing)
            self._last_ack_unix_ns = now.unix_ns
            self.pending.remove(seqs)
            self._out.commands.append(commands.Acked(self.name, seqs))
            self._out.missing += missing
        return bool(missing)

    @property
    def is_looking(self) -> bool:
        """True while a look for messages that are gone has to go on."""
        return bool(self._looked_upto)

    def handed_on(self, seqs: Runs) -> None:
        """Another stream has the dead letters of these."""
        self._dead.difference_update(seqs)

    def hear_by(self, config: ConsumerConfig, selector: Selector) -> None:
        """A new configuration took effect."""
        self.config, self._selector = config, selector
        self.extensions = consumer_extensions(config)
        if not self.extensions.dead_letter:
            self._dead.clear()
        self._metric = self.metric_subject if is_sampled(config) else b""
        self.pending.follow(WaitPolicy.of(config))

    @property
    def names_count(self) -> bool:
        """Whether it matters which delivery an ack names: acks are measured, and there are several of a message."""
        return bool(self._metric) and self.pending.num_redelivered > 0

    @property
    def has_samples(self) -> bool:
        """True when a step has samples to hand over."""
        return bool(self._out.samples)

    def take_commands(self) -> list[commands.ConsumerCommand]:
        """The commands that plain acks have led to, when they make no room for a delivery: no step is needed."""
        taken, self._out.commands = self._out.commands, []
        return taken

    # --- for subclasses

    @property
    def _num_ack_pending(self) -> int:
        return len(self.pending) + len(self._dead)

    def _is_at_ack_limit(self) -> bool:
        return 0 < self.config.max_ack_pending <= self._num_ack_pending

    def _give_up(self, seqs: Runs, now: Now, cause: str = MAX_DELIVER, reason: str = "") -> None:
        """These were delivered as often as allowed, or terminated: wait for them no longer."""
        if not seqs:
            return
        if not self.extensions.dead_letter:
            self._out.commands.append(commands.Dropped(self.name, seqs))
            return
        self._dead.update(seqs)
        self._out.commands.append(commands.GaveUp(self.name, now.unix_ns, cause, reason[:REASON_CHARS_MAX], seqs))

    # --- inside

    def _done(self, seqs: Runs, now: Now) -> None:
        self._last_active_ns, self._last_ack_unix_ns = now.mono_ns, now.unix_ns
        if self.config.ack_policy in (AckPolicy.ALL, AckPolicy.FLOW_CONTROL):
            self.pending.remove_up_to(seqs.last)
            self._out.commands.append(commands.AckedUpTo(self.name, seqs.last))
            return
        done = self.pending.remove(seqs)
        if len(done) < len(seqs) and (late := self._selector.late(seqs, done, self.delivered_stream)):
            self._out.commands.append(commands.AckedLate(self.name, late))
        if seqs.last > self.delivered_stream and self.takes_acks_ahead:
            ahead = Runs(seq for seq in seqs.above(self.delivered_stream) if self._selector.exists(seq))
            self._acked_ahead.update(ahead)
            done.extend(ahead)
        if done:
            self._out.commands.append(commands.Acked(self.name, done))

    def _is_awaited(self, seq: int) -> bool:
        """True while nothing has settled a delivered message; its delivery may be an earlier leader's."""
        return seq in self.pending or (seq > self.delivered_stream and seq not in self._acked_ahead)

    def _terminate(self, seq: int, reason: str, now: Now) -> None:
        if seq > self.delivered_stream:
            self._acked_ahead.add(seq)
        self._last_ack_unix_ns = now.unix_ns
        self.pending.remove(Runs((seq,)))
        self._give_up(Runs((seq,)), now, TERM, reason)

    def _key_of(self, seq: int) -> bytes | None:
        rule = self.extensions.key_order
        return None if rule is None else self._selector.key(seq, rule)

    def _nak_delay_ns(self, seq: int, ack: Ack) -> int:
        """How long a message rests that was negatively acknowledged."""
        if ack.delay_ns or not self.extensions.nak_backoff:
            return ack.delay_ns
        return self.pending.policy.wait_ns(max(1, self.pending.count(seq)))

    def _sample(self, seqs: Runs, now: Now, named: Mapping[int, int]) -> None:
        """Record how long these acks took, while the metric's subject has subscribers."""
        if self._has_interest(self._metric, origin=MessageOrigin.ADVISORY):
            self._out.samples += samples_of(seqs, self.pending, now.mono_ns, named)
