"""How Python's garbage collector runs in a server."""

import gc
from typing import Final

GC_YOUNG_OBJECTS: Final = 10_000  # a batch makes and drops hundreds: Python's 700 means one in every second turn
GC_START_OBJECTS: Final = 10_000  # at 200,000 the server keeps 5 MB more for good


def spare_imports() -> None:
    """Look at each object of a start once: what the collector does not find dead then is not looked at again.

    Nearly everything that imports make stays. Objects that die are young: the first form of each class that gets slots.
    """
    gc.freeze()
    gc.callbacks.append(keep_survivors)
    gc.set_threshold(GC_START_OBJECTS, *gc.get_threshold()[1:])


def keep_survivors(phase: str, _what: object) -> None:
    """Exempt what a collection of a start left."""
    if phase == "stop":
        gc.freeze()


def tune_collector() -> None:
    """Exempt what exists at start from garbage collection, and collect less often.

    Modules, classes and tables live as long as the process; a full collection that visits them stops a turn for 12 ms.
    """
    if keep_survivors in gc.callbacks:
        gc.callbacks.remove(keep_survivors)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, *gc.get_threshold()[1:])
