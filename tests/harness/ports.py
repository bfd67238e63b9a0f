"""Ports for servers under test: each test process has a band of its own, outside of what the kernel hands out.

A port that was free a moment ago may be the source port of somebody's connection a moment later, and a server that is
told to listen there ends. The kernel takes source ports, and ports for "any", from one range only; so servers are
started on ports below it, or above it where it begins too low. A machine that gives out nearly all ports leaves no such
place: there a band lies where the range of Linux usually does not. A band belongs to whoever holds the lock on its
file, and is given back when that process ends, however it ends.
"""

import fcntl
import functools
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
BAND_PORTS = 128  # more than the ports of all servers that one test process has alive, running or between two starts
LOWEST_PORT = 10_000
BANDS_MIN = 16  # fewer would not be enough for the test processes of one machine
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
HIGHEST_PORT = 65_535
USUAL_RANGE = (32_768, 60_999)  # of Linux; what is taken where the kernel does not tell
LOCKS = Path("/tmp/jetraft-test-ports")  # wherever TMPDIR is: the ports are the same


class NoPortError(Exception):
    """Every band is taken, or nothing in this one is free."""


_lock = threading.Lock()  # scenes and nodes are started by several threads of a test process


def free_port() -> int:
    """A port of this process's band on which nobody listens; the band goes round before it is given out again."""
    with _lock:
        band = _band(os.getpid())
        for _ in range(BAND_PORTS):
            port = next(band)
            if _is_free(port):
                return port
    raise NoPortError(f"none of the {BAND_PORTS} ports of this process is free")


@functools.cache
def _band(_pid: int) -> Iterator[int]:
    """The ports of the band, round and round; by process id, for a fork must not share its parent's."""
    first, held = claim(_lock_directory(LOCKS))

    def ports() -> Iterator[int]:
        while not held.closed:  # open, hence locked, as long as the iterator lives
            yield from range(first, first + BAND_PORTS)

    return ports()


def _lock_directory(shared: Path) -> Path:
    """The folder of the locks; another one when that belongs to a user who ran tests here before."""
    shared.mkdir(parents=True, exist_ok=True)
    return shared if os.access(shared, os.W_OK) else shared.with_name(f"{shared.name}-{os.getuid()}")


def claim(directory: Path) -> tuple[int, IO[bytes]]:
    """The first port of a band that nobody else holds, and the file whose lock says so. Raises NoPortError."""
    directory.mkdir(parents=True, exist_ok=True)
    for first in _bands():
        lock = (directory / str(first)).open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return first, lock
    raise NoPortError(f"every band of ports is taken: {directory}")


def _bands() -> list[int]:
    """The first ports of the bands outside of what the kernel gives out, or, if none is, of what it usually does."""
    for lowest, highest in (_ephemeral(), USUAL_RANGE):
        below = range(LOWEST_PORT, min(lowest, HIGHEST_PORT) - BAND_PORTS, BAND_PORTS)
        above = range(max(highest + 1, LOWEST_PORT), HIGHEST_PORT - BAND_PORTS, BAND_PORTS)
        if len(bands := [*below, *above]) >= BANDS_MIN:
            return bands
    raise AssertionError("unreachable: the usual range leaves room")


def _ephemeral() -> tuple[int, int]:
    try:
        lowest, highest = map(int, EPHEMERAL_RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return USUAL_RANGE
    return lowest, highest


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
