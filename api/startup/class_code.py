"""Keeps the byte code of generated methods between starts, as Python keeps that of modules.

attrs writes `__init__`, `__eq__`, `__hash__` and `__repr__` of a class as source text and compiles it, at each start.
For the 550 classes of a server with JetStream that was a third of all processor time until it was ready. Here the code
is looked up by what it follows from, the shape of a plain class (`class_plans.py`), and else by a digest of its text.
Code that is not found is compiled, and saved when the server is ready (`kept_code.py`). As with `.pyc` files,
PYTHONDONTWRITEBYTECODE keeps it from being written, not from being read.

The text of `__hash__` has a number that differs between processes, a salt by the name of the class; it is not part of
the digest, as any number will do. An attrs that compiles in another way than this module expects is left as it is.
"""

import marshal
import re
import sys
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import Any, Final

import attr._make
import attr._next_gen

from jetraft.api.startup.class_plans import build, fields_of, is_known, shape_of
from jetraft.api.startup.kept_code import KeptCode, beside, read, write

CODES_MAX: Final = 4096  # of all kinds of server that start from here; a server with everything has about 700
DIGEST_BYTES: Final = 16
SALT: Final = re.compile(r"^( +)-?\d+,$", re.MULTILINE)

Codes = dict[bytes, bytes]

make: Any = attr._make
next_gen: Any = attr._next_gen  # noqa: SLF001


class ClassCode:
    """The code that is known, and what this process added."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.kept: KeptCode | None = None  # None: not read, or let go
        self.used: set[bytes] = set()
        self.added: Codes = {}
        self.learning = b""  # the key of the class that attrs is building, if it is plain

    @classmethod
    def install(cls) -> "ClassCode":
        """Let attrs look code up here from now on."""
        found = cls(beside(__file__, ".classes"))
        if hasattr(make, "_compile_and_eval"):
            make._compile_and_eval = found.evaluate  # noqa: SLF001
            if is_known():
                next_gen.attrs = found.build
        return found

    def known(self, key: bytes) -> bytes | None:
        """The code under a key."""
        if self.kept is None:
            self.kept = read(self.path) if self.path is not None else KeptCode({})
        return self.kept.get(key) or self.added.get(key)

    def build(self, maybe_cls: type, **arguments: Any) -> Any:
        """The class with the methods of its decorator, from kept code where it is plain."""
        fields = fields_of(maybe_cls)
        shape = shape_of(maybe_cls, arguments, fields) if fields is not None else None
        if fields is None or shape is None:
            return make.attrs(maybe_cls, **arguments)
        key = blake2b(shape.text.encode(), digest_size=DIGEST_BYTES).digest()
        packed = self.known(key)
        if packed is not None:
            self.used.add(key)
            return build(maybe_cls, shape, fields, marshal.loads(packed))  # noqa: S302  as Python does with `.pyc` files
        self.learning = key
        try:
            return make.attrs(maybe_cls, **arguments)
        finally:
            self.learning = b""

    def evaluate(self, script: str, globs: Any, locs: Any = None, filename: str = "") -> None:
        """Run the code of this text, as attrs does."""
        key = self.learning or digest(filename, script)
        packed = self.known(key)
        if packed is None:
            code = compile(script, filename, "exec")
            self.added[key] = marshal.dumps(code)
        else:
            code = marshal.loads(packed)  # noqa: S302  as Python does with `.pyc` files
        assert isinstance(code, CodeType)
        self.used.add(key)
        eval(code, globs, locs)  # noqa: S307  attrs' own text

    def save(self) -> None:
        """Write what had to be compiled, for the next start, and let go of what is known."""
        if self.added and self.path is not None and not sys.dont_write_bytecode:
            before = read(self.path)
            codes = before.codes() | self.added
            before.close()
            if len(codes) > CODES_MAX:
                codes = {key: code for key, code in codes.items() if key in self.used}
            write(self.path, codes)
            self.added = {}
        if self.kept is not None:
            self.kept.close()
        self.kept = None


def digest(filename: str, script: str) -> bytes:
    """The symbol that stands for a text."""
    return blake2b(f"{filename}\n{SALT.sub('', script)}".encode(), digest_size=DIGEST_BYTES).digest()
