"""The plane as the cluster layer sees it: it sends messages and captures published ones."""

from collections.abc import Callable
from weakref import WeakValueDictionary

import attrs

from jetraft.api.plane._accounts import Account
from jetraft.api.plane._delivery import deliver_run
from jetraft.api.plane._plane import Plane
from jetraft.api.turns.reactor import Reactor
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.ports import DeliveryRun, MessageSource, deliver_one_by_one
from jetraft.store.stream._records import RecordReader


@attrs.define(eq=False)
class PlaneOutbox:
    """Implements cluster.ports.Outbox. A call outside of a turn asks for one."""

    plane: Plane
    account: Account
    reactor: Reactor

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
        """Deliver to the subscribers of `to`; returns the number of receivers, a peer node counting once."""
        self.reactor.kick_outside()
        return self.plane.send(self.account, to, subject=subject, reply=reply, hdr=hdr, payload=payload, origin=origin)

    def send_batch(self, records: bytes, *, origin: MessageOrigin = MessageOrigin.ANSWER) -> None:
        """Deliver the capture records of a batch, each to its subject."""
        self.reactor.kick_outside()
        self.plane.send_batch(self.account, records, origin=origin)

    def has_interest(self, subject: bytes, queue: bytes = b"", *, origin: MessageOrigin = MessageOrigin.ANSWER) -> bool:
        """True when a subscriber on any node would receive it; with `queue`, a member of that queue group."""
        return self.plane.has_interest(self.account, subject, queue, origin=origin)

    def is_subscribed(self, subject: bytes) -> bool:
        """True when somebody on any node has subscribed to exactly this subject."""
        return self.plane.is_subscribed(self.account, subject)

    def waiting_bytes(self, subject: bytes) -> int:
        """The bytes that wait for the receiver of this subject that is furthest behind; 0 when it keeps up."""
        waiting, routes = self.plane.waiting_bytes(self.account, subject)
        return max(waiting, *map(self.reactor.route_bytes, routes)) if routes else waiting

    def add_sink(
        self,
        subject: bytes,
        handler: Callable[[bytes], None],
        *,
        kind: SinkKind,
        queue: bytes = b"",
        local_only: bool = False,
    ) -> int:
        """Call `handler` once a turn with the messages published to a subject; returns a handle."""
        self.reactor.kick_outside()
        return self.plane.add_sink(self.account, subject, handler, kind=kind, queue=queue, local_only=local_only)

    def extend_sink(self, handle: int, subject: bytes, *, local_only: bool = False) -> None:
        """Capture another subject into the same batches, so that messages of both keep their order."""
        self.reactor.kick_outside()
        self.plane.extend_sink(handle, subject, local_only=local_only)

    def capture_deliveries(self, subject: bytes, handler: Callable[[bytes], None]) -> int:
        """The same for what a consumer delivers to a subject: messages keep the subjects that they are stored under."""
        handle = self.add_sink(subject, handler, kind=SinkKind.DELIVERIES)
        self.plane.show_subjects(handle)
        return handle

    def later(self, callback: Callable[[], None]) -> None:
        """Call back in this turn, after its batches are handled."""
        self.reactor.later(callback)

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> int:
        """Call back in the turn in which interest in this subject may have changed; returns a handle."""
        return self.reactor.interest.add(self.account, subject, callback)

    def unwatch_interest(self, handle: int) -> None:
        """End a watch."""
        self.reactor.interest.remove(handle)

    def remove_sink(self, handle: int) -> None:
        """Remove a sink."""
        self.reactor.kick_outside()
        self.plane.remove_sink(handle)

    def deliver(self, run: DeliveryRun, source: MessageSource) -> int:
        """Send stored messages to one subject, each with its ack subject."""
        reader = getattr(source, "records", None)
        if run.headers_only or run.pin_id is not None or not isinstance(reader, RecordReader):
            return deliver_one_by_one(self, run, source)
        self.reactor.kick_outside()
        return deliver_run(
            self.plane,
            self.account,
            reader,
            run.to,
            run.ack_prefix,
            run.stream_seqs,
            run.consumer_seqs,
            run.counts,
            run.nums_pending,
        )


@attrs.define(eq=False)
class PlaneOutboxes:
    """Implements cluster.ports.Outboxes. An account stays in the plane as long as somebody has its outbox."""

    plane: Plane
    reactor: Reactor
    _by_name: WeakValueDictionary[str, PlaneOutbox] = attrs.field(factory=WeakValueDictionary)

    def __call__(self, account: str) -> PlaneOutbox:
        """The way out and in of an account."""
        outbox = self._by_name.get(account)
        if outbox is None:
            outbox = self._by_name[account] = PlaneOutbox(self.plane, self.plane.account(account), self.reactor)
        return outbox
