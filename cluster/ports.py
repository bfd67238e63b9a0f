"""What the cluster layer asks of the layer above: a way out for messages, a way in for captured ones, and timers.

The composition root hands these in. The cluster layer sees subjects and batches, never a connection: core NATS routing
decides who receives a message and on which node. All calls are synchronous and belong to the turn that makes them;
what they queue leaves with the flush that ends the turn (ARCHITECTURE: turns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class StoredLike(Protocol):
    """The part of a stored message that a delivery needs."""

    @property
    def ts_ns(self) -> int:
        """Unix time of the message, as the leader set it."""

    @property
    def subject(self) -> bytes:
        """The subject it was published to."""

    @property
    def hdr(self) -> bytes:
        """The raw NATS/1.0 header block, empty when there is none."""

    @property
    def payload(self) -> bytes:
        """The message body."""


class MessageSource(Protocol):
    """Where stored messages are read from; a StreamStore is one."""

    def load(self, seq: int) -> StoredLike | None:
        """Return the message at this stream sequence, None when it is gone."""


@attrs.frozen(kw_only=True, slots=True)
class Delivery:
    """One message on its way to one subject; all numbers of its ack subject but the timestamp, which the store has."""

    stream_seq: int
    consumer_seq: int
    delivery_count: int
    num_pending: int


@attrs.frozen(kw_only=True, slots=True)
class DeliveryRun:
    """Messages of one stream that go to one subject in this turn, in this order.

    `ack_prefix` is `$JS.ACK.<stream>.<consumer>.`. With `headers_only` the payload is left out and `Nats-Msg-Size` is
    added.
    """

    to: bytes
    ack_prefix: bytes
    deliveries: Sequence[Delivery]
    headers_only: bool = False


class Outbox(Protocol):
    """The plane, seen from below: routing, interest and capture."""

    def send(
        self, to: bytes, *, subject: bytes | None = None, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b""
    ) -> int:
        """Deliver to the subscribers of `to` on any node, who see `subject` (`to` when None).

        Returns the number of receivers (local subscriptions plus nodes with interest); 0 means that nobody listens.
        """

    def send_batch(self, records: bytes) -> None:
        """Deliver many messages in one call: capture records back to back, each sent to the subject that it carries.

        This is how a frame's publish acks leave. A record's origin is 0.
        """

    def has_interest(self, subject: bytes) -> bool:
        """Say whether somebody on any node would receive a message sent to this subject."""

    def add_sink(
        self, subject: bytes, handler: Callable[[bytes], None], *, queue: bytes = b"", local_only: bool = False
    ) -> int:
        """Capture what is published to a subject; the handler gets one batch of capture records per turn.

        `local_only` captures what enters at this node and announces no interest to the others. Returns a handle.
        """

    def remove_sink(self, handle: int) -> None:
        """Stop capturing. What was captured in this turn and not yet handled is dropped."""

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        """Send stored messages to one subject under their own subjects, each with its ack subject as the reply.

        Messages gone from the source are skipped. Returns how many had a receiver. Implementations without a faster
        way call `deliver_one_by_one`, which is also what this means.
        """


class TimerHandle(Protocol):
    """A pending call that can be withdrawn."""

    def cancel(self) -> None:
        """Withdraw the call; harmless when it has been made."""


class Timers(Protocol):
    """Calls at monotonic times, made in the trio thread at the start of a turn."""

    def call_at(self, mono_ns: int, callback: Callable[[], None]) -> TimerHandle:
        """Arrange one call not before this monotonic time (nanoseconds of the node's clock)."""


def deliver_one_by_one(outbox: Outbox, run: DeliveryRun, source: MessageSource) -> int:
    """Do what `Outbox.deliver` promises with one `send` per message; batch encoders are tested against this."""
    received = 0
    for delivery in run.deliveries:
        message = source.load(delivery.stream_seq)
        if message is None:
            continue
        hdr, payload = message.hdr, message.payload
        if run.headers_only:
            hdr, payload = with_message_size(hdr, len(payload)), b""
        reply = ack_subject(run.ack_prefix, delivery, message.ts_ns)
        received += outbox.send(run.to, subject=message.subject, reply=reply, hdr=hdr, payload=payload) > 0
    return received


def ack_subject(ack_prefix: bytes, delivery: Delivery, ts_ns: int) -> bytes:
    """Return `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ts ns>.<num pending>`."""
    return b"%s%d.%d.%d.%d.%d" % (
        ack_prefix,
        delivery.delivery_count,
        delivery.stream_seq,
        delivery.consumer_seq,
        ts_ns,
        delivery.num_pending,
    )


def with_message_size(hdr: bytes, size: int) -> bytes:
    """Append `Nats-Msg-Size` to a header block, which may be empty."""
    lines = hdr[:-2] if hdr else b"NATS/1.0\r\n"
    return b"%sNats-Msg-Size: %d\r\n\r\n" % (lines, size)
