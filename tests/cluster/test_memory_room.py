"""When memory is short the cache is emptied and logs in memory are trimmed; otherwise nothing is touched."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from jetraft.cluster.memory_room import MemoryKeeper
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.cgroup import LOOK_NS, MemoryGroup, MemoryWatch

if TYPE_CHECKING:
    from jetraft.raft.group import Group
    from jetraft.store.model.clock import Clock

MIB = 1 << 20


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


def test_what_can_be_given_back_is_while_memory_is_short(tmp_path: Path) -> None:
    (tmp_path / "memory.stat").write_text("inactive_file 0\nactive_file 0\n")
    used = tmp_path / "memory.current"
    used.write_text(str(MIB))
    watched, cache = Watched(), BlockCache()
    keeper = MemoryKeeper(
        clock=cast("Clock", watched),
        memory=MemoryWatch((MemoryGroup(directory=tmp_path, kind="cgroup2", limit_bytes=256 * MIB),)),
        cache=cache,
        groups_in_memory=lambda: [cast("Group", watched)],
    )
    cache.put((cache.register_log(), 0, 0), b"frame")
    keeper.look()
    assert (cache.statistics().frames, watched.asked) == (1, [])
    used.write_text(str(250 * MIB))
    keeper.look()
    assert (cache.statistics().frames, watched.asked) == (0, [True])
    used.write_text(str(MIB))
    keeper.look()
    assert watched.asked == [True]
