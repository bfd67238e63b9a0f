"""Log lines for syslog: of this machine, or of another over UDP, TCP or a Unix socket, as nats-server writes them.

A thread sends the lines, so a receiver that is slow or away holds nothing up. LINES_MAX wait; lines beyond are dropped
and counted. A connection that breaks is opened again for the next line.
"""

import os
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

import attrs

TAG: Final = "jetraft"
LOCAL_PATHS: Final = ("/dev/log", "/var/run/syslog", "/var/run/log")
DAEMON: Final = 3 << 3  # the facility of lines to this machine's syslog; others have 0, as with nats-server
SEVERITIES: Final = {"FTL": 2, "ERR": 3, "WRN": 4, "INF": 5, "TRC": 5, "DBG": 7}
LINES_MAX: Final = 10_000
CONNECT_S: Final = 5.0
SEND_S: Final = 5.0

Connect = Callable[[], socket.socket]


class SyslogError(Exception):
    """Syslog cannot be reached, or its address is none; the text is nats-server's."""


@attrs.define(eq=False)
class Syslog:
    """A connection to syslog; `open_syslog` makes one that works."""

    connect: Connect
    sock: socket.socket
    is_local: bool  # lines have no name of a host
    facility: int
    dropped: int = 0
    _lines: "queue.Queue[bytes | None]" = attrs.field(factory=lambda: queue.Queue(LINES_MAX), init=False)
    _thread: threading.Thread = attrs.field(init=False)
    _host: str = attrs.field(factory=socket.gethostname, init=False)

    def start(self) -> None:
        """Begin to send what is written."""
        self._thread = threading.Thread(target=self._run, name="syslog", daemon=True)
        self._thread.start()

    def write(self, label: str, text: str) -> None:
        """Send a line, or drop it when too many wait."""
        try:
            self._lines.put_nowait(self.line(label, text, datetime.now().astimezone()))
        except queue.Full:
            self.dropped += 1

    def line(self, label: str, text: str, moment: datetime) -> bytes:
        """A line as it is sent."""
        who = f"{TAG}[{os.getpid()}]"
        if self.is_local:
            head = f"{moment:%b} {moment.day:2} {moment:%H:%M:%S} {who}"
        else:
            head = f"{moment.isoformat(timespec='seconds').replace('+00:00', 'Z')} {self._host} {who}"
        return f"<{self.facility | SEVERITIES[label]}>{head}: {text}\n".encode(errors="replace")

    def close(self, within_s: float = 1.0) -> None:
        """Send what waits, for so long at most, and end."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=within_s)
        self._thread.join(within_s)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._send(line)
        self.sock.close()

    def _send(self, line: bytes) -> None:
        """Send a line, over a new connection when the old one is broken."""
        with suppress(OSError):
            self.sock.sendall(line)
            return
        self.sock.close()
        try:
            self.sock = self.connect()
            self.sock.sendall(line)
        except OSError:
            self.dropped += 1


def open_syslog(url: str) -> Syslog:
    """Connect to the syslog of this machine (empty), or to `udp://`, `tcp://` or `unix://`. Raises SyslogError."""
    if not url:
        made = Syslog(connect_here, attempt(connect_here, ""), is_local=True, facility=DAEMON)
    else:
        connect, what, is_local = target_of(url)
        made = Syslog(connect, attempt(connect, what), is_local=is_local, facility=0)
    made.start()
    return made


def target_of(url: str) -> tuple[Connect, str, bool]:
    """How to connect, what that is called in an error, and whether it is on this machine. Raises SyslogError."""
    try:
        found = urlsplit(url)
        host, port = found.hostname, found.port
    except ValueError as error:
        raise SyslogError(f"parse {url!r}: {error}") from error
    if found.scheme == "unix":
        return lambda: connected(socket.AF_UNIX, socket.SOCK_STREAM, found.path), f"dial unix {found.path}", True
    if found.scheme not in {"udp", "tcp"}:
        raise SyslogError(f'error invalid network type: "{found.scheme}"')
    if not host or port is None:
        missing = f"dial {found.scheme}: address {found.netloc}: missing port in address"
        raise SyslogError(f'error connecting to syslog: "{missing}"')
    kind = socket.SOCK_DGRAM if found.scheme == "udp" else socket.SOCK_STREAM
    return lambda: connected_to(host, port, kind), f"dial {found.scheme} {found.netloc}", False


def attempt(connect: Connect, what: str) -> socket.socket:
    """The first connection. Raises SyslogError."""
    try:
        return connect()
    except OSError as error:
        why = f"{what}: connect: {(error.strerror or str(error)).lower()}" if what else "Unix syslog delivery error"
        raise SyslogError(f'error connecting to syslog: "{why}"') from error


def connected_to(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    """A socket for an address over a network. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
    return connected(family, kind, address)


def connected(family: int, kind: int, address: object) -> socket.socket:
    """A connected socket. Raises OSError."""
    sock = socket.socket(family, kind)
    try:
        sock.settimeout(CONNECT_S)
        sock.connect(address)  # type: ignore[arg-type]
        sock.settimeout(SEND_S)
    except OSError:
        sock.close()
        raise
    return sock


def connect_here() -> socket.socket:
    """A socket for the syslog of this machine. Raises OSError."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        for path in LOCAL_PATHS:
            with suppress(OSError):
                return connected(socket.AF_UNIX, kind, path)
    raise OSError("no syslog")
