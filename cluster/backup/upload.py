"""Receiving one archive: chunks that come as requests go to a file without a name, each is acknowledged when written.

The file is gone with the process or the upload, whatever happens, so nothing is left behind. An upload ends with an
empty chunk, with silence, or when the disk has no room for it. Source: jetstream_api.go (processStreamRestore).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.streams._admit import captured_at, captured_payload
from jetraft.store.io import run_blocking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from jetraft.cluster.ports import Outbox

SILENCE_S: Final = 5.0  # nats-server's restoreNetTimeout
QUEUE_BYTES_MAX: Final = 32 << 20  # what a client may send ahead of acknowledgements: nats-server's largest window
READ_BYTES: Final = 1 << 16


@attrs.frozen(slots=True)
class Chunk:
    """One captured chunk."""

    reply: bytes
    payload: bytes


def captured_in(batch: bytes) -> list[Chunk]:
    """The messages of a capture batch."""
    found, at = [], 0
    while at < len(batch):
        start = at
        at, _subject, reply, _hdr, _length = captured_at(batch, start)
        found.append(Chunk(reply, captured_payload(batch, start)))
    return found


class UploadFailedError(Exception):
    """The upload is over; the text says why. `reply` is where that should be told, if anywhere."""

    def __init__(self, reason: str, reply: bytes = b"") -> None:
        super().__init__(reason)
        self.reply = reply


class Upload:
    """One archive that comes in on `subject`. Use as a context: the sink and the file end with it."""

    def __init__(self, *, outbox: Outbox, subject: bytes, directory: Path, has_room: Callable[[], bool]) -> None:
        """Listen at once, before the client is told the subject."""
        self._outbox = outbox
        self._directory = directory
        self._has_room = has_room
        self._chunks: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._overrun = False
        self._woken = trio.Event()
        self._file: IO[bytes] | None = None
        self._sink: int | None = outbox.add_sink(subject, self._on_chunks)
        self.bytes_received = 0

    async def receive(self) -> bytes:
        """Take chunks until an empty one; return where its sender wants the outcome. Raises UploadFailedError."""
        file = self._file = await run_blocking(self._new_file)
        while True:
            chunk = await self._next()
            if not chunk.payload:
                return chunk.reply
            if not self._has_room():
                raise UploadFailedError("insufficient storage resources available", chunk.reply)
            try:
                await run_blocking(partial(file.write, chunk.payload))
            except OSError as error:
                raise UploadFailedError(str(error), chunk.reply) from error
            self.bytes_received += len(chunk.payload)
            if chunk.reply:
                self._outbox.send(chunk.reply)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield what was received, from its beginning; others have their turn in between."""
        file = self._file
        assert file is not None, "receive() comes first"
        await run_blocking(partial(file.seek, 0))
        while piece := await run_blocking(partial(file.read, READ_BYTES)):
            yield piece

    def close(self) -> None:
        """Stop listening and forget the file; harmless when it has been done."""
        if self._sink is not None:
            self._outbox.remove_sink(self._sink)
            self._sink = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _new_file(self) -> IO[bytes]:
        return TemporaryFile(dir=self._directory)

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
        for chunk in captured_in(batch):
            self._queued_bytes += len(chunk.payload)
            if self._queued_bytes > QUEUE_BYTES_MAX:
                self._overrun = True
                self._chunks.clear()
                break
            self._chunks.append(chunk)
        self._woken.set()
