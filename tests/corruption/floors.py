"""When a server has said of everything that it has written how far it is durable."""

import time
from pathlib import Path

from jetraft.store.inspection.inspect import inspect
from tests.harness.patience import PATIENCE_S

POLL_S = 0.02


def wait_for_floors(store_dir: Path) -> None:
    """Return when no log of the store, whose server runs and is left alone, reaches beyond its floor.

    What is younger is protected by nothing but the newest block itself: its loss looks like a torn tail.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not all(group.floor_index >= group.last_index for group in inspect(store_dir).groups):
        assert time.monotonic() < deadline, "the floors were never noted"
        time.sleep(POLL_S)
