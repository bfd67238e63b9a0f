"""Values of a size: what a field of a wire class may be given, as long, as many or as great as n says.

From the kind of each field (store/model/encoding/fields.py) come the ways in which it grows. A new field of a request
or a configuration is in it without another line.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from jetraft.store.model.encoding.fields import WIRE, Choice, Flag, Int, ListOf, Struct, Text, TextMap, Time, WireField

Shape = Callable[[int], object]
DIGITS: Final = "@digits "  # stands for a number of so many digits, which json does not write


@attrs.frozen
class Growth:
    """One way in which one field grows. `path` leads to the field, from object to object."""

    path: tuple[str, ...]
    how: str
    value: Shape
    grows: bool = True  # False: it is the same whatever n is

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return f"{'.'.join(self.path) or 'body'} ({self.how})"

    def into(self, base: Mapping[str, Any], size: int) -> dict[str, Any]:
        """The body with the field at this size."""
        value = self.value(size)
        if not self.path:
            assert isinstance(value, dict)
            return {**base, **value}
        return merged(base, self.path, value)


def merged(base: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """The object with another value at the end of the path."""
    head, rest = path[0], path[1:]
    old = base.get(head)
    return {**base, head: merged(old if isinstance(old, dict) else {}, rest, value) if rest else value}


def dumped(body: Mapping[str, Any]) -> bytes:
    """The JSON text."""
    text = json.dumps(body, separators=(",", ":"))
    begin = text.find(f'"{DIGITS}')
    if begin < 0:
        return text.encode()
    end = text.index('"', begin + 1)
    return (text[:begin] + "1" * int(text[begin + 1 + len(DIGITS) : end]) + text[end + 1 :]).encode()


TEXTS: Final[Mapping[str, Shape]] = {
    "characters": lambda n: "x" * n,
    "tokens": lambda n: ".".join(["a"] * n),
    "wildcards": lambda n: ".".join(["*"] * n),
}
LISTS: Final[Mapping[str, Shape]] = {
    "subjects": lambda n: [f"q{at}.x" for at in range(n)],
    "patterns": lambda n: [f"*.q{at}" for at in range(n)],
    "patterns and subjects": lambda n: [f"*.q{at}" if at % 2 else f"q{at}.*" for at in range(n)],
    "equal ones": lambda n: ["q.x"] * n,
}


def shapes_of(kind: Any) -> Iterator[tuple[str, Shape, bool]]:
    """(how, value of a size, whether it grows) of a kind of field that is no object."""
    if isinstance(kind, Text | Choice):
        yield from ((how, shape, True) for how, shape in TEXTS.items())
    elif isinstance(kind, Int):
        yield "value", lambda n: n, True
        yield "digits", lambda n: f"{DIGITS}{n}", True
    elif isinstance(kind, Time):
        yield "digits", lambda n: f"2026-01-01T00:00:00.{'1' * n}Z", True
    elif isinstance(kind, Flag):
        yield "true", lambda _: True, False
    elif isinstance(kind, TextMap):
        yield "keys", lambda n: {f"k{at}": f"v{at}" for at in range(n)}, True
        yield "characters of a value", lambda n: {"k": "v" * n}, True
    elif isinstance(kind, ListOf):
        yield from lists_of(kind.item)


def lists_of(item: Any) -> Iterator[tuple[str, Shape, bool]]:
    """The same of lists of such items."""
    if isinstance(item, Text):
        yield from ((how, shape, True) for how, shape in LISTS.items())
    elif isinstance(item, Struct):
        texts = [how.name or field.name for field, how in fields_of(item.cls) if isinstance(how.kind, Text)]
        for how, shape in LISTS.items():
            yield f"{how}, {texts[0]}", objects(texts[:1], shape), True
            yield f"{how}, each text", objects(texts, shape), True
        names = texts[:1]
        yield "names", lambda n: [dict.fromkeys(names, f"Q{at}") for at in range(n)], True
        others = texts[1:]
        yield (
            "one name, patterns",
            lambda n: [dict.fromkeys(names, "Q") | dict.fromkeys(others, f"*.q{at}") for at in range(n)],
            True,
        )
    else:
        yield "items", lambda n: list(range(1, n + 1)), True


def objects(names: list[str], shape: Shape) -> Shape:
    """Objects that have the items of a list, each in all of these fields."""
    return lambda n: [dict.fromkeys(names, one) for one in of(shape, n)]


def of(shape: Shape, size: int) -> list[str]:
    """The list that a shape of a list makes."""
    found = shape(size)
    assert isinstance(found, list)
    return found


def fields_of(cls: type) -> Iterator[tuple[Any, WireField]]:
    """The fields of a wire class."""
    for field in attrs.fields(cls):
        how = field.metadata.get(WIRE)
        if how is not None:
            yield field, how


def growths_of(cls: type, path: tuple[str, ...] = ()) -> Iterator[Growth]:
    """Every way in which a body of this class grows, those of the objects in it included, and all its lists at once."""
    lists: dict[str, Shape] = {}
    for field, how in fields_of(cls):
        name = how.name or field.name
        if isinstance(how.kind, Struct):
            yield from growths_of(how.kind.cls, path if how.embedded else (*path, name))
            continue
        for shape_name, value, grows in shapes_of(how.kind):
            yield Growth((*path, name), shape_name, value, grows)
            if isinstance(how.kind, ListOf | TextMap):
                lists[name] = value
    if len(lists) > 1:
        yield Growth(path, "every list", lambda n: {name: shape(n) for name, shape in lists.items()})
