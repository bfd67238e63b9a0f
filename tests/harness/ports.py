"""Ports for servers under test: each test process has a band of its own, outside of what the kernel hands out.

A port that was free a moment ago may be the source port of somebody's connection a moment later, and a server that is
told to listen there ends. The kernel takes source ports, and ports for "any", from one range only; so servers are
started on ports below it. A band belongs to whoever holds the lock on its file, and is given back when that process
ends, however it ends.
"""

import fcntl
import functools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
BAND_PORTS = 128  # more than the ports of all servers that one test process has alive, running or between two starts
LOWEST_PORT = 10_000
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
HIGHEST_PORT_ELSEWHERE = 32_767  # where the kernel does not tell: the range of Linux starts here


class NoPortError(Exception):
    """Every band is taken, or nothing in this one is free."""


def free_port() -> int:
    """A port of this process's band on which nobody listens; the band goes round before it is given out again."""
    band = _band(os.getpid())
    for _ in range(BAND_PORTS):
        port = next(band)
        if _is_free(port):
            return port
    raise NoPortError(f"none of the {BAND_PORTS} ports of this process is free")


@functools.cache
def _band(_pid: int) -> Iterator[int]:
    """The ports of the band, round and round; by process id, for a fork must not share its parent's."""
    first, lock = claim(Path(tempfile.gettempdir()) / "jetraft-test-ports")

    def ports() -> Iterator[int]:
        held = lock  # open, hence locked, as long as the iterator lives
        while not held.closed:
            yield from range(first, first + BAND_PORTS)

    return ports()


def claim(directory: Path) -> tuple[int, IO[bytes]]:
    """The first port of a band that nobody else holds, and the file whose lock says so. Raises NoPortError."""
    directory.mkdir(parents=True, exist_ok=True)
    for first in range(LOWEST_PORT, _lowest_ephemeral() - BAND_PORTS, BAND_PORTS):
        lock = (directory / str(first)).open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return first, lock
    raise NoPortError(f"every band of ports is taken: {directory}")


def _lowest_ephemeral() -> int:
    try:
        return int(EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return HIGHEST_PORT_ELSEWHERE


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the servers do: a closed connection's rest counts not
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True
