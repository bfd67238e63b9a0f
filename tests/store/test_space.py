"""When a store stops taking messages for want of room, and when it goes on."""

from pathlib import Path

from jetraft.store.space import LOOK_NS, RESERVE_BYTES, SpaceWatch


def test_below_the_reserve_it_is_low_and_a_quarter_above_it_is_not() -> None:
    free = [1000]
    watch = SpaceWatch(lambda: free[0], 100)
    seen = []
    for step, left in enumerate([1000, 100, 99, 0, 110, 124, 125, 110, 99]):
        free[0] = left
        seen.append(watch.is_low(step * LOOK_NS))
    assert seen == [False, False, True, True, True, True, False, False, True]
    assert watch.statistics().times_low == 2


def test_it_looks_once_in_a_while() -> None:
    looks: list[int] = []

    def free() -> int:
        looks.append(1)
        return 0

    watch = SpaceWatch(free, 100)
    for now_ns in (0, 1, LOOK_NS - 1):
        assert watch.is_low(now_ns)
    assert len(looks) == 1
    watch.is_low(LOOK_NS)
    assert len(looks) == 2


def test_a_real_file_system_is_asked(tmp_path: Path) -> None:
    assert not SpaceWatch.of(tmp_path, 1).is_low(0)
    assert SpaceWatch.of(tmp_path, 1 << 60).is_low(0)
    assert RESERVE_BYTES >= 64 << 20
