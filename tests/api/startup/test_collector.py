"""How often Python's garbage collector looks at what a start makes."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from jetraft.api.startup.collector import GC_YOUNG_OBJECTS, keep_survivors, spare_imports, tune_collector


class Ring:
    """It refers to itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.ring = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as tests/conftest.py does


def test_a_start_looks_at_each_object_once() -> None:
    spare_imports()
    before = gc.get_freeze_count()
    kept = [Ring() for _ in range(1000)]
    gc.collect(0)
    assert gc.get_freeze_count() >= before + len(kept)
    tune_collector()


def test_what_dies_young_is_freed_during_a_start() -> None:
    spare_imports()
    dead = weakref.ref(Ring())
    gc.collect(0)
    assert dead() is None
    tune_collector()


def test_a_server_that_is_ready_is_collected_as_usual() -> None:
    spare_imports()
    tune_collector()
    assert keep_survivors not in gc.callbacks
    assert gc.get_threshold()[0] == GC_YOUNG_OBJECTS
    later = Ring()
    gc.collect()
    assert any(known is later for known in gc.get_objects())  # not among the frozen ones, which may be fewer by now
    dead = weakref.ref(later)
    del later
    gc.collect()
    assert dead() is None
