"""What is left is measured; who gives way when it is little, and in which order."""

from pathlib import Path

import pytest

from jetraft.cluster.memory_budget import LOOK_NS, NEAR_LOOK_NS, MemoryBudget, Shortage
from jetraft.store.disk.cgroup import MemoryGroup

MIB = 1 << 20
LIMIT_MIB = 256


class Group:
    """A control group of version 2 of which a test says what is used."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "memory.stat").write_text(f"inactive_file {20 * MIB}\nactive_file {10 * MIB}\n")
        self.leave(LIMIT_MIB)
        group = MemoryGroup(directory=directory, kind="cgroup2", limit_bytes=LIMIT_MIB * MIB)
        self.budget = MemoryBudget((group,))

    def leave(self, free_mib: int) -> None:
        """So much is left, beside 30 MiB of pages of files."""
        (self.directory / "memory.current").write_text(str((LIMIT_MIB - free_mib + 30) * MIB))


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


def test_caches_give_way_first_and_publishes_last(group: Group) -> None:
    now_ns = 0
    seen: list[tuple[Shortage, int]] = []
    for free_mib in range(LIMIT_MIB, -1, -1):
        now_ns += LOOK_NS
        group.leave(free_mib)
        shortage = group.budget.shortage(now_ns)
        if not seen or seen[-1][0] is not shortage:
            seen.append((shortage, free_mib))
    assert seen == [
        (Shortage.NONE, LIMIT_MIB),
        (Shortage.CACHES, 47),
        (Shortage.BATCHES, 39),
        (Shortage.STREAMS, 31),
        (Shortage.PUBLISHES, 15),
    ]


def test_clients_may_have_half_of_what_the_reserve_leaves(group: Group) -> None:
    def allowed_mib(free_mib: int, waiting_mib: int, now_ns: int) -> float:
        group.leave(free_mib)
        return group.budget.for_clients_bytes(waiting_mib * MIB, now_ns) / MIB

    assert allowed_mib(200, 0, LOOK_NS) == 32, "an eighth of the limit at most"
    assert allowed_mib(72, 0, 2 * LOOK_NS) == 20
    assert allowed_mib(60, 12, 3 * LOOK_NS) == 20, "what they have is not lost for them"
    assert allowed_mib(40, 4, 4 * LOOK_NS) == 6
    assert allowed_mib(10, 0, 5 * LOOK_NS) == 4, "and a little always"


def test_what_is_left_is_looked_at_more_often_when_it_is_little(group: Group) -> None:
    budget = group.budget
    assert budget.shortage(0) is Shortage.NONE
    group.leave(20)
    assert budget.shortage(LOOK_NS - 1) is Shortage.NONE, "looked at just now"
    assert budget.shortage(LOOK_NS) is Shortage.STREAMS
    group.leave(8)
    assert budget.shortage(LOOK_NS + NEAR_LOOK_NS - 1) is Shortage.STREAMS
    assert budget.shortage(LOOK_NS + NEAR_LOOK_NS) is Shortage.PUBLISHES
    group.leave(200)
    assert budget.shortage(2 * LOOK_NS) is Shortage.NONE


def test_the_group_that_has_least_left_counts(tmp_path: Path) -> None:
    groups = []
    for name, limit_mib in (("inner", 160), ("outer", 256)):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "memory.current").write_text(str(150 * MIB))
        groups.append(MemoryGroup(directory=directory, kind="cgroup2", limit_bytes=limit_mib * MIB))
    budget = MemoryBudget(tuple(groups))
    assert budget.shortage(0) is Shortage.STREAMS
    assert (budget.limit_bytes, budget.free_bytes) == (160 * MIB, 10 * MIB)


def test_a_line_of_the_log_says_who_has_the_memory(group: Group) -> None:
    group.leave(30)
    group.budget.register("cache", lambda: 3 * MIB)
    group.budget.register("connections", lambda: 66 * MIB + 5)
    group.budget.shortage(0)
    assert group.budget.describe() == (
        f"{30 * MIB} of {256 * MIB} bytes are left, {32 * MIB} are kept in reserve (cache 3 MiB, connections 66 MiB)"
    )
