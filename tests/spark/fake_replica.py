"""A replica that misbehaves on command, in front of a real server.

It answers direct gets itself, from what the real server has, and passes every other request on. So a test can put a
replica that lags, breaks off, stays silent or lies beside healthy ones, which no real server can be made to do at a
known moment.
"""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

import attrs

from pyspark_jetstream.client import Connection
from pyspark_jetstream.fetch import ACCEPT_COLUMNS
from pyspark_jetstream.options import Access
from pyspark_jetstream.wire import Rows
from tests.harness.patience import PATIENCE_S

INFO = {
    "server_id": "FAKE",
    "server_name": "fake",
    "version": "2.15.0",
    "max_payload": 1 << 20,
    "headers": True,
    "proto": 1,
}


@attrs.define(kw_only=True)
class Behaviour:
    """What is wrong with the replica."""

    applied_seq: int = 1 << 62  # rows above it are not there yet
    refuses: bool = False  # answers 412 when Jetraft-Min-Last-Seq asks for more than it has, as jetraft does
    reports: bool = False  # says in Jetraft-Last-Seq how far it is, as jetraft does
    break_after: int | None = None  # closes the connection after this many rows of an answer
    turns_away_after: int | None = None  # answers 503 after this many rows of an answer: it may not be read any more
    silent: bool = False  # takes direct gets and never answers
    mute: bool = False  # never answers any request
    reverse: bool = False  # sends rows in the wrong order
    caught_up_after: int | None = None  # has everything after this many answers
    forge: Callable[[bytearray], bytes] | None = None  # answers in columns, which this changes


class FakeReplica:
    """`with FakeReplica(server.url, applied_seq=50) as fake: ... fake.url`."""

    def __init__(self, behind: str, **behaviour: Any) -> None:
        self.behaviour = Behaviour(**behaviour)
        self.questions: list[dict[str, Any]] = []
        self.demanded: list[int] = []  # the Jetraft-Min-Last-Seq of each direct get
        self._access = Access(servers=(behind,))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connected in self._sockets:
            try:
                connected.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connected)
            thread = threading.Thread(target=self._serve, args=(connected,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connected: socket.socket) -> None:
        real = Connection(self._access.servers[0], self._access)
        try:
            with connected, connected.makefile("rb") as lines:
                connected.sendall(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
                for line in lines:
                    self._one(line.split(), lines, connected, real)
        except OSError:
            pass
        finally:
            real.close()

    def _one(self, words: list[bytes], lines: Any, connected: socket.socket, real: Connection) -> None:
        verb = words[0] if words else b""
        if verb == b"PING":
            connected.sendall(b"PONG\r\n")
        elif verb in {b"PUB", b"HPUB"}:
            body = lines.read(int(words[-1]) + 2)[:-2]
            header_bytes = int(words[-2]) if verb == b"HPUB" else 0
            subject, reply = words[1].decode(), words[2]
            if self.behaviour.mute:
                return
            if subject.startswith("$JS.API.DIRECT.GET."):
                stream = subject.removeprefix("$JS.API.DIRECT.GET.")
                question = json.loads(body[header_bytes:])
                self.questions.append(question)
                self._answer(stream, question, body[:header_bytes], reply, connected, real)
                if len(self.questions) == self.behaviour.caught_up_after:
                    self.behaviour.applied_seq = 1 << 62
            else:
                answer = real.request(subject, body[header_bytes:], timeout_s=PATIENCE_S)
                size = len(answer.header)
                connected.sendall(
                    b"HMSG %b 1 %d %d\r\n%b%b\r\n"
                    % (reply, size, size + len(answer.payload), answer.header, answer.payload)
                    if size
                    else b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(answer.payload), answer.payload)
                )

    def _answer(  # noqa: PLR0913, PLR0917  (one request, taken apart)
        self,
        stream: str,
        question: dict[str, Any],
        header: bytes,
        reply: bytes,
        connected: socket.socket,
        real: Connection,
    ) -> None:
        behaviour = self.behaviour
        if behaviour.silent:
            return
        lines = [line for line in header.split(b"\r\n") if line.startswith(b"Jetraft-Min-Last-Seq:")]
        self.demanded += [int(line.split(b":")[1]) for line in lines]
        if behaviour.refuses and lines and self.demanded[-1] > behaviour.applied_seq:
            connected.sendall(status(reply, b"412 Replica Behind", b"Jetraft-Last-Seq: %d\r\n" % behaviour.applied_seq))
            return
        if behaviour.forge is not None:
            self._answer_columns(behaviour.forge, stream, question, reply, connected, real)
            return
        rows = Rows()
        for part in real.direct_batch(stream, question, header_lines=b"", stall_s=PATIENCE_S):
            assert isinstance(part, Rows)
            rows = part
        if not rows or rows.stream_seqs[0] > behaviour.applied_seq:
            connected.sendall(status(reply, b"404 Message Not Found", b""))
            return
        visible = [row for row in zip(*rows.columns(), strict=True) if row[0] <= behaviour.applied_seq]
        pending = 0 if len(visible) < len(rows) else rows.num_pending
        frames = [
            message(reply, stream, row, pending + len(visible) - 1 - position) for position, row in enumerate(visible)
        ]
        if behaviour.reverse:
            frames.reverse()
        if behaviour.break_after is not None:
            connected.sendall(b"".join(frames[: behaviour.break_after]) + frames[behaviour.break_after][:30])
            connected.shutdown(socket.SHUT_RDWR)
            return
        if behaviour.turns_away_after is not None:
            connected.sendall(b"".join(frames[: behaviour.turns_away_after]) + status(reply, b"503", b""))
            return
        extra = b"Jetraft-Last-Seq: %d\r\n" % min(behaviour.applied_seq, 1 << 53) if behaviour.reports else b""
        end = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, visible[-1][0])
        connected.sendall(b"".join(frames) + status(reply, b"204 EOB", end + extra))

    @staticmethod
    def _answer_columns(  # noqa: PLR0913, PLR0917  (one request, taken apart)
        forge: Callable[[bytearray], bytes],
        stream: str,
        question: dict[str, Any],
        reply: bytes,
        connected: socket.socket,
        real: Connection,
    ) -> None:
        answer = real.direct_batch(stream, question, header_lines=ACCEPT_COLUMNS, stall_s=PATIENCE_S)
        while True:
            try:
                part = next(answer)
            except StopIteration as end:
                lines = b"".join(b"%b: %b\r\n" % line for line in end.value.headers.items())
                connected.sendall(status(reply, b"%d EOB" % end.value.code, lines))
                return
            assert isinstance(part, memoryview)
            payload = forge(bytearray(part))
            connected.sendall(b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(payload), payload))


def message(reply: bytes, stream: str, row: tuple[int, bytes, bytes, bytes, bytes], pending: int) -> bytes:
    """One message of a direct get answer, as nats-server writes it."""
    stream_seq, time, subject, header, payload = row
    block = b"NATS/1.0\r\n%bNats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n" % (
        header,
        stream.encode(),
        subject,
        stream_seq,
        time,
    )
    block += b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n\r\n" % (pending, stream_seq - 1)
    return b"HMSG %b 1 %d %d\r\n%b%b\r\n" % (reply, len(block), len(block) + len(payload), block, payload)


def status(reply: bytes, text: bytes, lines: bytes) -> bytes:
    """A message that is only a status."""
    block = b"NATS/1.0 %b\r\n%b\r\n" % (text, lines)
    return b"HMSG %b 1 %d %d\r\n%b\r\n" % (reply, len(block), len(block), block)
