"""Signals while a server starts: the process exits at once, with status 0 as nats-server does.

Until `Server` waits for signals itself there is nothing to stop cleanly: no client is connected, and opening and
recovering a store survive a crash at any moment. A second signal while the server stops also ends it at once.
"""

import os
import signal
from types import FrameType


def end_at_once() -> None:
    """Make SIGINT and SIGTERM end the process without an exception."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(0)  # not `exit`, which raises an exception in the middle of an import or a turn
