"""The memory budget of a process below the limit of a control group: what is left, and who gives way first.

The rest is measured, not added up: the group counts what no part of the process knows, such as the kernel's tables
for connections and what the C library keeps. The parts that hold much are registered, so that a log line can say where
it is. When it runs short they give way in the order of `Shortage`. Output that waits for clients has a part of what is
left at every moment (`for_clients_bytes`), so slow readers lose their connections before anything is refused.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Final

from jetraft.store.disk.cgroup import ROOT, MemoryGroup, memory_groups
from jetraft.store.disk.io import memory_bytes
from jetraft.store.model.clock import NS_PER_S

LOOK_NS: Final = NS_PER_S // 20  # at 1 GB/s a node with 256 MiB takes half of what makes it look more often meanwhile
NEAR_LOOK_NS: Final = NS_PER_S // 500  # and a sixteenth of its reserve; a look takes some 20 us
NEAR_RESERVES: Final = 3  # below so many it looks more often
RESERVE_SHARE: Final = 8  # of the limit: below it nothing is added to streams in memory
CLIENTS_SHARE: Final = 8  # of the limit: the most that waits for all clients together
CLIENTS_SHARE_MIN: Final = 64  # and what always may
MIB: Final = 1 << 20


class Shortage(IntEnum):
    """The consumers of memory that give way, in this order. At each step everything before it does."""

    NONE = 0
    CACHES = 1  # are emptied, and what was freed is returned to the kernel
    BATCHES = 2  # of direct gets pause, and none begins
    STREAMS = 3  # in memory take nothing more, and their logs drop what is gone
    PUBLISHES = 4  # are all refused: what is in flight needs memory too. So are new connections


THIRTY_SECONDS: Final = {  # of the limit: less is left at each step
    Shortage.CACHES: 6,
    Shortage.BATCHES: 5,
    Shortage.STREAMS: 32 // RESERVE_SHARE,
    Shortage.PUBLISHES: 2,
}


class MemoryBudget:
    """See the module. Measured every LOOK_NS when it is asked for, and every NEAR_LOOK_NS when little is left."""

    def __init__(self, groups: tuple[MemoryGroup, ...]) -> None:
        """`groups` is not empty."""
        self._groups = groups
        self.limit_bytes = min(group.limit_bytes for group in groups)
        self.reserve_bytes = self.limit_bytes // RESERVE_SHARE
        self.free_bytes = self.limit_bytes
        self._marks = [(step, self.limit_bytes * share // 32) for step, share in reversed(THIRTY_SECONDS.items())]
        self._look_again_ns: int | None = None
        self._holders: dict[str, Callable[[], int]] = {}

    @classmethod
    def of_process(cls, physical_bytes: int | None = None, root: Path = ROOT) -> "MemoryBudget | None":
        """The budget of this process; None where no group holds it below `physical_bytes`, the machine's by default."""
        physical_bytes = memory_bytes() if physical_bytes is None else physical_bytes
        groups = tuple(group for group in memory_groups(root) if group.limit_bytes < physical_bytes)
        return cls(groups) if groups else None

    def register(self, name: str, count: Callable[[], int]) -> None:
        """Let a part that holds much be named in the log; `count` returns its bytes."""
        self._holders[name] = count

    def held(self) -> Mapping[str, int]:
        """The bytes of the registered parts, by name."""
        return {name: count() for name, count in self._holders.items()}

    def shortage(self, now_ns: int) -> Shortage:
        """The ones that have to give way now. `now_ns` is monotonic."""
        self._look(now_ns)
        return next((step for step, mark in self._marks if self.free_bytes < mark), Shortage.NONE)

    def for_clients_bytes(self, waiting_bytes: int, now_ns: int) -> int:
        """The bytes that may wait for all clients, of which `waiting_bytes` do: half of what the reserve leaves."""
        self._look(now_ns)
        half = (self.free_bytes + waiting_bytes - self.reserve_bytes) // 2
        return min(max(half, self.limit_bytes // CLIENTS_SHARE_MIN), self.limit_bytes // CLIENTS_SHARE)

    def describe(self) -> str:
        """The memory that is left and where the rest is, for a log line."""
        held = ", ".join(f"{name} {count // MIB} MiB" for name, count in self.held().items())
        return (
            f"{self.free_bytes} of {self.limit_bytes} bytes are left, {self.reserve_bytes} are kept in reserve ({held})"
        )

    def _look(self, now_ns: int) -> None:
        if self._look_again_ns is None or now_ns >= self._look_again_ns:
            self.free_bytes = min(group.free_bytes() for group in self._groups)
            is_near = self.free_bytes < NEAR_RESERVES * self.reserve_bytes
            self._look_again_ns = now_ns + (NEAR_LOOK_NS if is_near else LOOK_NS)
