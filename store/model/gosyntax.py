"""Go's error text for a text that is not JSON: the first error and its byte offset.

Used only for texts that the fast parser refused. The walk has an explicit stack, so depth costs no recursion.
Source: encoding/json (scanner.go), strconv.Quote.
"""

import re
from typing import Final

_GO_DEPTH_MAX: Final = 10_000  # encoding/json, maxNestingDepth
_EXPLAINED_BYTES_MAX: Final = 64 << 10  # a longer invalid body gets a generic error text
TOO_DEEP: Final = "exceeded max depth"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_ESCAPES: Final = frozenset('"\\/bfnrt')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DIGITS: Final = frozenset("0123456789")
_GO_NAMED: Final = {
    "\n": r"\n",
    "\t": r"\t",
    "\r": r"\r",
    "\b": r"\b",
    "\f": r"\f",
    "\v": r"\v",
    "\a": r"\a",
}


def explain_json(text: str, start: int) -> str:
    """Go's error text for the first value at `start`, which the fast path refused."""
    if len(text) > _EXPLAINED_BYTES_MAX:
        return "unexpected EOF"
    return _Walker(text, start).error_text()


class _FaultError(Exception):
    """Internal: the position and reason of the first error."""

    def __init__(self, reason: str | None, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class _Walker:
    """A walk over one JSON text with an explicit stack, to find the first error."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.position = start

    def error_text(self) -> str:
        """Go's text for the first error; offsets count bytes from the start of the body."""
        try:
            self._walk()
        except _FaultError as fault:
            if fault.reason is None:
                return "unexpected EOF"
            return f"{fault.reason} at offset {len(self.text[: fault.position].encode())}"
        return TOO_DEEP  # the text is valid otherwise

    def _walk(self) -> None:
        stack: list[str] = []
        opened = self._value(stack)
        while opened or stack:
            if opened:
                opened = self._value(stack)
                continue
            closer = stack[-1]
            char = self._next_char()
            if char == ",":
                self.position += 1
                if closer == "}":
                    self._key()
                opened = True
            elif char == closer:
                self.position += 1
                stack.pop()
            else:
                place = "after object key:value pair" if closer == "}" else "after array element"
                raise self._unexpected(place)

    def _value(self, stack: list[str]) -> bool:
        """Read a scalar, an empty container or the start of a container; True for the latter: a value must follow."""
        char = self._next_char()
        if char in "{[":
            return self._open(char, stack)
        if char == '"':
            self._string()
        elif char in "-0123456789":
            self._number()
        elif char in _LITERALS:
            self._literal(_LITERALS[char])
        else:
            raise self._unexpected("looking for beginning of value")
        return False

    def _open(self, char: str, stack: list[str]) -> bool:
        self.position += 1
        if len(stack) >= _GO_DEPTH_MAX:
            raise _FaultError(TOO_DEEP, self.position)
        closer = "}" if char == "{" else "]"
        if self._next_char() == closer:
            self.position += 1
            return False
        stack.append(closer)
        if closer == "}":
            self._key()
        return True

    def _key(self) -> None:
        char = self._next_char()
        if char != '"':
            raise self._unexpected("looking for beginning of object key string")
        self._string()
        if self._next_char() != ":":
            raise self._unexpected("after object key")
        self.position += 1

    def _string(self) -> None:
        self.position += 1
        while True:
            match = _PLAIN.match(self.text, self.position)
            assert match is not None
            self.position = match.end()
            char = self._char()
            if char == '"':
                self.position += 1
                return
            if char != "\\":
                raise self._unexpected("in string")
            self._escape()

    def _escape(self) -> None:
        start = self.position
        self.position += 1
        char = self._char()
        if char != "u":
            self.position += 1
            if char not in _ESCAPES:
                raise self._bad_escape(start)
            return
        digits = self.text[start + 2 : start + 6]
        if not _HEX.issuperset(digits):
            self.position = start + 2 + len(digits)
            raise self._bad_escape(start)
        if len(digits) < 4:  # noqa: PLR2004  (\\uXXXX)
            raise _FaultError(None, start)
        self.position = start + 6

    def _bad_escape(self, start: int) -> _FaultError:
        shown = self.text[start : self.position]
        return _FaultError(f"invalid escape sequence `{shown}` in string", self.position)

    def _number(self) -> None:
        if self._char() == "-":
            self.position += 1
        if self._char() == "0":
            self.position += 1
        else:
            self._digits()
        if self.text[self.position : self.position + 1] == ".":
            self.position += 1
            self._digits()
        if self.text[self.position : self.position + 1] in ("e", "E"):
            self.position += 1
            if self._char() in "+-":
                self.position += 1
            self._digits()

    def _digits(self) -> None:
        if self._char() not in _DIGITS:
            raise self._unexpected("in numeric literal")
        while self.text[self.position : self.position + 1] in _DIGITS:
            self.position += 1

    def _literal(self, word: str) -> None:
        for want in word:
            if self._char() != want:
                raise self._unexpected(f"in literal {word} (expecting {go_quote_char(want)})")
            self.position += 1

    def _next_char(self) -> str:
        self.position = skip_space(self.text, self.position)
        return self._char()

    def _char(self) -> str:
        if self.position >= len(self.text):
            raise _FaultError(None, self.position)
        return self.text[self.position]

    def _unexpected(self, place: str) -> _FaultError:
        return _FaultError(f"invalid character {go_quote_char(self._char())} {place}", self.position + 1)


def go_quote_char(char: str) -> str:
    """A character in single quotes, formatted like Go's %q."""
    return "'" + _go_escape(char, "'") + "'"


def _go_escape(char: str, delimiter: str) -> str:
    if char in (delimiter, "\\"):
        return "\\" + char
    if char in _GO_NAMED:
        return _GO_NAMED[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code <= 0x7F:  # noqa: PLR2004  (ASCII)
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  (the basic plane)


def go_quote(text: str) -> str:
    """The text in double quotes, formatted like Go's %q."""
    return '"' + "".join(_go_escape(char, '"') for char in text) + '"'


def skip_space(text: str, position: int) -> int:
    """The position of the first character after white space."""
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()
