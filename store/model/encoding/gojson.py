"""A JSON parser with Go's behaviour: duplicate keys and number texts preserved, several values, Go's error texts.

The fast path is the C scanner of the standard library. If it fails, `gosyntax` walks the text to find Go's error text
and offset. Size is bounded by `BODY_BYTES_MAX` and depth by `DEPTH_MAX`, so that recursion over a parsed value cannot
exhaust the stack.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from jetraft.store.model.gosyntax import TOO_DEEP, explain_json, go_quote_char, skip_space

BODY_BYTES_MAX: Final = 1 << 20  # nats-server's default max_payload: a request of the API is never larger
DEPTH_MAX: Final = 256  # the deepest request has 5 levels; Go stops at 10,000 with the same text
VALUES_MAX: Final = 16  # in one body; clients send one
OFFSET: Final = re.compile(r" at offset \d+$")  # nats-server adds it to what its decoder says
CUT_SHORT: Final = "unexpected end of JSON input"  # json.Unmarshal's words; the decoder has others


class Number(str):
    """The text of a number, because Go distinguishes 1000 from 1e3."""

    __slots__ = ()


class Object(list[tuple[str, object]]):
    """The pairs of an object in the order of the text, duplicates included."""

    __slots__ = ()


class JsonSyntaxError(ValueError):
    """A text is not JSON. The message is Go's, with ` at offset N` where nats-server adds it."""


def parse_values(body: bytes) -> list[object]:
    """All values of a body, of `values_of`. Raises JsonSyntaxError."""
    return list(values_of(body))


def values_of(body: bytes) -> Iterator[object]:
    """The values of a body in sequence, each when the one before was taken, as by Go's decoder. Raises JsonSyntaxError.

    Objects are returned as `Object`, arrays as `list`, numbers as `Number`, the rest as Python values. Invalid UTF-8
    becomes U+FFFD, as in Go. An empty body has no values.
    """
    if len(body) > BODY_BYTES_MAX:
        raise JsonSyntaxError("request body too large")
    text = body.decode("utf-8", errors="replace")
    position, count = skip_space(text, 0), 0
    while position < len(text):
        value, position = _next_value(text, position)
        if count == VALUES_MAX:
            raise JsonSyntaxError("too many values in one request")
        count += 1
        yield value


def one_value(body: bytes) -> object:
    """The value of a body that is one value, as json.Unmarshal reads it. Raises JsonSyntaxError, without an offset."""
    if len(body) > BODY_BYTES_MAX:
        raise JsonSyntaxError("request body too large")
    text = body.decode("utf-8", errors="replace")
    try:
        value, position = _next_value(text, skip_space(text, 0))
    except JsonSyntaxError as error:
        reason = OFFSET.sub("", str(error))
        raise JsonSyntaxError(CUT_SHORT if reason == "unexpected EOF" else reason) from None
    if position < len(text):
        raise JsonSyntaxError(f"invalid character {go_quote_char(text[position])} after top-level value")
    return value


def _next_value(text: str, start: int) -> tuple[object, int]:
    """The value that starts there, and where the next one would. Raises JsonSyntaxError."""
    try:
        value, position = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise JsonSyntaxError(explain_json(text, start)) from None
    if isinstance(value, Number) and text[position : position + 1] in (".", "e", "E"):
        raise JsonSyntaxError(explain_json(text, start))  # the scanner took `1` from `1.`
    if _deeper_than(value, DEPTH_MAX):
        raise JsonSyntaxError(TOO_DEEP)
    return _without_surrogates(value) if "\\u" in text else value, skip_space(text, position)


def number(value: float) -> int | float:
    """A number as Go prints it: without a fraction where there is none."""
    return int(value) if float(value).is_integer() else value


def kind_name(value: object) -> str:
    """Go's name for the kind of a JSON value in error texts."""
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


def _without_surrogates(value: object) -> object:
    """Replace unpaired surrogates, which JSON can encode and UTF-8 cannot, by U+FFFD, as in Go."""
    if isinstance(value, Number):
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Object):
        return Object((str(_without_surrogates(key)), _without_surrogates(item)) for key, item in value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value


def _deeper_than(value: object, depth: int) -> bool:
    """Whether lists and objects are nested in more than `depth` levels."""
    level: list[object] = [value]
    while level and depth >= 0:
        level = [item for outer in level for item in _items(outer)]
        depth -= 1
    return bool(level)


def _items(value: object) -> list[object]:
    """The items of a container, [None] if it is empty, so that it counts as a level; [] for a scalar."""
    if isinstance(value, Object):
        return [item for _, item in value] or [None]
    return (value or [None]) if isinstance(value, list) else []
