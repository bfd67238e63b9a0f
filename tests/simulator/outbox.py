"""The plane of one simulated node: sinks that capture, and what leaves for clients.

Clients are connected to every node, without loss: what they need not survive is tested with real processes. Subjects
with a wildcard at the end are all that a stream's leader listens to.
"""

from collections.abc import Callable, Sequence

from jetraft.cluster.ports import DeliveryRun, MessageSource
from jetraft.cluster.streams._admit import captured_at, captured_payload, encode_capture

Inbox = Callable[[bytes, bytes, bytes], None]  # (subject, headers, payload)


class SimOutbox:
    """Implements Outbox for one process."""

    def __init__(self, receive: Inbox, deliver: Callable[[DeliveryRun, MessageSource], int]) -> None:
        self._receive = receive
        self.deliver = deliver
        self._sinks: dict[int, tuple[list[bytes], Callable[[bytes], None]]] = {}
        self._captured: dict[int, list[bytes]] = {}
        self._later: list[Callable[[], None]] = []
        self._handles = 0

    # Outbox

    def send(
        self, to: bytes, *, subject: bytes | None = None, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b""
    ) -> int:
        del subject, reply
        self._receive(to, hdr, payload)
        return 1

    def send_batch(self, records: bytes) -> None:
        position = 0
        while position < len(records):
            start = position
            position, subject, _, hdr, _ = captured_at(records, start)
            self._receive(subject, hdr, captured_payload(records, start))

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
        self._sinks[self._handles] = ([subject.rstrip(b"*>")], handler)
        return self._handles

    def extend_sink(self, handle: int, subject: bytes) -> None:
        self._sinks[handle][0].append(subject.rstrip(b"*>"))

    def remove_sink(self, handle: int) -> None:
        self._sinks.pop(handle, None)
        self._captured.pop(handle, None)

    def later(self, callback: Callable[[], None]) -> None:
        self._later.append(callback)

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        del subject, callback
        return 0

    def unwatch_interest(self, handle: int) -> None:
        del handle

    # What the node does with it.

    def publish(self, subject: bytes, *, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b"") -> None:
        """A client's message enters here."""
        for handle, (prefixes, _) in self._sinks.items():
            if any(subject.startswith(prefix) for prefix in prefixes):
                self._captured.setdefault(handle, []).append(encode_capture(subject, reply, hdr, payload))

    def hand_over(self) -> bool:
        """Give every sink what it captured; returns whether there was something."""
        if not self._captured:
            return False
        captured, self._captured = self._captured, {}
        for handle, records in captured.items():
            if handle in self._sinks:
                self._sinks[handle][1](b"".join(records))
        put_off, self._later = self._later, []
        for callback in put_off:
            callback()
        return True


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
