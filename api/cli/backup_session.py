"""The JetStream API as backups use it, over one connection: requests, snapshots, uploads.

Plain requests that every JetStream server answers. The connection is that of the package pyspark-jetstream, which knows
all ways to log in.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final

from jetraft.store.model.subject import valid_asset_name
from pyspark_jetstream import wire
from pyspark_jetstream.client import Connection
from pyspark_jetstream.errors import JetStreamSourceError, ServerError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from pyspark_jetstream.options import Access
    from pyspark_jetstream.transport import Transport

ANSWER_S: Final = 10.0
STALL_S: Final = 30.0  # the longest silence of a server in the middle of an archive
CHUNK_BYTES: Final = 256 << 10
UPLOADS_AT_ONCE: Final = 8  # chunks under way
PULL_WAIT_S: Final = 5
FROM_SEQ: Final = "Jetraft-From-Seq"  # nats-server passes these over, and sends everything
CUT: Final = "Jetraft-Cut"
COMPLETE: Final = 204


class BackupError(Exception):
    """A backup or a restore cannot be done; the text is one line for the user."""


def check_name(name: object) -> None:
    """Raise BackupError for what is no name of a stream: it would be another directory, or more than one request."""
    if not isinstance(name, str) or not valid_asset_name(name.encode("utf-8", "replace")):
        raise BackupError(f"{name!r} is no name of a stream")


class BackupSession:
    """See the module. Every method raises BackupError or JetStreamSourceError."""

    def __init__(self, access: Access) -> None:
        """Connect to the first server that can be reached."""
        self._access = access
        self._open = self._connect()

    def close(self) -> None:
        """End the connection."""
        self._open.close()

    @property
    def _connection(self) -> Connection:
        """One that can be used: what goes wrong in the middle of an archive closes it, and other streams follow."""
        if self._open.closed:
            self._open = self._connect()
        return self._open

    def _connect(self) -> Connection:
        failures = []
        for url in self._access.servers:
            try:
                return Connection(url, self._access)
            except ServerError as error:
                failures.append(str(error))
        raise BackupError("; ".join(failures))

    def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """The answer to a request. Raises BackupError with the server's text for an error."""
        payload = b"" if body is None else json.dumps(body).encode()
        frame = self._connection.request(f"{self._access.api_prefix}.{subject}", payload, timeout_s=ANSWER_S)
        return _object(subject, frame)

    def stream_names(self) -> list[str]:
        """The names of all streams."""
        names: list[str] = []
        while True:
            page = self.api("STREAM.NAMES", {"offset": len(names)})
            found = page.get("streams") or []
            for name in found:
                check_name(name)  # it becomes a directory
            names += found
            if not found or len(names) >= page.get("total", 0):
                return names

    def snapshot(self, stream: str, from_seq: int) -> Iterator[bytes]:
        """The archive of a stream in pieces, as of now. Messages before `from_seq` may be left out.

        A server that knows backups ends it with a cut (cluster/backup/live_cut.py).
        """
        deliver = f"{self._access.inbox_prefix}.{secrets.token_hex(11)}"
        self._connection.set_timeout(ANSWER_S)
        self._connection.send(b"SUB %b 2\r\n" % deliver.encode())
        question = json.dumps({"deliver_subject": deliver}).encode()
        subject = f"{self._access.api_prefix}.STREAM.SNAPSHOT.{stream}"

        ended: list[wire.Status] = []

        def parts(transport: Transport) -> Generator[memoryview, None, wire.Status]:
            is_answered = False
            while not (is_answered and ended):
                frame = transport.expect(b"MSG")
                if frame.subject != deliver.encode():  # nats-server may send the first pieces before it
                    _object(subject, frame)
                    is_answered = True
                    continue
                if frame.reply:
                    transport.send(b"PUB %b 0\r\n\r\n" % frame.reply)
                if not frame.payload:
                    ended.append(wire.status_of(frame.header) or wire.Status(code=COMPLETE, description="", headers={}))
                    continue
                yield memoryview(frame.payload)
            return ended[0]

        header = f"{FROM_SEQ}: {from_seq}\r\n{CUT}: 1\r\n".encode()
        for part in self._connection.answer(subject, question, parts, header, stall_s=STALL_S):
            assert isinstance(part, memoryview)
            yield bytes(part)
        self._connection.send(b"UNSUB 2\r\n")
        status = ended[0]
        if status.code != COMPLETE:
            raise BackupError(f"stream {stream}: the server ended the archive: {status.code} {status.description}")

    def pull(self, stream: str, consumer: str, count: int) -> list[wire.Frame]:
        """The next `count` messages of a consumer, as they came; fewer when there are no more for some seconds."""
        body = {"batch": count, "expires": PULL_WAIT_S * 1_000_000_000}
        found: list[wire.Frame] = []

        def parts(transport: Transport) -> Generator[memoryview, None, wire.Status]:
            while len(found) < count:
                frame = transport.expect(b"MSG")
                if not frame.reply:  # a status
                    break
                found.append(frame)
            yield memoryview(b"")
            return wire.Status(code=COMPLETE, description="", headers={})

        subject = f"{self._access.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        for _ in self._connection.answer(subject, json.dumps(body).encode(), parts, stall_s=STALL_S):
            pass
        return found

    def restore(self, name: str, request: dict[str, Any], archive: Iterable[bytes]) -> dict[str, Any]:
        """Make a stream out of an archive; returns its info."""
        deliver = str(self.api(f"STREAM.RESTORE.{name}", request)["deliver_subject"])
        waiting: list[tuple[str, bytes]] = []
        for chunk in _chunks(archive):
            waiting.append((deliver, chunk))
            if len(waiting) == UPLOADS_AT_ONCE:
                self._connection.request_many(waiting, timeout_s=STALL_S)
                waiting = []
        if waiting:
            self._connection.request_many(waiting, timeout_s=STALL_S)
        return _object(f"STREAM.RESTORE.{name}", self._connection.request(deliver, b"", timeout_s=STALL_S))


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in chunks of one size."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= CHUNK_BYTES:
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
    if buffer:
        yield bytes(buffer)


def _object(subject: str, frame: wire.Frame) -> dict[str, Any]:
    """The JSON of an answer. Raises BackupError for an error, or when no server answers."""
    status = wire.status_of(frame.header)
    if status is not None:
        raise BackupError(f"{subject}: {status.code} {status.description or 'no responders'}")
    try:
        found = json.loads(frame.payload)
    except ValueError as malformed:
        raise JetStreamSourceError(f"{subject}: the answer is no JSON: {malformed}") from malformed
    if not isinstance(found, dict):
        raise JetStreamSourceError(f"{subject}: the answer is no object")
    error = found.get("error")
    if isinstance(error, dict):
        raise BackupError(f"{subject}: {error.get('description')} ({error.get('err_code', error.get('code'))})")
    return found
