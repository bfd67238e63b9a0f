"""The ports of the cluster layer to the layer above: a way out for messages, a way in for captured ones, and timers.

The composition root hands these in. The cluster layer sees subjects and batches, never a connection: core NATS routing
decides who receives a message and on which node. All calls are synchronous and belong to the turn that makes them;
what they queue leaves with the flush that ends the turn (ARCHITECTURE: turns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from jetraft.cluster.capture.reach import MessageOrigin, SinkKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Outboxes = Callable[[str], "Outbox"]  # the one of an account, by its name


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
    """A source of stored messages; a StreamStore is one."""

    def load(self, seq: int) -> StoredLike | None:
        """Return the message at this stream sequence, None when it is gone."""


@attrs.frozen(kw_only=True, slots=True)
class DeliveryRun:
    """Messages of one stream that go to one subject in this turn, in this order: one column per number.

    `ack_prefix` is `$JS.ACK.<stream>.<consumer>.`; the columns, with the timestamp that the store has, make up the rest
    of each ack subject. With `headers_only` the payload is left out and `Nats-Msg-Size` is added; with `pin_id` each
    message has it as `Nats-Pin-Id`. `requests` and `sizes` are for the maker of the run, who has to know what to give
    back when messages are gone before the run leaves.
    """

    to: bytes
    ack_prefix: bytes
    stream_seqs: Sequence[int]
    consumer_seqs: Sequence[int]
    counts: Sequence[int]  # deliveries so far, this one included
    nums_pending: Sequence[int]  # messages that the consumer has yet to see after this one
    headers_only: bool = False
    pin_id: str | None = None
    requests: Sequence[object] = attrs.field(default=(), eq=False)  # whose it is: one for all, or one for each message
    sizes: Sequence[int] = attrs.field(default=(), eq=False)  # bytes counted: of all, of each message; empty: none were


class Outbox(Protocol):
    """The plane, seen from below, by one account: routing, interest and capture. Nothing crosses to another account."""

    def send(  # noqa: PLR0913  (a message, and on whose behalf)
        self,
        to: bytes,
        *,
        subject: bytes | None = None,
        reply: bytes = b"",
        hdr: bytes = b"",
        payload: bytes = b"",
        origin: MessageOrigin = MessageOrigin.ANSWER,
    ) -> int:
        """Deliver to the subscribers of `to` on any node, who see `subject` (`to` when None).

        `origin` says on whose behalf, and so which sinks are reached (capture/reach.py); an answer reaches the fewest.
        Returns the number of receivers (local subscriptions plus nodes with interest); 0 means no interest.
        """

    def send_batch(self, records: bytes, *, origin: MessageOrigin = MessageOrigin.ANSWER) -> None:
        """Deliver many messages in one call: capture records back to back, each sent to the subject that it carries.

        This is how a frame's publish acks leave. A record's origin is 0.
        """

    def has_interest(self, subject: bytes, queue: bytes = b"", *, origin: MessageOrigin = MessageOrigin.ANSWER) -> bool:
        """Say whether a subscriber on any node would receive a message of this origin sent to this subject.

        With `queue`: whether a member of that queue group would.
        """

    def is_subscribed(self, subject: bytes) -> bool:
        """Say whether there is a subscription on any node whose subject equals this literal one."""

    def waiting_bytes(self, subject: bytes) -> int:
        """Return what waits to be sent to the receiver of this subject that is furthest behind, in bytes.

        Of a receiver at another node, what waits for that node. Who sends much looks here first.
        """

    def add_sink(
        self,
        subject: bytes,
        handler: Callable[[bytes], None],
        *,
        kind: SinkKind,
        queue: bytes = b"",
        local_only: bool = False,
    ) -> int:
        """Capture what is published to a subject; the handler gets one batch of capture records per turn.

        `kind` says who is heard (capture/reach.py).
        `local_only` captures what enters at this node, or comes from another one that has not heard yet that an
        interest ended, and announces no interest to the others. Returns a handle.
        """

    def extend_sink(self, handle: int, subject: bytes, *, local_only: bool = False) -> None:
        """Capture another subject into the batches of a sink, so that messages of both keep their order."""

    def capture_deliveries(self, subject: bytes, handler: Callable[[bytes], None]) -> int:
        """Capture what a consumer delivers to a subject, under the messages' own subjects. Returns a handle."""

    def later(self, callback: Callable[[], None]) -> None:
        """Call back in this turn, when all that it captured has been handled and much of what is to be sent has left.

        For work that no client waits for. May call at once where nothing is gained by waiting.
        """

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        """Call back in turns in which interest in this literal subject may have changed. Returns a handle."""

    def unwatch_interest(self, handle: int) -> None:
        """End a watch; harmless when it has ended."""

    def remove_sink(self, handle: int) -> None:
        """Stop capturing. Messages that were captured in this turn and not yet handled are dropped."""

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        """Send stored messages to one subject under their own subjects, each with its ack subject as the reply.

        Messages gone from the source are skipped. Returns how many the source still had. Implementations without a
        faster way call `deliver_one_by_one`, which is also what this means.
        """


class Traces(Protocol):
    """The maker of traces of messages, for the leaders of streams to say what became of a message."""

    def trace_sink(self, handle: int, stream: str) -> None:
        """The sink of this handle is a stream's: it gets traced messages with the number of their trace as origin."""

    def settle_trace(self, number: int, stream: str, *, subject: str, no_interest: bool, error: str) -> None:
        """The stream stores the message under this subject, or would; or does not, with this error."""


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
    found = 0
    columns = zip(run.stream_seqs, run.consumer_seqs, run.counts, run.nums_pending, strict=True)
    for stream_seq, consumer_seq, count, num_pending in columns:
        message = source.load(stream_seq)
        if message is None:
            continue
        found += 1
        hdr, payload = message.hdr, message.payload
        if run.headers_only:
            hdr, payload = with_header(hdr, b"Nats-Msg-Size: %d" % len(payload)), b""
        if run.pin_id is not None:
            hdr = with_header(hdr, b"Nats-Pin-Id: " + run.pin_id.encode())
        reply = b"%s%d.%d.%d.%d.%d" % (run.ack_prefix, count, stream_seq, consumer_seq, message.ts_ns, num_pending)
        outbox.send(
            run.to, subject=message.subject, reply=reply, hdr=hdr, payload=payload, origin=MessageOrigin.DELIVERY
        )
    return found


def with_header(hdr: bytes, line: bytes) -> bytes:
    """Append a line to a header block, which may be empty."""
    lines = hdr[:-2] if hdr else b"NATS/1.0\r\n"
    return b"%s%s\r\n\r\n" % (lines, line)
