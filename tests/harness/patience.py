"""How long a test waits for what must come.

A bound that only a hang reaches, however slow or busy the machine: nothing about speed follows from it. A test that
waits for something *not* to come takes a time of its own, as short as it can be.
"""

import time
from collections.abc import Callable

PATIENCE_S = 60.0
POLL_S = 0.02


def until(reached: Callable[[], bool]) -> None:
    """Return when it is so. AssertionError after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(POLL_S)
