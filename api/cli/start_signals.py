"""Signals while a server starts: it ends at once, with status 0 as nats-server does.

Until `Server` waits for signals itself there is nothing to take leave of: no client was greeted, and what is being
opened or recovered on disk survives a power cut at any moment. When it has been told to end, a second signal ends it at
once.
"""

import os
import signal
from types import FrameType


def end_at_once() -> None:
    """From now on SIGINT and SIGTERM end the process, without an exception in whatever is running."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(0)  # not `exit`: an exception in the middle of an import or of a turn is what this is here to avoid
