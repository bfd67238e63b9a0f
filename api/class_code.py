"""Keeps the byte code of generated methods between starts, as Python keeps that of modules.

attrs writes `__init__`, `__eq__`, `__hash__` and `__repr__` of a class as source text and compiles it, at each start.
For the 550 classes of a server with JetStream that is a third of all processor time until it is ready. Here the code
is looked up by a digest of its text; what is not found is compiled, and saved when the server is ready, beside the
byte code of this module (so in PYTHONPYCACHEPREFIX where it is set, and nowhere with PYTHONDONTWRITEBYTECODE). A file
that cannot be written, is cut off or is of another Python costs time only. It is believed as `.pyc` files are: who
may write there may run code.

The text of `__hash__` has a number that differs between processes, a salt by the name of the class; it is not part of
the digest, as any number will do. An attrs that compiles in another way than this module expects is left as it is.
"""

import importlib.util
import marshal
import os
import re
import sys
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import Any, Final

import attr._make

CODES_MAX: Final = 4096  # of all kinds of server that start from here; a server with everything has about 700
DIGEST_BYTES: Final = 16
HEAD: Final = importlib.util.MAGIC_NUMBER + b"jetraft classes 1\n"
SALT: Final = re.compile(r"^( +)-?\d+,$", re.MULTILINE)

Codes = dict[bytes, bytes]


class ClassCode:
    """The code that is known, and what this process added."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: Codes = read(path) if path is not None else {}
        self.used: Codes = {}
        self.compiled = 0

    @classmethod
    def install(cls) -> "ClassCode":
        """Let attrs look code up here from now on."""
        found = cls(None if sys.dont_write_bytecode else beside(__file__))
        if hasattr(attr._make, "_compile_and_eval"):
            attr._make._compile_and_eval = found.evaluate  # noqa: SLF001
        return found

    def evaluate(self, script: str, globs: Any, locs: Any = None, filename: str = "") -> None:
        """Run the code of this text, as attrs does."""
        key = digest(filename, script)
        packed = self.known.get(key)
        if packed is None:
            code = compile(script, filename, "exec")
            packed = marshal.dumps(code)
            self.compiled += 1
        else:
            code = marshal.loads(packed)  # noqa: S302  as Python does with `.pyc` files
        assert isinstance(code, CodeType)
        self.used[key] = packed
        eval(code, globs, locs)  # noqa: S307  attrs' own text

    def save(self) -> None:
        """Write what had to be compiled; it is read by the next start."""
        if not self.compiled or self.path is None:
            return
        self.compiled = 0
        merged = self.known | self.used
        self.known = merged if len(merged) <= CODES_MAX else self.used
        write(self.path, self.known)


def digest(filename: str, script: str) -> bytes:
    """What stands for a text."""
    return blake2b(f"{filename}\n{SALT.sub('', script)}".encode(), digest_size=DIGEST_BYTES).digest()


def beside(source: str) -> Path:
    """The file beside the byte code of a module."""
    return Path(importlib.util.cache_from_source(source)).with_suffix(".classes")


def read(path: Path) -> Codes:
    """The codes of a file; none when it is not there, not whole, or of another Python."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    start = len(HEAD) + DIGEST_BYTES
    if not data.startswith(HEAD) or blake2b(data[start:], digest_size=DIGEST_BYTES).digest() != data[len(HEAD) : start]:
        return {}
    found: Codes = marshal.loads(memoryview(data)[start:])  # noqa: S302  as Python does with `.pyc` files
    return found


def write(path: Path, codes: Codes) -> None:
    """Replace the file, whole or not at all; servers that start together may all do it."""
    body = marshal.dumps(codes)
    beside_it = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside_it.write_bytes(HEAD + blake2b(body, digest_size=DIGEST_BYTES).digest() + body)
        beside_it.replace(path)
    except OSError:
        with suppress(OSError):
            beside_it.unlink()
