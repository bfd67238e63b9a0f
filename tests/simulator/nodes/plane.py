"""What is above the node: sinks that capture what clients publish, and inboxes. Implements Outbox."""

from collections.abc import Callable

from jetraft.cluster.ports import DeliveryRun, MessageSource, deliver_one_by_one
from jetraft.cluster.streams._admit import captured_at, captured_payload, encode_capture
from jetraft.store.model.subject import matches

Inbox = Callable[[bytes, bytes, bytes], None]  # (subject, headers, payload)


class Plane:
    """Clients of one node are connected to it without loss."""

    def __init__(self, receive: Inbox, kick: Callable[[], None]) -> None:
        self._receive = receive
        self._kick = kick
        self._sinks: dict[int, tuple[list[bytes], Callable[[bytes], None]]] = {}
        self._captured: dict[int, list[bytes]] = {}
        self._later: list[Callable[[], None]] = []
        self._handles = 0

    # Outbox

    def send(
        self, to: bytes, *, subject: bytes | None = None, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b""
    ) -> int:
        del subject, reply
        if not to.startswith(b"_INBOX."):
            return 0
        self._receive(to, hdr, payload)
        return 1

    def send_batch(self, records: bytes) -> None:
        position = 0
        while position < len(records):
            start = position
            position, subject, _, hdr, _ = captured_at(records, start)
            self.send(subject, hdr=hdr, payload=captured_payload(records, start))

    def has_interest(self, subject: bytes) -> bool:
        return subject.startswith(b"_INBOX.")

    def waiting_bytes(self, subject: bytes) -> int:
        del subject
        return 0

    def add_sink(
        self, subject: bytes, handler: Callable[[bytes], None], *, queue: bytes = b"", local_only: bool = False
    ) -> int:
        del queue, local_only
        self._handles += 1
        self._sinks[self._handles] = ([subject], handler)
        return self._handles

    def extend_sink(self, handle: int, subject: bytes) -> None:
        self._sinks[handle][0].append(subject)

    def remove_sink(self, handle: int) -> None:
        self._sinks.pop(handle, None)
        self._captured.pop(handle, None)

    def later(self, callback: Callable[[], None]) -> None:
        self._later.append(callback)
        self._kick()

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        del subject, callback
        return 0

    def unwatch_interest(self, handle: int) -> None:
        del handle

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        return deliver_one_by_one(self, run, source)

    # Clients

    def captures(self, subject: bytes) -> bool:
        """Whether somebody on this node takes what is published there."""
        return any(self._matching(subject))

    def publish(self, subject: bytes, *, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b"") -> None:
        """A client's message enters here."""
        for handle in self._matching(subject):
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
        put_off, self._later = self._later, []
        captured, self._captured = self._captured, {}
        for handle, records in captured.items():
            if handle in self._sinks:
                self._sinks[handle][1](b"".join(records))
        for callback in put_off:
            callback()
        return bool(captured or put_off)
