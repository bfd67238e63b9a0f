"""Signals while a server starts: SIGINT and SIGTERM end it at once, with status 0 as nats-server does.

Until `Server` waits for signals itself there is nothing to stop cleanly: no client is connected, and opening and
recovering a store survive a crash at any moment. A second signal while the server stops also ends it at once.

A signal that asks a running server for something (a reload, the log file again, lame duck mode) is held back: blocked
from the first line of the program on, let through when the server is ready, and held back again when it stops. Threads
that are started meanwhile do not take these signals either.
"""

import os
import signal
from types import FrameType
from typing import Final

ASKS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # their default is to end the process


def hold_back() -> None:
    """Keep signals that ask for something until they are let through."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKS)


def let_through() -> None:
    """Get those that have come, and those to come."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKS)


def end_at_once() -> None:
    """Make SIGINT and SIGTERM end the process without an exception."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    name = signal.Signals(number).name
    os.write(2, f"jetraft: ended by {name} before it was ready, or after it was stopped\n".encode())
    os._exit(0)  # not `exit`, which raises an exception in the middle of an import or a turn
