"""Imports trio without the other program that it starts.

To name threads, trio looks for the C library's functions of threads when it is imported, with `ldconfig`, a process of
its own: 4 ms of each start. With glibc they are where they always were, so it is answered here.
"""

import ctypes.util
import os
from typing import Any, Final

util: Any = ctypes.util
NAME: Final = "libpthread.so.0"  # from glibc 2.34 on it is empty, and loads the library that has them


def import_trio() -> None:
    """Import it: later imports find it there."""
    if not is_glibc():
        return
    asked = util.find_library
    util.find_library = lambda name: NAME if name == "pthread" else asked(name)
    try:
        import trio  # noqa: F401, PLC0415  it asks while it is imported
    finally:
        util.find_library = asked


def is_glibc() -> bool:
    """Whether the C library is that of GNU."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (OSError, ValueError):
        return False
