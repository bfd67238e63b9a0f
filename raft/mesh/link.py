"""One link session with one peer: an authenticated stream, a queue per channel, a sender and a receiver.

Order holds inside a channel; between channels the sender prefers control, then Raft, calls, routed messages and bulk.
Nothing is ever dropped inside a session (rule 15): when the peer does not keep up and the queue exceeds its budget, the
session ends, and everything that was in flight ends with it, which both ends know. Queued messages are joined into one
send. `flush` sends at once what the socket takes, so that a turn's messages do not wait for the sender task.

Where sockets are watched inside turns (`Sockets`), a link reads there, and its tasks are only needed for what the
socket does not take at once: a frame from a peer then costs no trip through the scheduler, which is 30 us.

The connection for bulk beside a link is of the same class. It has a `TokenBucket`, which the sender task waits for.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs
import trio

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_CONTROL, CHANNELS, FrameDecoder, frame_head
from jetraft.raft.mesh.token_bucket import TokenBucket
from jetraft.raft.mesh.wires import WOULD_BLOCK, Wire
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.ids import NodeId

QUEUE_BYTES_MAX = 64 << 20  # as nats-server's max_pending of a client
SEND_BYTES = 256 << 10  # joined per send; after it the queues are looked at again in order of priority


class Sockets(Protocol):
    """A watcher of sockets for links (api/turns/reactor.py)."""

    def watch(self, fd: int, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` in a turn whenever the descriptor is readable; the turn ends after it."""
        ...

    def unwatch(self, fd: int) -> None:
        """Stop; before the descriptor is closed."""
        ...

    def kick_outside(self) -> None:
        """Ask for a turn, at the end of which links are flushed; nothing inside of one."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class LinkStatistics:
    """A snapshot of a link's figures."""

    session: int
    bytes_sent: int
    bytes_received: int
    frames_sent: int
    frames_received: int
    queued_bytes: int
    last_received_ns: int  # mono


class Link:
    """A link after the handshake. `run` owns it until the session ends; `closed_because` then says why."""

    def __init__(  # noqa: PLR0913  (what distinguishes sessions, by name)
        self,
        wire: Wire,
        *,
        node_id: NodeId,
        session: int,
        boot: int,
        clock: Clock,
        pace: TokenBucket | None = None,
        sockets: Sockets | None = None,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
    ) -> None:
        self.node_id = node_id
        self.session = session
        self.boot = boot
        self.closed_because: str | None = None
        self.broke_protocol = False  # the peer did; then it is not linked again at once
        self._wire = wire
        self._clock = clock
        self._pace = pace
        self._sockets = sockets
        self.queue_bytes_max = queue_bytes_max
        self._reader = FrameDecoder()
        # By channel, whose numbers are in order of priority.
        self._queues: tuple[deque[bytes], ...] = tuple(deque() for _ in range(CHANNELS))
        self._queued_bytes = 0  # in the queues
        self._unsent: bytes | memoryview = b""  # the rest of the last join; goes before everything else
        self.has_queued = False  # something waits in either, as far as `flush` and the sender task know
        self._wake_sender = trio.Event()
        self._cancel = trio.CancelScope()
        self.last_received_ns = self.last_sent_ns = clock.mono_ns()
        self._bytes_sent = self._bytes_received = self._frames_sent = self._frames_received = 0

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._wire.fileno()

    @property
    def queued_bytes(self) -> int:
        """The bytes that wait for the peer; senders of bulk look at it."""
        return self._queued_bytes + len(self._unsent)

    def send(self, channel: int, payload: bytes, *, behind: int | None = None) -> bool:
        """Queue a frame; False when the session is over. Overload ends the session.

        `behind` is a channel whose frames that are queued by now go before it.
        """
        if self.closed_because is not None:
            return False
        head = frame_head(channel, payload)
        self._queues[channel if behind is None else behind].extend((head, payload))
        self._queued_bytes += len(head) + len(payload)
        self.has_queued = True
        self._frames_sent += 1
        # Nothing is dropped inside a session (rule 15): it ends instead.
        if self._queued_bytes > self.queue_bytes_max:
            self.close(f"more than {self.queue_bytes_max} bytes wait for it")
            return False
        if self._sockets is None:
            self._wake_sender.set()
        else:
            self._sockets.kick_outside()
        return True

    def flush(self) -> None:
        """Send what the socket takes, and the pace allows, without waiting; the rest is the sender task's."""
        if self.has_queued:
            self._flush()
            self.has_queued = bool(self._unsent or self._queued_bytes)
            if self.has_queued:
                self._wake_sender.set()

    def _flush(self) -> None:
        while self.closed_because is None and not (self._pace is not None and self._pause_ns()):
            data = self._unsent or self._take()
            try:
                sent = self._wire.send(data)
            except WOULD_BLOCK:
                self._unsent = data
                return
            except OSError as error:
                self._unsent = data
                self.close(f"send: {error.strerror}")
                return
            self._unsent = memoryview(data)[sent:] if sent < len(data) else b""
            self._bytes_sent += sent
            self.last_sent_ns = self._clock.mono_ns()
            if self._pace is not None:
                self._pace.spend(sent)
            if not self._queued_bytes and not self._unsent:
                return
            if self._unsent and not self._wire.is_tls:  # TLS takes one record at a time
                return

    def _pause_ns(self) -> int:
        return 0 if self._pace is None else self._pace.wait_ns(self._clock.mono_ns())

    def close(self, reason: str) -> None:
        """End the session. The first reason counts; safe to call again."""
        if self.closed_because is None:
            self.closed_because = reason
            self._cancel.cancel()

    def keep_alive(self, idle_ns: int) -> None:
        """Say something when nothing was said for `idle_ns`."""
        if self._clock.mono_ns() - self.last_sent_ns >= idle_ns and self.queued_bytes == 0:
            self.send(CHANNEL_CONTROL, b"")

    def abandon(self) -> None:
        """Give the socket back without ever having run."""
        self.close("shutdown")
        self._wire.close()

    async def run(self, handle: Callable[[int, memoryview], None], after_frames: Callable[[], None]) -> None:
        """Serve the session until it ends. `handle` gets every frame in order, `after_frames` ends each turn."""
        try:
            with self._cancel:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send_loop)
                    if self._sockets is None:
                        await self._receive_loop(handle, after_frames)
                    else:
                        await self._receive_in_turns(self._sockets, handle)
                    nursery.cancel_scope.cancel()
        finally:
            self.close("shutdown")
            self._wire.close()

    async def _send_loop(self) -> None:
        while True:
            if not self.has_queued:
                self._wake_sender = trio.Event()
                await self._wake_sender.wait()
            self.flush()
            if pause_ns := self._pause_ns():
                await trio.sleep(pause_ns / NS_PER_S)
            elif self._unsent:
                await self._wire.wait_writable()
            else:
                await trio.lowlevel.checkpoint()  # one join at a time, other tasks between

    async def _receive_loop(self, handle: Callable[[int, memoryview], None], after_frames: Callable[[], None]) -> None:
        while self.closed_because is None:
            if self._wire.has_decrypted:
                await trio.lowlevel.checkpoint()
            else:
                await self._wire.wait_readable()
            if self._receive(handle):
                after_frames()

    async def _receive_in_turns(self, sockets: Sockets, handle: Callable[[int, memoryview], None]) -> None:
        """Let others wait for the socket; returns when the session has ended."""
        fd = self.fileno()
        ended = trio.Event()

        def on_ready() -> None:
            self._receive(handle)
            while self._wire.has_decrypted and self.closed_because is None:
                self._receive(handle)
            if self.closed_because is not None:
                ended.set()

        sockets.watch(fd, on_ready)
        try:
            if self._wire.has_decrypted:  # with the handshake's last bytes; the socket will not tell
                on_ready()
                sockets.kick_outside()
            await ended.wait()
        finally:
            sockets.unwatch(fd)

    def _receive(self, handle: Callable[[int, memoryview], None]) -> bool:
        """Read once and hand the frames out; False when nothing came. The end of the session is in `closed_because`."""
        if self.closed_because is not None:
            return False
        try:
            count = self._wire.receive_into(self._reader.space())
        except WOULD_BLOCK:
            return False
        except OSError as error:
            self.close(f"receive: {error.strerror}")
            return False
        if count == 0:
            self.close("the peer closed the connection")
            return False
        self._bytes_received += count
        self.last_received_ns = self._clock.mono_ns()
        try:
            self._reader.received(count, partial(self._take_frame, handle))
        except RemoteProtocolError as error:
            self.broke_protocol = True
            self.close(f"protocol error: {error}")
        return True

    def _take_frame(self, handle: Callable[[int, memoryview], None], channel: int, payload: memoryview) -> None:
        self._frames_received += 1
        if self.closed_because is None:
            handle(channel, payload)

    def _take(self) -> bytes:
        """Join queued frames in order of priority, about `SEND_BYTES`; empty when nothing is queued."""
        parts: list[bytes] = []
        taken = 0
        for queue in self._queues:  # in order of priority
            while queue and taken < SEND_BYTES:
                head, payload = queue.popleft(), queue.popleft()
                parts += (head, payload)
                taken += len(payload) + len(head)
            if taken >= SEND_BYTES:
                break
        self._queued_bytes -= taken
        return b"".join(parts)

    def statistics(self) -> LinkStatistics:
        """Figures for monitoring and tests."""
        return LinkStatistics(
            session=self.session,
            bytes_sent=self._bytes_sent,
            bytes_received=self._bytes_received,
            frames_sent=self._frames_sent,
            frames_received=self._frames_received,
            queued_bytes=self.queued_bytes,
            last_received_ns=self.last_received_ns,
        )
