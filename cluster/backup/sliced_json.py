"""JSON of a size that a client chose, read a member at a time: no step takes longer than that of one small value. Pure.

A parser that is asked for the whole keeps the interpreter until it has the whole, also in a thread. Here the text is
decoded in windows, and the C scanner of the standard library is asked for one value in a window.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW_BYTES: Final = 64 << 10  # decoded at a time
STEP_CHARS: Final = 16 << 10  # of small values, before others have a turn: about a millisecond
VALUE_CHARS_MAX: Final = 2 << 20  # of one that is read as a whole; the largest is a configuration, 1 MiB
CUT_CHARS: Final = 2  # of `1e+`, which is a number without them, and maybe another one with what comes next
DEPTH_MAX: Final = 64  # of what is passed over

_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


_DECODER: Final = json.JSONDecoder(parse_constant=_reject_constant)


class SlicedJson:
    """A place in a JSON text. Text that is not JSON raises ValueError where it is met.

    Between two of `members` or `items` the value is read or passed over.
    """

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._read = 0  # bytes of the body in the window or before it
        self._text = ""  # the window
        self._at = 0  # in the window
        self._passed = 0  # characters before the window
        self._rested = 0  # characters that were read when others had their last turn

    def is_due(self) -> bool:
        """Whether so much was read since it last said so that others should have a turn."""
        read = self._passed + self._at
        is_due = read - self._rested >= STEP_CHARS
        if is_due:
            self._rested = read
        return is_due

    def members(self) -> Iterator[str]:
        """Yield each key of the object that starts here; its value is next."""
        self._take("{")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            if self._peek() != '"':
                raise self._invalid()
            key = self.value()
            self._take(":")
            yield key
            if self._peek() == "}":
                self._at += 1
                return
            self._take(",")

    def items(self) -> Iterator[None]:
        """Stop before each item of the array that starts here."""
        self._take("[")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield
            if self._peek() == "]":
                self._at += 1
                return
            self._take(",")

    def value(self) -> Any:
        """The value that starts here, as `json.loads` has it, of VALUE_CHARS_MAX characters at most."""
        self._peek()
        wanted = WINDOW_BYTES
        while True:
            self._look_ahead(wanted)
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                raise ValueError("a value that is nested too deep") from None
            except ValueError as error:
                if self._has_all:
                    raise self._invalid() from error
            else:
                if len(self._text) - end > CUT_CHARS or self._has_all:
                    self._at = end
                    return value
            if wanted >= VALUE_CHARS_MAX:
                raise ValueError("a value that is too large")
            wanted *= 2

    def skip(self, depth: int = 0) -> Iterator[None]:
        """Pass over the value that starts here, of any size; yield where others should have a turn."""
        if depth > DEPTH_MAX:
            raise ValueError("a value that is nested too deep")
        start = self._peek()
        if start in ("{", "["):
            for _ in self.members() if start == "{" else self.items():
                yield from self.skip(depth + 1)
        else:
            self.value()
        if self.is_due():
            yield

    def finish(self) -> None:
        """Nothing but space comes any more."""
        if self._peek():
            raise self._invalid()

    @property
    def _has_all(self) -> bool:
        """Whether the window reaches the end of the text."""
        return self._read == len(self._body)

    def _peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None  # it matches nothing too
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._has_all:
                return ""
            self._look_ahead(1)

    def _take(self, char: str) -> None:
        if self._peek() != char:
            raise self._invalid()
        self._at += 1

    def _look_ahead(self, count: int) -> None:
        """Have so many characters from here on in the window, if there are as many."""
        if len(self._text) - self._at >= count or self._has_all:
            return
        texts, found = [self._text[self._at :]], len(self._text) - self._at
        while found < count and not self._has_all:
            piece = self._body[self._read : self._read + WINDOW_BYTES]
            self._read += len(piece)
            texts.append(self._decoder.decode(piece, final=self._has_all))
            found += len(texts[-1])
        self._passed += self._at
        self._text, self._at = "".join(texts), 0

    def _invalid(self) -> ValueError:
        found = self._text[self._at : self._at + 1]
        return ValueError(f"{found!r} at character {self._passed + self._at}" if found else "unexpected end of JSON")
