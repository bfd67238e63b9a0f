"""The most that a server was told to hold (`max_file_store`, `max_memory_store`), and whether that is used up.

Only what is configured is enforced: without a limit a file stream may use the disk up to the reserve
(store/disk/space.py). Asked once per turn in which a stream of this node is published to. Far from the limit an answer
serves for a while; near it every question counts again, so that the limit is passed by one turn at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jetraft.store.model.config import StorageType

LOOK_NS: Final = 50 * NS_PER_MS
NEAR_BYTES: Final = 64 << 20  # more than is published to one node between two looks


class Quota:
    """See the module. `limits` may change; `held` counts the bytes of this node's replicas by kind."""

    def __init__(self, limits: Mapping[StorageType, int], held: Callable[[], Mapping[StorageType, int]]) -> None:
        self._limits = limits
        self._held = held
        self._look_again_ns = 0
        self._full: set[StorageType] = set()

    def is_full(self, kind: StorageType, now_ns: int) -> bool:
        """Whether more is held than may be; new messages must be refused then. `now_ns` is monotonic."""
        if kind not in self._limits:
            return False
        if now_ns >= self._look_again_ns:
            held = self._held()
            is_near = any(held.get(one, 0) + NEAR_BYTES >= limit for one, limit in self._limits.items())
            self._look_again_ns = now_ns if is_near else now_ns + LOOK_NS
            self._full = {one for one, limit in self._limits.items() if held.get(one, 0) > limit}
        return kind in self._full
