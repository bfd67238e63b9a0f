"""When memory is short the cache is emptied and logs in memory are trimmed; otherwise nothing is touched."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from jetraft.cluster.memory_budget import LOOK_NS, MemoryBudget
from jetraft.cluster.memory_room import MemoryKeeper
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.cgroup import MemoryGroup
from tests.harness.log_lines import kinds_in
from tests.harness.patience import PATIENCE_S

if TYPE_CHECKING:
    from jetraft.raft.group import Group
    from jetraft.store.model.clock import Clock

MIB = 1 << 20
BURST = """
import sys
from jetraft.cluster.memory_room import keep_little
def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
if sys.argv[1] == "limited":
    keep_little()
del [bytearray(24 << 20)][:]
before = resident_mib()
blocks = [bytearray(b"x") * (2 << 20) for _ in range(32)]
last = blocks.pop()
del blocks
print(resident_mib() - before)
"""


class Watched:
    """A group that notes how it was asked, and a clock that goes on at every look."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.now_ns = 0

    def checkpoint(self, *, replaces_older: bool = False) -> None:
        """As Group."""
        self.asked.append(replaces_older)

    def mono_ns(self) -> int:
        """As Clock."""
        self.now_ns += LOOK_NS
        return self.now_ns


def test_what_can_be_given_back_is_while_memory_is_short(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "memory.stat").write_text("inactive_file 0\nactive_file 0\n")
    used = tmp_path / "memory.current"
    used.write_text(str(MIB))
    watched, cache = Watched(), BlockCache()
    keeper = MemoryKeeper(
        clock=cast("Clock", watched),
        memory=MemoryBudget((MemoryGroup(directory=tmp_path, kind="cgroup2", limit_bytes=256 * MIB),)),
        cache=cache,
        groups_in_memory=lambda: [cast("Group", watched)],
    )
    cache.put((cache.register_log(), 0, 0), b"frame")
    keeper.look()
    assert (cache.statistics().frames, watched.asked) == (1, [])
    used.write_text(str(212 * MIB))
    keeper.look()
    assert (cache.statistics().frames, watched.asked) == (0, []), "caches give way before streams"
    used.write_text(str(250 * MIB))
    keeper.look()
    assert (cache.statistics().frames, watched.asked) == (0, [True])
    used.write_text(str(MIB))
    keeper.look()
    assert watched.asked == [True]
    assert {"memory_given_back", "memory_nearly_full", "memory_has_room"} <= kinds_in(caplog)


def kept_mib(how: str) -> int:
    """What a process keeps of 62 MiB that it has freed, behind them 2 that it has not."""
    words = [sys.executable, "-c", BURST, how]
    return int(subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout)


def test_below_a_limit_large_blocks_are_returned_when_they_are_freed() -> None:
    assert kept_mib("limited") < 8
    assert kept_mib("not limited") > 50, "or there is nothing to do"
