"""Modules that a server loads when it is ready, a little at a time, so that the first who needs them does not wait.

A server that has no stream does not need what streams are made of before a client creates one; who needs it before it
is all here loads the rest. A module and what it imports are loaded one by one, deepest first, and the loop runs in
between for as long as each of them took. A server without a free descriptor goes on, and tries again. What is listed
here must be imported within functions; `tests/api/cli/test_start_modules.py` counts the modules of a server that is
ready.
"""

import errno
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import trio

from jetraft.api.startup.collector import tune_collector

OF_JETSTREAM: Final = (
    "jetraft.api.jetstream.handlers.streams",
    "jetraft.cluster.streams.replica.replica",
    "jetraft.api.jetstream.handlers.consumers",
    "jetraft.api.jetstream.handlers.messages",
    "jetraft.api.jetstream.handlers.account",
    "jetraft.cluster.backup.sending",
    "jetraft.cluster.backup.reading",
    "jetraft.cluster.backup.steps",
    "jetraft.cluster.backup.upload",
)
OWN: Final = "jetraft."
RETRY_S: Final = 1.0  # until a descriptor is free: as long as streams wait for one (cluster/upkeep)
PASSING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

log = logging.getLogger(__name__)


def pieces(name: str, seen: set[str]) -> Iterator[str]:
    """The names of a module and of what it imports, each after those it needs; none that is loaded or was `seen`."""
    if name in seen or name in sys.modules:
        return
    seen.add(name)
    spec = importlib.util.find_spec(name)
    if spec is None:  # a name that looks like one of a module
        return
    get_code = getattr(spec.loader, "get_code", None)  # `importlib.abc` has its type, and loads temporary files
    if get_code is not None:
        code = get_code(name)
        for needed in code.co_names if code is not None else ():
            if needed.startswith(OWN):
                yield from pieces(needed, seen)
    yield name


async def load(names: Sequence[str]) -> None:
    """Load them all, and return."""
    seen: set[str] = set()
    for name in names:
        for piece in pieces(name, seen):
            began = time.monotonic()
            importlib.import_module(piece)
            await trio.sleep(time.monotonic() - began)


def is_passing(error: OSError | ImportError) -> bool:
    """Whether the process is short of something that may be there later; of a compiled module only the text says it."""
    if isinstance(error, OSError):
        return error.errno in PASSING
    return any(os.strerror(number) in str(error) for number in PASSING)


async def load_the_rest(at_loaded: Callable[[], None]) -> None:
    """Load what a server with JetStream may need next; what it is made of is exempt from garbage collection then.

    Raises what a module raises that is not as it was installed: the server ends.
    """
    while True:
        try:
            await load(OF_JETSTREAM)
            break
        except (OSError, ImportError) as error:
            if not is_passing(error):
                raise
            log.warning("cannot load a part of the server now: %s", error)
        await trio.sleep(RETRY_S)
    tune_collector()
    at_loaded()
