"""A push consumer: messages go to a deliver subject while it has subscribers. Pure; see core.py.

The runner steps it when subscribers come or go.

Flow control: the consumer counts the bytes it has sent and not yet heard of. Over half of its window it sends a
`100 FlowControl Request` whose reply subject names the request; over the whole window it stops. The client's answer
takes off what had been sent when it was asked, and doubles the window up to 32 MiB. A heartbeat during a stall repeats
the question, in case it was lost. Source: consumer.go (needFlowControl, processFlowControl), ADR-9.

With `ack_policy: flow_control` an answer says in its headers what is stored, and so acknowledges. Nothing is delivered
again before a reset: the reader notices what it misses. So the consumer asks as well when `max_ack_pending` is reached,
and behind each heartbeat while something is unacknowledged. Source: ADR-60, observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jetraft.cluster.consumers.core import DELIVERIES_PER_STEP_MAX, ConsumerCore
from jetraft.cluster.consumers.delivery import Run
from jetraft.cluster.consumers.effects import Now, StatusMessage
from jetraft.cluster.consumers.pending import NEVER_NS
from jetraft.store.model import message
from jetraft.store.model.config import AckPolicy
from jetraft.store.stream._runs import Runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jetraft.cluster.consumers.selector import Selector
    from jetraft.cluster.ports import DeliveryRun, StoredLike
    from jetraft.store.model.config import ConsumerConfig

WINDOW_BYTES_MAX: Final = 32 << 20  # as nats-server's JsFlowControlMaxPending
WINDOW_BYTES_START: Final = WINDOW_BYTES_MAX // 16  # as nats-server: the window ramps up


class FlowWindow:
    """The bytes that were sent and not yet heard of."""

    def __init__(self) -> None:
        self.limit_bytes = WINDOW_BYTES_START
        self.pending_bytes = 0
        self.asked_with = b""  # the reply subject of the open question, empty for none
        self._asked_bytes = 0  # what its answer takes off
        self._asked_seq = 0  # the last consumer sequence that was sent before it

    @property
    def is_stalled(self) -> bool:
        """True when nothing may be sent before an answer comes."""
        return self.pending_bytes > self.limit_bytes

    @property
    def room_bytes(self) -> int:
        """How much may be sent until it is time to ask, or to stop when a question is open; reached means passed."""
        limit_bytes = self.limit_bytes if self.asked_with else self.limit_bytes // 2
        return max(1, limit_bytes - self.pending_bytes + 1)

    def sent(self, size: int, last_size: int) -> bool:
        """Count messages that are sent, not more than it took to fill `room_bytes`; True when it is time to ask."""
        self.pending_bytes += size
        if self.asked_with and self.pending_bytes - self._asked_bytes >= self.limit_bytes:
            self._asked_bytes += last_size
        return not self.asked_with and self.pending_bytes > self.limit_bytes // 2

    def ask(self, reply: bytes, consumer_seq: int) -> None:
        """The question leaves with this reply subject, behind the delivery with this consumer sequence."""
        self.asked_with, self._asked_bytes, self._asked_seq = reply, self.pending_bytes, consumer_seq

    def returned(self, size: int, consumer_seq: int) -> None:
        """Messages up to this consumer sequence that were counted did not leave."""
        self.pending_bytes = max(0, self.pending_bytes - size)
        if self.asked_with and consumer_seq <= self._asked_seq:
            self._asked_bytes = max(0, self._asked_bytes - size)

    def answered(self, reply: bytes) -> bool:
        """The answer came; False: an answer to another question, which changes nothing."""
        if reply != self.asked_with:
            return False
        self.limit_bytes = min(self.limit_bytes * 2, WINDOW_BYTES_MAX)
        self.pending_bytes = max(0, self.pending_bytes - self._asked_bytes)
        self.asked_with, self._asked_bytes = b"", 0
        return True


class PushConsumer(ConsumerCore):
    """The leader's working copy of a push consumer."""

    def __init__(self, *args: Any, now: Now, **kwargs: Any) -> None:
        super().__init__(*args, now=now, **kwargs)
        self._follow(self.config)
        self._window = FlowWindow()
        self._is_active = False
        self._heartbeat_at_ns = now.mono_ns + self.config.idle_heartbeat
        self._flow_prefix = self._ack_prefix.replace(b"$JS.ACK.", b"$JS.FC.", 1)

    # --- events

    def flow_answered(self, reply: bytes, now: Now, *, stored_seq: int = 0) -> None:
        """The client has read everything up to a flow control request, and stored it up to this stream sequence."""
        self._last_active_ns = now.mono_ns
        if self._window.answered(reply) and self._acks_by_flow and stored_seq > 0:
            self._done(Runs((min(stored_seq, self.delivered_stream),)), now)

    def configure(self, config: ConsumerConfig, selector: Selector) -> None:
        """A new configuration took effect; the deliver subject may be another."""
        super().configure(config, selector)
        self._follow(config)

    def _follow(self, config: ConsumerConfig) -> None:
        self._to = config.deliver_subject.encode()
        self._receivers = (self._to, config.deliver_group.encode()) if config.deliver_group else (self._to,)

    # --- what the base class asks

    def _wants_messages(self) -> bool:
        return self._is_active and not self._is_stalled

    def _sweep(self, now: Now) -> None:
        self._is_active = self._has_interest(*self._receivers)
        if not self.config.idle_heartbeat or now.mono_ns < self._heartbeat_at_ns:
            return
        self._heartbeat_at_ns = now.mono_ns + self.config.idle_heartbeat
        if self._is_active:
            fields = {
                message.LAST_CONSUMER: b"%d" % self.delivered_consumer,
                message.LAST_STREAM: b"%d" % self.delivered_stream,
            }
            if self._window.asked_with:
                fields[message.CONSUMER_STALLED] = self._window.asked_with
            self._out.sends.append(StatusMessage(self._to, message.status(100, b"Idle Heartbeat", fields)))
            if self._acks_by_flow and len(self.pending) and not self._window.asked_with:
                self._ask()

    def _deliver(self, now: Now) -> bool:
        if self._pace.is_free:
            budget = self._redeliver(DELIVERIES_PER_STEP_MAX, now)
        else:
            budget = self._deliver_paced(DELIVERIES_PER_STEP_MAX, now)
        while budget and self._pace.is_free and self._wants_messages():
            count = self._deliver_new(budget, now)
            if not count:
                break
            budget -= count
        if budget < DELIVERIES_PER_STEP_MAX:
            self._heartbeat_at_ns = now.mono_ns + self.config.idle_heartbeat
        return not budget

    def _redeliver(self, budget: int, now: Now) -> int:
        """Deliver again what waits for it; returns what is left of the step's budget."""
        run = Run(self._to)
        while budget and self._wants_messages() and (seq := self._next_redelivery()) is not None:
            run = self._deliver_one(run, seq, now, redelivery=True)
            budget -= 1
        self._send(run)
        return budget

    def _deliver_paced(self, budget: int, now: Now) -> int:
        """Deliver what the pace lets go; returns what is left of the step's budget."""
        run = Run(self._to)
        while budget and self._wants_messages() and (found := self._next_seq(now)) is not None:
            run = self._deliver_one(run, found[0], now, redelivery=found[1])
            budget -= 1
        self._send(run)
        return budget

    def _deliver_one(self, run: Run, seq: int, now: Now, *, redelivery: bool) -> Run:
        """Put one message into the run; returns the run for the next one, another after a flow control question."""
        size = self._size_of(seq, redelivery=redelivery) if self.config.flow_control else 0
        self._take(run, seq, now, redelivery=redelivery, size=size)
        if not self._is_time_to_ask(size, size):
            return run
        self._send(run)
        self._ask()
        return Run(self._to)

    def _deliver_new(self, wanted: int, now: Now) -> int:
        """Deliver new messages in one go, as far as the window has room; returns how many."""
        seqs = self._choose_many(wanted)
        if not seqs:
            return 0
        size = last_size = 0
        if self.config.flow_control:
            count, size, last_size = self._measure(seqs, self._window.room_bytes)
            seqs = seqs.part(0, count)
        self._send_new((self._to,), seqs, now, size=size)
        if self._is_time_to_ask(size, last_size):
            self._ask()
        return len(seqs)

    def _give_back(self, run: DeliveryRun, gone: Sequence[int], copies: Mapping[int, StoredLike]) -> None:
        super()._give_back(run, gone, copies)
        if gone and self.config.flow_control:
            self._window.returned(self._counted_for(run, gone, copies), run.consumer_seqs[-1])

    def _is_idle(self) -> bool:
        return not self._is_active

    def _wake_ns(self, now: Now) -> int | None:
        wake_ns = super()._wake_ns(now)
        wake_ns = NEVER_NS if wake_ns is None else wake_ns
        if self._is_active and self.config.idle_heartbeat:
            wake_ns = min(wake_ns, self._heartbeat_at_ns)
        return None if wake_ns == NEVER_NS else wake_ns

    # --- inside

    @property
    def _is_stalled(self) -> bool:
        return self.config.flow_control and self._window.is_stalled

    @property
    def _acks_by_flow(self) -> bool:
        return self.config.ack_policy is AckPolicy.FLOW_CONTROL

    def _is_time_to_ask(self, size: int, last_size: int) -> bool:
        """Count messages that are sent; whether the client has to be asked now."""
        if not self.config.flow_control:
            return False
        is_half_full = self._window.sent(size, last_size)
        is_at_limit = self._acks_by_flow and self._is_at_ack_limit() and not self._window.asked_with
        return is_half_full or is_at_limit

    def _ask(self) -> None:
        """Ask the client to say when it has read this far."""
        reply = b"%s%d" % (self._flow_prefix, self.delivered_consumer)
        self._window.ask(reply, self.delivered_consumer)
        self._out.sends.append(StatusMessage(self._to, message.status(100, b"FlowControl Request"), reply))
