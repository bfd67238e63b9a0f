"""The plain client of raw.py inside of TLS: after INFO, or before it (`first`)."""

import json
import socket
import ssl
from typing import Any

from tests.harness.raw import REPLY_TIMEOUT_S, Line, RawClient

WISH = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}


class TlsClient(RawClient):
    """One encrypted connection."""

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext,
        *,
        first: bool = False,
        connect: bool = True,
        **wish: Any,
    ) -> None:
        plain = socket.create_connection(address, REPLY_TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.greeting = b"" if first else read_line(plain)
        self.tls = context.wrap_socket(plain, server_hostname="localhost")
        self._begin(self.tls)
        if first:
            line = self.next_event()
            assert isinstance(line, Line)
            self.greeting = line.text.encode()
        self.info = json.loads(self.greeting.removeprefix(b"INFO "))
        if connect:
            self.send(b"CONNECT " + json.dumps({**WISH, "lang": "raw", "version": "1", **wish}).encode() + b"\r\n")


def read_line(sock: socket.socket) -> bytes:
    """One line, and not a byte more."""
    line = b""
    while not line.endswith(b"\r\n"):
        byte = sock.recv(1)
        assert byte, "the server closed the connection"
        line += byte
    return line
