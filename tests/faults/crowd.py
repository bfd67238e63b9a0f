"""Clients that take a server's memory: idle ones, readers of all subjects and askers for batches that read nothing.

`python -m tests.faults.crowd PORT STREAM IDLE READERS ASKERS` is the crowd of one server on loopback until its input
ends. Each kind has a thread. Idle ones come once and stay; half of the others are replaced every CHURN_S, as clients
that lose their connections come back.
"""

import argparse
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import HOST

HELLO: Final = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nPING\r\n'
BATCH: Final = b'{"seq":1,"batch":1000}'
GETS_OF_ONE: Final = 250  # a server admits 256 of one connection
AT_ONCE: Final = 50  # connections are begun between two looks at the time
CHURN_S: Final = 0.3
RETRY_S: Final = 0.05
RECEIVE_BYTES: Final = 4096  # of the client's socket: what a server sends waits in the server
CONNECT_S: Final = 20.0
SPARE_FILES: Final = 1000

Address = tuple[str, int]


def files_max() -> int:
    """How many connections a process may have, this one or a server; raises the soft limit to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - SPARE_FILES


def reader(_number: int) -> bytes:
    """Subscribes to everything."""
    return HELLO + b"SUB > 1\r\n"


def asker(stream: str) -> Callable[[int], bytes]:
    """Asks for GETS_OF_ONE batches of a stream."""

    def hello(number: int) -> bytes:
        inbox = b"_INBOX.crowd%d" % number
        ask = b"PUB $JS.API.DIRECT.GET.%s %s.%d %d\r\n%s\r\n"
        asked = [ask % (stream.encode(), inbox, count, len(BATCH), BATCH) for count in range(GETS_OF_ONE)]
        return HELLO + b"SUB %s.> 1\r\n" % inbox + b"".join(asked)

    return hello


class Crowd:
    """`with Crowd() as crowd: crowd.join(address, 100, reader)`; at the end all connections are closed."""

    def __init__(self) -> None:
        self._over = Event()
        self._threads: list[Thread] = []
        self._idle: list[socket.socket] = []

    def join(self, address: Address, count: int, hello: Callable[[int], bytes]) -> None:
        """So many connections that say hello and read nothing, and are replaced."""
        self._start(self._churn, address, count, hello)

    def stay(self, address: Address, count: int) -> None:
        """So many idle connections."""
        self._start(self._fill, address, count)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _fill(self, address: Address, count: int) -> None:
        for _ in range(count):
            while (made := self._connect(address, HELLO)) is None:
                if self._over.wait(RETRY_S):
                    return
            self._idle.append(made)

    def _churn(self, address: Address, count: int, hello: Callable[[int], bytes]) -> None:
        held: list[socket.socket] = []
        number = 0
        while not self._over.wait(RETRY_S if len(held) < count else CHURN_S):
            if len(held) >= count:
                half = count // 2 + 1
                for sock in held[:half]:
                    sock.close()
                del held[:half]
            for _ in range(min(AT_ONCE, count - len(held))):
                number += 1
                if (made := self._connect(address, hello(number))) is not None:
                    held.append(made)
        for sock in held:
            sock.close()

    @staticmethod
    def _connect(address: Address, hello: bytes) -> socket.socket | None:
        """None when the server does not take it now."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        sock.settimeout(CONNECT_S)
        try:
            sock.connect(address)
            sock.sendall(hello)
        except OSError:
            sock.close()
            return None
        return sock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for sock in self._idle:
            sock.close()


class CrowdProcess:
    """`with CrowdProcess(port, ...)`: a crowd in a process of its own, which has descriptors of its own."""

    def __init__(self, port: int, *, stream: str = "-", idle: int = 0, readers: int = 0, askers: int = 0) -> None:
        words = [sys.executable, "-m", "tests.faults.crowd", str(port), stream, str(idle), str(readers), str(askers)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("stream")
    for kind in ("idle", "readers", "askers"):
        parser.add_argument(kind, type=int)
    asked = parser.parse_args()
    address = (HOST, asked.port)
    files_max()
    with Crowd() as crowd:
        if asked.readers:
            crowd.join(address, asked.readers, reader)
        if asked.askers:
            crowd.join(address, asked.askers, asker(asked.stream))
        crowd.stay(address, asked.idle)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
