"""The mapping of an attrs class to the JSON of a Go struct: for each field its kind and `omitempty`.

A wire class declares its fields in nats-server's order with `wire(kind, ...)`. From this, `decode_object` reads it with
Go's rules and error texts, and `encode_object` writes it with Go's field order and omissions. Attribute names are JSON
names unless `name` is given. Every field defaults to Go's zero value, so a missing field equals a zero one.

Decoding rules (encoding/json of the Go release that nats-server 2.15 is built with): keys match exactly, otherwise
without regard to case; the last of duplicate keys wins; null does not change a field; the first error is reported.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

import attrs

from jetraft.store.model.encoding.gojson import Number, Object, kind_name, quote
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import ZERO_TIME_NS, explain_time, format_time, parse_time

WIRE: Final = "wire"


class DecodeError(ValueError):
    """A body does not match its type. The text is Go's, without the leading `invalid JSON: `."""


class FieldKind(Protocol):
    """One Go type: how its JSON is read and written."""

    @property
    def go_type(self) -> str:
        """Go's name of the type, for error texts."""
        ...

    def decode(self, value: object, old: Any, path: tuple[str, ...]) -> Any:
        """The Python value of a decoded JSON value that is not null; raises DecodeError."""
        ...

    def encode(self, value: Any) -> object:
        """The value for the JSON encoder."""
        ...


@attrs.frozen(slots=True)
class WireField:
    """The JSON mapping of one attribute."""

    kind: FieldKind
    omitempty: bool
    embedded: bool = False  # an embedded struct in Go: its fields are in the outer object
    name: str = ""  # the JSON name, if the attribute has another one (with a unit as suffix)


def wire(
    kind: FieldKind, default: Any = None, *, omitempty: bool = False, embedded: bool = False, name: str = ""
) -> Any:
    """Declare an attribute of a wire class; `default` is Go's zero value, a callable makes a fresh one."""
    metadata = {WIRE: WireField(kind, omitempty, embedded, name)}
    if callable(default):
        return attrs.field(factory=default, metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


def mismatch(value: object, path: tuple[str, ...], go_type: str, *, literal: bool = False) -> DecodeError:
    """Go's UnmarshalTypeError; `literal` shows the text of a number that is not of this type."""
    found = kind_name(value) + (f" {value}" if literal else "")
    if len(path) == 1:
        return DecodeError(f"json: cannot unmarshal {found} into Go value of type server.{path[0]}")
    field = "" if path[-1].isdecimal() else "Go struct field "
    return DecodeError(f"json: cannot unmarshal {found} into {field}{'.'.join(path)} of type {go_type}")


@attrs.frozen(slots=True)
class Text:
    """A string."""

    go_type: str = "string"

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> str:
        """The text."""
        if not isinstance(value, str) or isinstance(value, Number):
            raise mismatch(value, path, self.go_type)
        return value

    def encode(self, value: str) -> object:
        """The text."""
        return value


@attrs.frozen(slots=True)
class Flag:
    """A bool."""

    go_type: str = "bool"

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> bool:
        """True or False."""
        if not isinstance(value, bool):
            raise mismatch(value, path, self.go_type)
        return value

    def encode(self, value: bool) -> object:  # noqa: FBT001  (the value is the argument)
        """True or False."""
        return value


@attrs.frozen(slots=True)
class Int:
    """An integer of a Go type; literals with a fraction or an exponent are refused, as in Go."""

    go_type: str
    lowest: int
    highest: int

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> int:
        """The number, checked against the type's range."""
        if not isinstance(value, Number):
            raise mismatch(value, path, self.go_type)
        digits = value.removeprefix("-")
        if not digits.isdecimal() or len(digits) > len(str(self.highest)):
            raise mismatch(value, path, self.go_type, literal=True)
        number = int(value)
        if not self.lowest <= number <= self.highest or (self.lowest == 0 and value.startswith("-")):
            raise mismatch(value, path, self.go_type, literal=True)
        return number

    def encode(self, value: int) -> object:
        """The number."""
        return value


INT: Final = Int("int", -(1 << 63), (1 << 63) - 1)
INT32: Final = Int("int32", -(1 << 31), (1 << 31) - 1)
INT64: Final = Int("int64", -(1 << 63), (1 << 63) - 1)
UINT64: Final = Int("uint64", 0, (1 << 64) - 1)
DURATION: Final = Int("time.Duration", -(1 << 63), (1 << 63) - 1)
TEXT: Final = Text()
FLAG: Final = Flag()


@attrs.frozen(slots=True)
class Choice:
    """One of the texts of an enum. The Go types have their own unmarshalers, hence their own error texts.

    These are also called for null, which they refuse. `aliases` are further texts of the zero member.
    """

    enum: type[Enum]
    complaint: Callable[[str], str]
    aliases: tuple[str, ...] = ()
    ignores_case: bool = False
    reads_text: bool = False  # first, and complains about another type as of any text
    go_type: str = "string"

    def decode(self, value: object, _old: Any, _path: tuple[str, ...]) -> Enum:
        """The member; the function of the error gets the JSON text of the value."""
        if isinstance(value, str) and not isinstance(value, Number):
            for member in self.enum:
                if member.value == (value.lower() if self.ignores_case else value):
                    return member
            if value in self.aliases:
                return next(iter(self.enum))
        elif self.reads_text and value is not None:
            raise DecodeError(f"json: cannot unmarshal {kind_name(value)} into Go value of type {self.go_type}")
        raise DecodeError(self.complaint(quote(value)))

    def encode(self, value: Enum) -> object:
        """The member's text."""
        return value.value


@attrs.frozen(slots=True)
class Time:
    """A time.Time, as nanoseconds since the Unix epoch; a pointer in Go (None = absent) where it may be missing."""

    go_type: str = "time.Time"

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> int:
        """Nanoseconds since the epoch."""
        if not isinstance(value, str) or isinstance(value, Number):
            raise mismatch(value, path, self.go_type)
        unix_ns = parse_time(value)
        if unix_ns is None:
            raise DecodeError(explain_time(value))
        return unix_ns

    def encode(self, value: int | None) -> object:
        """RFC 3339 text in UTC."""
        return None if value is None else format_time(value)


@attrs.frozen(slots=True)
class Moment:
    """A time.Time that is always written; 0 nanoseconds are Go's zero time, "never"."""

    go_type: str = "time.Time"

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> int:
        """Nanoseconds since the epoch, 0 for the zero time."""
        unix_ns = Time().decode(value, None, path)
        return 0 if unix_ns == ZERO_TIME_NS else unix_ns

    def encode(self, value: int) -> object:
        """RFC 3339 text in UTC."""
        return format_time(value or ZERO_TIME_NS)


@attrs.frozen(slots=True)
class ListOf:
    """A slice, as a tuple."""

    item: FieldKind
    go_type: str

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> tuple[Any, ...]:
        """The items; null items become the item's zero value."""
        if not isinstance(value, list) or isinstance(value, Object):
            raise mismatch(value, path, self.go_type)
        return tuple(
            zero_of(self.item) if item is None else self.item.decode(item, None, (*path, str(index)))
            for index, item in enumerate(value)
        )

    def encode(self, value: Sequence[Any]) -> object:
        """A list."""
        return [self.item.encode(item) for item in value]


@attrs.frozen(slots=True)
class TextMap:
    """A map[string]string; keys are written in sorted order, as in Go."""

    go_type: str = "map[string]string"

    def decode(self, value: object, old: Any, path: tuple[str, ...]) -> Mapping[str, str]:
        """The map; a second one under a duplicate key is merged into the first."""
        if not isinstance(value, Object):
            raise mismatch(value, path, self.go_type)
        found: dict[str, str] = dict(old or {})
        for key, item in value:
            found[key] = "" if item is None else TEXT.decode(item, None, (*path, key))
        return found

    def encode(self, value: Mapping[str, str]) -> object:
        """A dictionary with sorted keys."""
        return {key: value[key] for key in sorted(value)}


@attrs.frozen(slots=True)
class CountMap:
    """A map[string]uint64, in answers only."""

    go_type: str = "map[string]uint64"

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> Mapping[str, int]:
        """The map."""
        if not isinstance(value, Object):
            raise mismatch(value, path, self.go_type)
        return {key: UINT64.decode(item, None, (*path, key)) for key, item in value}

    def encode(self, value: Mapping[str, int]) -> object:
        """A dictionary with sorted keys."""
        return {key: value[key] for key in sorted(value)}


@attrs.frozen(slots=True)
class MapOf:
    """A map of names to values of one kind, in answers only."""

    item: Any
    go_type: str

    def decode(self, value: object, _old: Any, path: tuple[str, ...]) -> Mapping[str, Any]:
        """The map."""
        if not isinstance(value, Object):
            raise mismatch(value, path, self.go_type)
        return {key: self.item.decode(item, None, (*path, key)) for key, item in value}

    def encode(self, value: Mapping[str, Any]) -> object:
        """A dictionary with sorted keys."""
        return {key: self.item.encode(value[key]) for key in sorted(value)}


@attrs.frozen(slots=True)
class Struct:
    """An object of another wire class: a pointer in Go if the attribute's default is None, otherwise a plain struct."""

    cls: Any
    go_type: str

    def decode(self, value: object, old: Any, path: tuple[str, ...]) -> Any:
        """An instance; a second object under a duplicate key changes the first."""
        if not isinstance(value, Object):
            raise mismatch(value, path, self.go_type)
        return decode_object(self.cls, value, old=old, path=path)

    def encode(self, value: Any) -> object:
        """A dictionary."""
        return None if value is None else encode_object(value)


@attrs.frozen(slots=True)
class _Slot:
    """The target of one JSON name: an attribute of the object, or of an embedded object (`outer`)."""

    outer: str | None
    attribute: str
    kind: FieldKind
    zero: Any


@attrs.frozen(slots=True)
class _Layout:
    """The JSON mapping of a class, computed once."""

    by_name: dict[str, _Slot]
    by_folded: dict[str, str]
    encoders: tuple[tuple[str, WireField, Any], ...]  # attribute, how, Go's zero value

    def name_of(self, key: str) -> str | None:
        """The field that a key means, in whatever case; None for none."""
        return key if key in self.by_name else self.by_folded.get(_fold(key))


_LAYOUTS: Final[dict[type, _Layout]] = {}
T = TypeVar("T")


def decode_object(cls: type[T], pairs: Object, *, old: T | None = None, path: tuple[str, ...]) -> T:
    """An instance of `cls` from the pairs of a JSON object, changing `old` if there is one; raises DecodeError."""
    layout = _layout(cls)
    base: Any = cls() if old is None else old
    changes: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for key, value in pairs:
        name = layout.name_of(key)
        if name is None:
            raise DecodeError(f"json: unknown field {go_quote(key)}")
        slot = layout.by_name[name]
        target = changes if slot.outer is None else inner.setdefault(slot.outer, {})
        if value is not None or isinstance(slot.kind, Choice):
            holder = base if slot.outer is None else getattr(base, slot.outer)
            current = target.get(slot.attribute, getattr(holder, slot.attribute))
            target[slot.attribute] = slot.kind.decode(value, current, (*path, name))
        elif slot.zero in (None, (), {}):  # null empties a pointer, slice or map, and leaves other fields alone
            target[slot.attribute] = slot.zero
    for outer, values in inner.items():
        changes[outer] = attrs.evolve(getattr(base, outer), **values)
    changed: T = attrs.evolve(base, **changes)
    return changed


def known_fields(cls: type[Any], pairs: Object) -> Object:
    """The pairs of a JSON object without what `cls`, or an object in it, has no field for."""
    layout = _layout(cls)
    named = [(key, value, layout.name_of(key)) for key, value in pairs]
    return Object((key, _known(layout.by_name[name].kind, value)) for key, value, name in named if name is not None)


def _known(kind: FieldKind, value: object) -> object:
    if isinstance(kind, Struct) and isinstance(value, Object):
        return known_fields(kind.cls, value)
    if isinstance(kind, ListOf) and isinstance(value, list) and not isinstance(value, Object):
        return [_known(kind.item, one) for one in value]
    return value


def encode_object(value: object) -> dict[str, object]:
    """The JSON object of an instance: Go's order, empty fields with `omitempty` left out."""
    answer: dict[str, object] = {}
    for attribute, how, zero in _layout(type(value)).encoders:
        item = getattr(value, attribute)
        if how.embedded:
            answer.update(encode_object(item))
        elif not (how.omitempty and item == zero):
            answer[how.name or attribute] = how.kind.encode(item)
    return answer


def zero_of(kind: FieldKind) -> Any:
    """Go's zero value of an element of this kind."""
    if isinstance(kind, Text):
        return ""
    if isinstance(kind, Int):
        return 0
    return None


def _layout(cls: type) -> _Layout:
    found = _LAYOUTS.get(cls)
    if found is None:
        found = _LAYOUTS[cls] = _make_layout(cls)
    return found


def _make_layout(cls: type) -> _Layout:
    assert attrs.has(cls)
    by_name: dict[str, _Slot] = {}
    encoders = []
    for attribute in attrs.fields(cls):
        how: WireField | None = attribute.metadata.get(WIRE)
        if how is None:
            continue
        zero = getattr(cls(), attribute.name)
        encoders.append((attribute.name, how, zero))
        if not how.embedded:
            by_name[how.name or attribute.name] = _Slot(None, attribute.name, how.kind, zero)
            continue
        assert isinstance(how.kind, Struct)
        for name, slot in _layout(how.kind.cls).by_name.items():
            assert slot.outer is None
            by_name[name] = attrs.evolve(slot, outer=attribute.name)
    by_folded = {_fold(name): name for name in reversed(by_name)}
    return _Layout(by_name, by_folded, tuple(encoders))


def _fold(key: str) -> str:
    """Case folding by single characters, as Go's key match does."""
    return "".join(folded if len(folded := char.casefold()) == 1 else char for char in key)
