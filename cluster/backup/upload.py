"""Receiving one archive: chunks that come as requests, each acknowledged when it has been used.

So a client sends no faster than the archive can be used, and nothing is kept of it. An upload ends with an empty chunk,
with silence, or when the disk has no room. Source: jetstream_api.go (processStreamRestore).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import SinkKind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from jetraft.cluster.ports import Outbox

SILENCE_S: Final = 5.0  # nats-server's restoreNetTimeout
QUEUE_BYTES_MAX: Final = 32 << 20  # what a client may send ahead of acknowledgements: nats-server's largest window


@attrs.frozen(slots=True)
class Chunk:
    """One captured chunk."""

    reply: bytes
    payload: bytes


class UploadFailedError(Exception):
    """The upload is over; the text says why."""


class Upload:
    """One archive that comes in on `subject`. `close` ends it; `reply` is where its sender wants the outcome."""

    def __init__(self, *, outbox: Outbox, subject: bytes, has_room: Callable[[], bool]) -> None:
        """Listen at once, before the client is told the subject."""
        self._outbox = outbox
        self._has_room = has_room
        self._chunks: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._overrun = False
        self._ended = False
        self._woken = trio.Event()
        self._sink: int | None = outbox.add_sink(subject, self._on_chunks, kind=SinkKind.API)
        self._in_use = b""  # where the chunk that is being used is to be acknowledged
        self.reply = b""
        self.bytes_received = 0

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield chunks until the empty one, each acknowledged when the next is asked for. Raises UploadFailedError."""
        while not self._ended:
            chunk = await self._next()
            if not chunk.payload:
                self._ended, self.reply = True, chunk.reply
                return
            if not self._has_room():
                raise UploadFailedError("insufficient storage resources available")
            self.bytes_received += len(chunk.payload)
            self._in_use = chunk.reply
            yield chunk.payload
            self._acknowledge()

    async def drain(self) -> None:
        """Acknowledge what is still sent, for nothing: as with nats-server, the outcome is told at the end only."""
        self._acknowledge()
        while not self._ended:
            chunk = await self._next()
            if chunk.payload:
                self._in_use = chunk.reply
                self._acknowledge()
            else:
                self._ended, self.reply = True, chunk.reply

    def close(self) -> None:
        """Stop listening; harmless when it has been done."""
        if self._sink is not None:
            self._outbox.remove_sink(self._sink)
            self._sink = None

    def _acknowledge(self) -> None:
        reply, self._in_use = self._in_use, b""
        if reply:
            self._outbox.send(reply)

    async def _next(self) -> Chunk:
        if not self._chunks:
            self._woken = trio.Event()
            with trio.move_on_after(SILENCE_S):
                await self._woken.wait()
        if self._overrun:
            raise UploadFailedError("too much sent ahead of acknowledgements")
        if not self._chunks:
            raise UploadFailedError("timed out waiting for data")
        chunk = self._chunks.popleft()
        self._queued_bytes -= len(chunk.payload)
        return chunk

    def _on_chunks(self, batch: bytes) -> None:
        for captured in captures(batch):
            chunk = Chunk(captured.reply, captured.payload)
            self._queued_bytes += len(chunk.payload)
            if self._queued_bytes > QUEUE_BYTES_MAX:
                self._overrun = True
                self._chunks.clear()
                break
            self._chunks.append(chunk)
        self._woken.set()
