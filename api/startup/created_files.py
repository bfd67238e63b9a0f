"""How files of a fixed mode are made (`store/model/files/file_modes.py` has the modes)."""

import os
from collections.abc import Callable


def made_with(mode: int) -> Callable[[str, int], int]:
    """For `opener` of `open`: a file that this call makes has at most this mode. One that is there keeps its own."""

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    return opener
