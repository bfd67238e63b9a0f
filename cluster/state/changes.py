"""Waiting for something about one stream to change on this node: its row, its replica, that replica's role or config.

The table, the directory of replicas and the replicas themselves say that a stream has changed; the requests that wait
for that stream check it again, and no others are woken: a list of 256 streams without leaders is 256 waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.raft.changes import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jetraft.cluster.state.assignment import StreamKey


class StreamChanges:
    """See the module."""

    def __init__(self) -> None:
        self._waiting: dict[StreamKey, tuple[Change, int]] = {}  # and how many wait

    def notify(self, key: StreamKey) -> None:
        """Something about the stream may be different now."""
        if key in self._waiting:
            self._waiting[key][0].notify()

    def notify_all(self, keys: Iterable[StreamKey]) -> None:
        """The same for several."""
        if self._waiting:
            for key in keys:
                self.notify(key)

    async def until(self, key: StreamKey, condition: Callable[[], bool]) -> None:
        """Return when the condition, which is about this stream, holds. The caller bounds the wait."""
        if condition():
            return
        change, count = self._waiting.get(key, (Change(), 0))
        self._waiting[key] = change, count + 1
        try:
            await change.until(condition)
        finally:
            change, count = self._waiting.pop(key)
            if count > 1:
                self._waiting[key] = change, count - 1
