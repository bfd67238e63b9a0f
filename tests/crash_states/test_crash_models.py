"""What each crash model keeps of a small tree, and that the tree that it was made of stays as it was."""

from random import Random

import pytest

from tests.crash_states.crash_models import KILL, MODELS, CrashModel, Names, crashed
from tests.doubles.lossy_tree import LossyDirectory, LossyFile

OLD, NEW = b"o" * 300, b"n" * 200
SEEDS = range(200)


def tree() -> LossyDirectory:
    """Two durable files with a write that waits at byte 100; a new file and a rename of which only processes know."""
    root, inner = LossyDirectory(), LossyDirectory()
    root.set("inner", inner)
    for directory in (root, inner):
        file = LossyFile()
        file.change(0, OLD)
        file.sync()
        file.change(100, NEW)
        directory.set("old", file)
        directory.sync()
    root.set("new", LossyFile(data=bytearray(b"x"), durable=bytearray(b"x")))
    root.rename("old", "renamed")
    return root


def contents(directory: LossyDirectory, path: str = "") -> dict[str, bytes]:
    """Files by path, as a process would see them."""
    found: dict[str, bytes] = {}
    for name, node in directory.names.items():
        if isinstance(node, LossyFile):
            found[path + name] = bytes(node.data)
        else:
            found |= contents(node, f"{path}{name}/")
    return found


def model(**fields: object) -> CrashModel:
    return CrashModel(name="of this test", **fields)  # type: ignore[arg-type]  # fields of CrashModel, by name


WRITTEN = OLD[:100] + NEW


def test_a_kill_leaves_what_processes_saw() -> None:
    before = tree()
    assert contents(crashed(before, KILL, Random(1))) == contents(before)


def test_nothing_is_left_of_what_was_not_synced() -> None:
    left = crashed(tree(), model(kept=0, names=Names.NONE), Random(1))
    assert contents(left) == {"old": OLD, "inner/old": OLD}


def test_everything_may_be_left() -> None:
    left = crashed(tree(), model(kept=1, names=Names.ALL), Random(1))
    assert contents(left) == {"renamed": WRITTEN, "inner/old": WRITTEN, "new": b"x"}


def test_names_are_lost_from_the_end_or_anywhere() -> None:
    def names(kept: Names) -> set[tuple[str, ...]]:
        return {tuple(sorted(crashed(tree(), model(names=kept), Random(seed)).names)) for seed in SEEDS}

    prefixes = {("inner", "old"), ("inner", "new", "old"), ("inner", "new", "renamed")}
    assert names(Names.PREFIX) == prefixes
    assert names(Names.SUBSET) == prefixes | {("inner", "renamed")}


@pytest.mark.parametrize("has_garbage", [False, True])
def test_a_torn_write_changes_nothing_but_its_own_bytes(*, has_garbage: bool) -> None:
    torn = model(kept=1, is_torn=True, has_garbage=has_garbage)
    seen = set()
    for seed in SEEDS:
        found = contents(crashed(tree(), torn, Random(seed)))["inner/old"]
        assert found[:100] == OLD[:100]
        assert len(found) == 300
        assert has_garbage or set(found[100:]) <= set(b"on")
        seen.add(found[100:])
    assert len(seen) > 20
    assert has_garbage == any(set(found) - set(b"on") for found in seen)


def test_the_tree_that_crashes_stays_as_it_was() -> None:
    before = tree()
    for number, one in enumerate(MODELS):
        crashed(before, one, Random(number))
    assert contents(before) == contents(tree())
    assert contents(crashed(before, model(kept=0, names=Names.NONE), Random(1))) == {"old": OLD, "inner/old": OLD}
