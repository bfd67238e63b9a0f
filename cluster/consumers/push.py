"""A push consumer: messages go to a deliver subject while somebody listens there. Pure; see core.py.

Flow control: the consumer counts the bytes it has sent and not yet heard of. Over half of its window it sends a
`100 FlowControl Request` whose reply subject names the request; over the whole window it stops. The client's answer
takes off what had been sent when it was asked, and doubles the window up to 32 MiB. A heartbeat during a stall repeats
the question, in case it was lost. Source: consumer.go (needFlowControl, processFlowControl), ADR-9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jetraft.cluster.consumers.core import DELIVERIES_PER_STEP_MAX, ConsumerCore, Now, Run
from jetraft.cluster.consumers.effects import Status
from jetraft.cluster.consumers.pending import NEVER_NS
from jetraft.store.model import message
from jetraft.store.model.clock import NS_PER_MS

if TYPE_CHECKING:
    from jetraft.cluster.consumers.selector import Selector
    from jetraft.store.model.config import ConsumerConfig

WINDOW_BYTES_MAX: Final = 32 << 20  # as nats-server's JsFlowControlMaxPending
WINDOW_BYTES_START: Final = WINDOW_BYTES_MAX // 16  # as nats-server: the window ramps up
INTEREST_POLL_NS: Final = 100 * NS_PER_MS  # how soon a listener that comes later is noticed


class FlowWindow:
    """What was sent and not yet heard of, in bytes."""

    def __init__(self) -> None:
        self.limit_bytes = WINDOW_BYTES_START
        self.pending_bytes = 0
        self.asked_with = b""  # the reply subject of the open question, empty for none
        self._asked_bytes = 0  # what its answer takes off

    @property
    def is_stalled(self) -> bool:
        """True when nothing may be sent before an answer comes."""
        return self.pending_bytes > self.limit_bytes

    def sent(self, size: int) -> bool:
        """Count what is sent; True when it is time to ask."""
        self.pending_bytes += size
        if self.asked_with and self.pending_bytes - self._asked_bytes >= self.limit_bytes:
            self._asked_bytes += size
        return not self.asked_with and self.pending_bytes > self.limit_bytes // 2

    def ask(self, reply: bytes) -> None:
        """The question leaves with this reply subject."""
        self.asked_with, self._asked_bytes = reply, self.pending_bytes

    def answered(self, reply: bytes) -> None:
        """The answer came; an answer to another question changes nothing."""
        if reply != self.asked_with:
            return
        self.limit_bytes = min(self.limit_bytes * 2, WINDOW_BYTES_MAX)
        self.pending_bytes = max(0, self.pending_bytes - self._asked_bytes)
        self.asked_with, self._asked_bytes = b"", 0


class PushConsumer(ConsumerCore):
    """The leader's working copy of a push consumer."""

    def __init__(self, *args: Any, now: Now, **kwargs: Any) -> None:
        super().__init__(*args, now=now, **kwargs)
        self._to = self.config.deliver_subject.encode()
        self._window = FlowWindow()
        self._is_active = False
        self._heartbeat_at_ns = now.mono_ns + self.config.idle_heartbeat
        self._flow_prefix = self._ack_prefix.replace(b"$JS.ACK.", b"$JS.FC.", 1)

    # --- events

    def flow_answered(self, reply: bytes, now: Now) -> None:
        """The client has read everything up to a flow control request."""
        self._last_active_ns = now.mono_ns
        self._window.answered(reply)

    def configure(self, config: ConsumerConfig, selector: Selector) -> None:
        """A new configuration took effect; the deliver subject may be another."""
        super().configure(config, selector)
        self._to = config.deliver_subject.encode()

    # --- what the base class asks

    def _wants_messages(self) -> bool:
        return self._is_active and not self._is_stalled

    def _sweep(self, now: Now) -> None:
        self._is_active = self._has_interest(self._to)
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
            self._out.sends.append(Status(self._to, message.status(100, b"Idle Heartbeat", fields)))

    def _deliver(self, now: Now) -> bool:
        run = Run(self._to)
        budget = DELIVERIES_PER_STEP_MAX
        if self._wants_messages() and not self.config.flow_control and self._next_redelivery() is None:
            new = self._take_new(self._to, budget, now)
            if new is not None:
                self._out.sends.append(new)
                budget -= len(new.stream_seqs)
        while budget and self._wants_messages():
            found = self._next_seq()
            if found is None:
                break
            seq, redelivery = found
            size = self._size_of(seq, redelivery=redelivery)
            self._take(run, seq, now, redelivery=redelivery)
            budget -= 1
            if self.config.flow_control and self._window.sent(size):
                self._send(run)
                run = Run(self._to)
                self._ask()
        self._send(run)
        if budget < DELIVERIES_PER_STEP_MAX:
            self._heartbeat_at_ns = now.mono_ns + self.config.idle_heartbeat
        return not budget

    def _is_idle(self) -> bool:
        return not self._is_active

    def _wake_ns(self, now: Now) -> int | None:
        wake_ns = super()._wake_ns(now)
        wake_ns = NEVER_NS if wake_ns is None else wake_ns
        if not self._is_active:
            wake_ns = min(wake_ns, now.mono_ns + INTEREST_POLL_NS)
        elif self.config.idle_heartbeat:
            wake_ns = min(wake_ns, self._heartbeat_at_ns)
        return None if wake_ns == NEVER_NS else wake_ns

    # --- inside

    @property
    def _is_stalled(self) -> bool:
        return self.config.flow_control and self._window.is_stalled

    def _size_of(self, seq: int, *, redelivery: bool) -> int:
        """What a message counts in the window; not worked out without flow control."""
        if not self.config.flow_control:
            return 0
        return self._selector.size(seq) + self._ack_subject_size(seq, redelivery=redelivery)

    def _ask(self) -> None:
        """Ask the client to say when it has read this far."""
        reply = b"%s%d" % (self._flow_prefix, self.delivered_consumer)
        self._window.ask(reply)
        self._out.sends.append(Status(self._to, message.status(100, b"FlowControl Request"), reply))
