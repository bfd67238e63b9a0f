"""A plain request-reply client, for tests that ask the real nats-server the same as they ask us."""

import json
import socket
from typing import Any

ANSWER_TIMEOUT_S = 5.0
INBOX = b"_INBOX.parity"
TRIES = 3
STORE_NOT_MADE = 10049


class Reference:
    """A plain request-reply client of one server; every answer is the next message on the inbox."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self._buffer = b""
        self._line()
        self._socket.sendall(b'CONNECT {"headers":true,"no_responders":true}\r\nSUB %b 1\r\nPING\r\n' % INBOX)
        while self._line() != b"PONG":
            pass

    def close(self) -> None:
        self._socket.close()

    def ask(self, subject: str, body: bytes | dict[str, Any] = b"") -> bytes:
        """The body of the answer to one request."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        name = subject.encode()
        self._socket.sendall(b"PUB %b %b %d\r\n%b\r\n" % (name, INBOX, len(payload), payload))
        while True:
            words = self._line().split()
            if words[0] == b"PING":
                self._socket.sendall(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                return self._take(int(words[-1]))
            else:
                assert words[0] in (b"PONG", b"INFO", b"+OK"), words

    def api(self, subject: str, body: bytes | dict[str, Any] = b"") -> dict[str, Any]:
        """The JSON of an answer of the JetStream API; `subject` stands after `$JS.API.`.

        Once in some thousands of creations nats-server says that it could not make the store, of which no request is
        the reason: it is asked again.
        """
        answer: dict[str, Any] = {}
        for _ in range(TRIES):
            answer = json.loads(self.ask(f"$JS.API.{subject}", body))
            if answer.get("error", {}).get("err_code") != STORE_NOT_MADE:
                break
        return answer

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._receive()
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size + 2:
            self._receive()
        data, self._buffer = self._buffer[:size], self._buffer[size + 2 :]
        return data

    def _receive(self) -> None:
        data = self._socket.recv(1 << 16)
        assert data, "the reference server closed the connection"
        self._buffer += data
