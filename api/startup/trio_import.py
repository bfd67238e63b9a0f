"""Imports trio without the other program that it starts, and without what is needed to start it.

To name threads, trio looks for the C library's functions of threads when it is imported, with `ldconfig`, a process of
its own: 4 ms of each start. With glibc they are where they always were, so it is answered here. The module that would
look, `ctypes.util`, loads eight others, for temporary files and compression, which no other part of a start needs.
"""

import os
import sys
from types import ModuleType
from typing import Any, Final

ASKED: Final = "ctypes.util"
NAME: Final = "libpthread.so.0"  # from glibc 2.34 on it is empty, and loads the library that has them


class Finder(ModuleType):
    """The place of `ctypes.util` while trio is imported."""

    @staticmethod
    def find_library(name: str) -> str | None:
        """The file of a library; for all but one the real module says it, which is loaded then."""
        if name == "pthread":
            return NAME
        sys.modules.pop(ASKED, None)
        from ctypes.util import find_library  # noqa: PLC0415

        return find_library(name)


def import_trio() -> None:
    """Import it: later imports find it there."""
    if not is_glibc() or ASKED in sys.modules:
        return
    import ctypes  # noqa: PLC0415  as trio does next

    finder: Any = Finder(ASKED)
    sys.modules[ASKED] = ctypes.util = finder
    try:
        import trio  # noqa: F401, PLC0415  it asks while it is imported
    finally:
        if sys.modules.get(ASKED) is finder:  # who needs more of it loads it
            del sys.modules[ASKED], ctypes.util


def is_glibc() -> bool:
    """Whether the C library is that of GNU."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (OSError, ValueError):
        return False
