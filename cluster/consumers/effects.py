"""The input of a consumer core and its effects: commands for the log, and what leaves the node, in order.

A replicated consumer's sends wait until the commands of the same step are committed, so that a message that a client
has seen is never unknown to the next leader. Confirmations (the answers to double acks) always wait for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from jetraft.cluster.consumers.pending import Delivery
    from jetraft.cluster.consumers.requests import Waiting
    from jetraft.cluster.ports import DeliveryRun
    from jetraft.cluster.state.commands import ConsumerCommand


@attrs.frozen(slots=True)
class Now:
    """One moment on both clocks, nanoseconds."""

    mono_ns: int
    unix_ns: int


@attrs.frozen(slots=True)
class StatusMessage:
    """A message of headers only: the end of a request, or a sign of life."""

    to: bytes
    hdr: bytes
    reply: bytes = b""
    ends: Waiting | None = None  # the request that is over with it, where what the client got before matters to that


@attrs.frozen(slots=True)
class AckSample:
    """A sample of an acknowledged delivery, for those who measure (`sample_freq`)."""

    consumer_seq: int
    stream_seq: int
    ack_ns: int  # from the delivery to its ack
    deliveries: int


@attrs.frozen(kw_only=True, slots=True)
class PinEvent:
    """A client of a priority group was pinned (`pin_id`), or is no longer (`reason`)."""

    group: str
    pin_id: str = ""
    reason: str = ""


@attrs.define(eq=False)
class ConsumerEffects:
    """The outcome of one step of a core."""

    commands: list[ConsumerCommand] = attrs.Factory(list)
    sends: list[DeliveryRun | StatusMessage] = attrs.Factory(list)
    confirmations: list[bytes] = attrs.Factory(list)
    refusals: list[tuple[bytes, bytes]] = attrs.Factory(list)  # (reply, header block): answers that wait for nothing
    samples: list[AckSample] = attrs.Factory(list)  # their subject has subscribers
    pins: list[PinEvent] = attrs.Factory(list)
    missing: list[Delivery] = attrs.Factory(list)  # waited for an ack, and the stream has dropped them
    wake_ns: int | None = None  # when to step again, monotonic
    has_resumed: bool = False  # its pause is over
    is_abandoned: bool = False  # it was not used for its inactive_threshold: it is to be deleted

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to do but wait."""
        done = self.commands or self.sends or self.confirmations or self.refusals or self.samples or self.pins
        return not (done or self.has_resumed or self.is_abandoned)


@attrs.frozen(kw_only=True, slots=True)
class CoreStatistics:
    """A frozen look at a core."""

    delivered_consumer: int
    delivered_stream: int
    ack_floor: tuple[int, int]
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int
    last_delivered_ns: int | None  # Unix time
    last_ack_ns: int | None  # Unix time at which this process heard of it
    pin_id: str = ""  # of the pinned client of the priority group, in this term
    pinned_ns: int = 0  # Unix time
