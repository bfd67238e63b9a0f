"""A file of byte code with an index, read in parts: of classes (`class_code.py`) and of modules (`module_code.py`).

It is beside the byte code of the module that keeps it, so in PYTHONPYCACHEPREFIX where that is set, and it is believed
as `.pyc` files are: who may write there may run code. A file that is not there, is cut off, has a damaged index or is
of another Python has no codes; a code that is damaged is not there.
"""

import importlib.util
import marshal
import os
from binascii import crc32
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

HEAD: Final = importlib.util.MAGIC_NUMBER + b"jetraft code 4\n"
DIGEST_BYTES: Final = 16
LENGTH_BYTES: Final = 8
CODES_AT: Final = len(HEAD) + DIGEST_BYTES + LENGTH_BYTES

Place = tuple[int, int, int]  # where a code begins and ends in the file, and its checksum


class KeptCode:
    """The codes of a file, each read when it is asked for. `facts` are what else was written, of marshal's types."""

    def __init__(self, index: Mapping[Any, Place], facts: Any = None, descriptor: int = -1) -> None:
        self.index = index
        self.facts = facts
        self._descriptor = descriptor

    def get(self, key: Any) -> bytes | None:
        """The code under a key, unless it is damaged."""
        start, end, checksum = self.index.get(key, (0, 0, 0))
        if start == end:
            return None
        code = os.pread(self._descriptor, end - start, start)
        return code if crc32(code) == checksum else None

    def codes(self) -> dict[Any, bytes]:
        """All of them."""
        found = {key: self.get(key) for key in self.index}
        return {key: code for key, code in found.items() if code is not None}

    def close(self) -> None:
        """Let go of the file; there are no codes any more."""
        self.index = {}
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def beside(source: str, ending: str) -> Path:
    """The file with this ending beside the byte code of a module."""
    return Path(importlib.util.cache_from_source(source)).with_suffix(ending)


def read(path: Path) -> KeptCode:
    """The codes of a file; none when it is not there, its index is not whole, or it is of another Python."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return KeptCode({})
    try:
        head = os.pread(descriptor, CODES_AT, 0)
        index_at = CODES_AT + int.from_bytes(head[CODES_AT - LENGTH_BYTES :])
        index = os.pread(descriptor, max(os.fstat(descriptor).st_size - index_at, 0), index_at)
    except (OSError, OverflowError):
        head = index = b""
    stated = head[len(HEAD) : len(HEAD) + DIGEST_BYTES]
    if not head.startswith(HEAD) or blake2b(index, digest_size=DIGEST_BYTES).digest() != stated:
        os.close(descriptor)
        return KeptCode({})
    places, facts = marshal.loads(index)  # noqa: S302  as Python does with `.pyc` files
    return KeptCode(places, facts, descriptor)


def write(path: Path, codes: Mapping[Any, bytes], facts: Any = None) -> None:
    """Replace the file, whole or not at all; servers that start together may all do it."""
    index: dict[Any, Place] = {}
    at = CODES_AT
    for key, code in codes.items():
        index[key] = at, at + len(code), crc32(code)
        at += len(code)
    table = marshal.dumps((index, facts))
    length = sum(map(len, codes.values())).to_bytes(LENGTH_BYTES)
    parts = [HEAD, blake2b(table, digest_size=DIGEST_BYTES).digest(), length, *codes.values(), table]
    beside_it = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside_it.write_bytes(b"".join(parts))
        beside_it.replace(path)
    except OSError:
        with suppress(OSError):
            beside_it.unlink()
