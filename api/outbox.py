"""The plane as the cluster layer sees it: a way out for messages, a way in for captured ones."""

from collections.abc import Callable

import attrs

from jetraft.api.reactor import Reactor
from jetraft.api.routing._delivery import deliver_run
from jetraft.api.routing._plane import Plane
from jetraft.cluster.ports import DeliveryRun, MessageSource, deliver_one_by_one
from jetraft.store._records import RecordReader


@attrs.define(eq=False)
class PlaneOutbox:
    """Implements cluster.ports.Outbox. What is sent outside of a turn asks for one."""

    plane: Plane
    reactor: Reactor

    def send(
        self, to: bytes, *, subject: bytes | None = None, reply: bytes = b"", hdr: bytes = b"", payload: bytes = b""
    ) -> int:
        """Deliver to the subscribers of `to`; returns the number of receivers, a peer node counting once."""
        self.reactor.kick_outside()
        return self.plane.send(to, subject=subject, reply=reply, hdr=hdr, payload=payload)

    def send_batch(self, records: bytes) -> None:
        """Deliver capture records back to back."""
        self.reactor.kick_outside()
        self.plane.send_batch(records)

    def has_interest(self, subject: bytes) -> bool:
        """True when somebody on any node would receive it."""
        return self.plane.has_interest(subject)

    def waiting_bytes(self, subject: bytes) -> int:
        """What waits for the receiver of this subject that is furthest behind, in bytes; 0 when it keeps up."""
        waiting, routes = self.plane.waiting_bytes(subject)
        return max(waiting, *map(self.reactor.route_bytes, routes)) if routes else waiting

    def add_sink(
        self, subject: bytes, handler: Callable[[bytes], None], *, queue: bytes = b"", local_only: bool = False
    ) -> int:
        """Capture what is published to a subject, a batch a turn."""
        self.reactor.kick_outside()
        return self.plane.add_sink(subject, handler, queue=queue, local_only=local_only)

    def extend_sink(self, handle: int, subject: bytes) -> None:
        """Capture another subject into the same batches: messages of both keep their order."""
        self.reactor.kick_outside()
        self.plane.extend_sink(handle, subject)

    def later(self, callback: Callable[[], None]) -> None:
        """Call back in this turn, after its batches were handled."""
        self.reactor.later(callback)

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        """Call back in the turn in which interest in this subject may have changed; returns a handle."""
        return self.reactor.interest.add(subject, callback)

    def unwatch_interest(self, handle: int) -> None:
        """End a watch."""
        self.reactor.interest.remove(handle)

    def remove_sink(self, handle: int) -> None:
        """Stop capturing."""
        self.reactor.kick_outside()
        self.plane.remove_sink(handle)

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        """Send stored messages to one subject, each with its ack subject."""
        reader = getattr(source, "records", None)
        if run.headers_only or not isinstance(reader, RecordReader):
            return deliver_one_by_one(self, run, source)
        self.reactor.kick_outside()
        return deliver_run(
            self.plane,
            reader,
            run.to,
            run.ack_prefix,
            run.stream_seqs,
            run.consumer_seqs,
            run.counts,
            run.nums_pending,
        )
