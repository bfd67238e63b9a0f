"""What is above one simulated node: sinks that capture what clients publish, and inboxes. Implements Outbox.

Clients are connected to every node, without loss: what they need not survive is tested with real processes.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.ports import DeliveryRun, MessageSource, deliver_one_by_one
from jetraft.store.model.subject import matches

Inbox = Callable[[bytes, bytes, bytes], None]  # (subject, headers, payload)


class Elsewhere(Protocol):
    """Other nodes, for what goes to no inbox (tests/simulator/features/exchange.py)."""

    def send(self, to: bytes, message: tuple[bytes, bytes, bytes, bytes]) -> int: ...

    def is_heard(self, subject: bytes) -> bool: ...


class SimOutbox:
    """Implements Outbox for one process. `kick` schedules a turn; `deliver` replaces how messages reach consumers."""

    def __init__(
        self,
        receive: Inbox,
        kick: Callable[[], None],
        *,
        deliver: Callable[[DeliveryRun, MessageSource], int] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._receive = receive
        self._kick = kick
        self._deliver = deliver
        self._elsewhere = elsewhere
        self._sinks: dict[int, tuple[list[bytes], Callable[[bytes], None]]] = {}
        self._captured: dict[int, list[bytes]] = {}
        self._later: list[Callable[[], None]] = []
        self._handles = 0

    # Outbox

    def send(  # noqa: PLR0913  (the port's)
        self,
        to: bytes,
        *,
        subject: bytes | None = None,
        reply: bytes = b"",
        hdr: bytes = b"",
        payload: bytes = b"",
        origin: MessageOrigin = MessageOrigin.ANSWER,
    ) -> int:
        del origin
        if not to.startswith(b"_INBOX."):
            return 0 if self._elsewhere is None else self._elsewhere.send(to, (subject or to, reply, hdr, payload))
        self._receive(to, hdr, payload)
        return 1

    def send_batch(self, records: bytes, *, origin: MessageOrigin = MessageOrigin.ANSWER) -> None:
        for message in captures(records):
            self.send(message.subject, reply=message.reply, hdr=message.hdr, payload=message.payload, origin=origin)

    def has_interest(self, subject: bytes, queue: bytes = b"", *, origin: MessageOrigin = MessageOrigin.ANSWER) -> bool:
        del queue, origin
        return subject.startswith(b"_INBOX.") or (self._elsewhere is not None and self._elsewhere.is_heard(subject))

    def is_subscribed(self, subject: bytes) -> bool:
        return self.has_interest(subject)

    def waiting_bytes(self, subject: bytes) -> int:
        del subject
        return 0

    def add_sink(
        self,
        subject: bytes,
        handler: Callable[[bytes], None],
        *,
        kind: SinkKind,
        queue: bytes = b"",
        local_only: bool = False,
    ) -> int:
        del kind, queue, local_only
        self._handles += 1
        self._sinks[self._handles] = ([subject], handler)
        return self._handles

    def extend_sink(self, handle: int, subject: bytes, *, local_only: bool = False) -> None:
        del local_only
        self._sinks[handle][0].append(subject)

    def remove_sink(self, handle: int) -> None:
        self._sinks.pop(handle, None)
        self._captured.pop(handle, None)

    def capture_deliveries(self, subject: bytes, handler: Callable[[bytes], None]) -> int:
        return self.add_sink(subject, handler, kind=SinkKind.DELIVERIES)

    def later(self, callback: Callable[[], None]) -> None:
        self._later.append(callback)
        self._kick()

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        del subject, callback
        return 0

    def unwatch_interest(self, handle: int) -> None:
        del handle

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        is_elsewhere = self._elsewhere is not None and not run.to.startswith(b"_INBOX.")
        if self._deliver is None or is_elsewhere:
            return deliver_one_by_one(self, run, source)
        return self._deliver(run, source)

    # Clients

    def captures(self, subject: bytes) -> bool:
        """Whether a sink of this node takes what is published there."""
        return any(self._matching(subject))

    def publish(self, subject: bytes, *, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b"") -> None:
        """A client's message enters here."""
        self.captured(subject, subject, reply, hdr, payload)

    def captured(self, to: bytes, subject: bytes, reply: bytes, hdr: bytes, payload: bytes) -> None:
        """A message to a subject, which its receivers see under another one perhaps, arrives here."""
        for handle in self._matching(to):
            self._captured.setdefault(handle, []).append(encode_capture(subject, reply, hdr, payload))
        self._kick()

    def _matching(self, subject: bytes) -> list[int]:
        return [
            handle
            for handle, (patterns, _) in self._sinks.items()
            if any(matches(pattern, subject) for pattern in patterns)
        ]

    def hand_over(self) -> bool:
        """Give every sink what it captured; returns whether there was something."""
        captured, self._captured = self._captured, {}
        for handle, records in captured.items():
            if handle in self._sinks:
                self._sinks[handle][1](b"".join(records))
        put_off, self._later = self._later, []
        for callback in put_off:
            callback()
        return bool(captured or put_off)


def ack_subjects(run: DeliveryRun, source: MessageSource) -> Sequence[tuple[int, int, bytes]]:
    """(stream sequence, consumer sequence, ack subject) of each message of a run that the stream still has."""
    found = []
    columns = zip(run.stream_seqs, run.consumer_seqs, run.counts, run.nums_pending, strict=True)
    for stream_seq, consumer_seq, count, num_pending in columns:
        message = source.load(stream_seq)
        if message is not None:
            numbers = (run.ack_prefix, count, stream_seq, consumer_seq, message.ts_ns, num_pending)
            found.append((stream_seq, consumer_seq, b"%s%d.%d.%d.%d.%d" % numbers))
    return found
