"""JSON as Go reads it: duplicate keys and number texts kept, several values in a row, faults in Go's words.

The fast path is the standard library's C scanner. Only when that fails do we walk the text ourselves, to say what Go
would have said and at which offset. Both are bounded: `BODY_BYTES_MAX` and `DEPTH_MAX` (the depth is Go's own).
"""

import json
import re
from typing import Final

BODY_BYTES_MAX: Final = 1 << 20  # nats-server's default max_payload: a request of the API is never larger
DEPTH_MAX: Final = 10_000  # encoding/json, maxNestingDepth
_EXPLAINED_BYTES_MAX: Final = 64 << 10  # beyond this a broken body gets a short answer instead of an exact one

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_ESCAPES: Final = frozenset('"\\/bfnrt')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DIGITS: Final = frozenset("0123456789")


class Number(str):
    """The text of a number, kept because Go tells 1000 from 1e3."""

    __slots__ = ()


class Object(list[tuple[str, object]]):
    """The pairs of an object in the order of the text, duplicates included."""

    __slots__ = ()


class JsonSyntaxError(ValueError):
    """A text that is not JSON, in Go's words, with ` at offset N` where nats-server adds it."""


def parse_values(body: bytes) -> list[object]:
    """Every value of a body, one after the other (Go's decoder reads until the end); raises JsonSyntaxError.

    Objects come as `Object`, arrays as `list`, numbers as `Number`, the rest as Python values. Invalid UTF-8 becomes
    U+FFFD as in Go. An empty body has no values.
    """
    if len(body) > BODY_BYTES_MAX:
        raise JsonSyntaxError("request body too large")
    text = body.decode("utf-8", errors="replace")
    values: list[object] = []
    position = _skip_space(text, 0)
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            raise JsonSyntaxError(_explain(text, position)) from None
        values.append(_without_surrogates(value) if "\\u" in text else value)
        position = _skip_space(text, position)
    return values


def kind_name(value: object) -> str:
    """Go's word for the kind of a JSON value in its error texts."""
    if isinstance(value, Number):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    return "object" if isinstance(value, Object) else "array"


def quote(value: object) -> str:
    """The JSON text of a value, for error texts."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Object):
        return "{" + ",".join(f"{quote(key)}:{quote(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(quote(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _reject_constant(_name: str) -> object:
    raise ValueError


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=_reject_constant
)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _without_surrogates(value: object) -> object:
    """Halves of surrogate pairs, which JSON can write and UTF-8 cannot, become U+FFFD as in Go."""
    if isinstance(value, Number):
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Object):
        return Object((str(_without_surrogates(key)), _without_surrogates(item)) for key, item in value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value


def _explain(text: str, start: int) -> str:
    """What Go says of the first value at `start`, which the fast path refused."""
    if len(text) > _EXPLAINED_BYTES_MAX:
        return "unexpected EOF"
    return _Walker(text, start).complaint()


class _FaultError(Exception):
    """Internal: where and why the walk stopped."""

    def __init__(self, reason: str | None, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class _Walker:
    """A walk over one JSON text with an explicit stack, only to find its first fault."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.position = start

    def complaint(self) -> str:
        """Go's text for the first fault; offsets count bytes from the start of the body."""
        try:
            self._walk()
        except _FaultError as fault:
            if fault.reason is None:
                return "unexpected EOF"
            return f"{fault.reason} at offset {len(self.text[: fault.position].encode())}"
        return "unexpected EOF"

    def _walk(self) -> None:
        stack: list[str] = []
        self._value(stack)
        while stack:
            closer = stack[-1]
            char = self._next_char()
            if char == ",":
                self.position += 1
                if closer == "}":
                    self._key()
                self._value(stack)
            elif char == closer:
                self.position += 1
                stack.pop()
            else:
                place = "after object key:value pair" if closer == "}" else "after array element"
                raise self._unexpected(place)

    def _value(self, stack: list[str]) -> None:
        """Pass one scalar, or open one container; what it contains is left to the walk."""
        char = self._next_char()
        if char in "{[":
            self._open(char, stack)
        elif char == '"':
            self._string()
        elif char in "-0123456789":
            self._number()
        elif char in _LITERALS:
            self._literal(_LITERALS[char])
        else:
            raise self._unexpected("looking for beginning of value")

    def _open(self, char: str, stack: list[str]) -> None:
        self.position += 1
        if len(stack) >= DEPTH_MAX:
            raise _FaultError("exceeded max depth", self.position)
        closer = "}" if char == "{" else "]"
        if self._next_char() == closer:
            self.position += 1
            return
        stack.append(closer)
        if closer == "}":
            self._key()
        self._value(stack)

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
        self.position += 1
        if char == "u":
            for _ in range(4):
                if self._char() not in _HEX:
                    raise self._bad_escape(start)
                self.position += 1
        elif char not in _ESCAPES:
            self.position -= 1
            raise self._bad_escape(start)

    def _bad_escape(self, start: int) -> _FaultError:
        shown = self.text[start : self.position + 1]
        return _FaultError(f"invalid escape sequence `{shown}` in string", self.position + 1)

    def _number(self) -> None:
        if self._char() == "-":
            self.position += 1
        if self._char() == "0":
            self.position += 1
        else:
            self._digits("in numeric literal")
        if self.text[self.position : self.position + 1] == ".":
            self.position += 1
            self._digits("after decimal point in numeric literal")
        if self.text[self.position : self.position + 1] in ("e", "E"):
            self.position += 1
            if self._char() in "+-":
                self.position += 1
            self._digits("in exponent of numeric literal")

    def _digits(self, place: str) -> None:
        if self._char() not in _DIGITS:
            raise self._unexpected(place)
        while self.text[self.position : self.position + 1] in _DIGITS:
            self.position += 1

    def _literal(self, word: str) -> None:
        for want in word:
            if self._char() != want:
                raise self._unexpected(f"in literal {word} (expecting {_go_char(want)})")
            self.position += 1

    def _next_char(self) -> str:
        self.position = _skip_space(self.text, self.position)
        return self._char()

    def _char(self) -> str:
        if self.position >= len(self.text):
            raise _FaultError(None, self.position)
        return self.text[self.position]

    def _unexpected(self, place: str) -> _FaultError:
        return _FaultError(f"invalid character {_go_char(self._char())} {place}", self.position + 1)


def _go_char(char: str) -> str:
    """A character as Go's quoteChar writes it."""
    if char == "'":
        return r"'\''"
    if char == '"':
        return "'\"'"
    named = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\b": r"\b", "\f": r"\f", "\v": r"\v", "\a": r"\a", "\\": r"\\"}
    if char in named:
        return f"'{named[char]}'"
    if char < " " or char == "\x7f":
        return f"'\\x{ord(char):02x}'"
    return f"'{char}'"
