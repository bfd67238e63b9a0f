"""Messages that nodes exchange in calls: frozen values that say how their fields travel, and are checked on arrival.

    @protocol("a question for the digests of an entry", bytes_max=1024)
    @attrs.frozen(kw_only=True, slots=True)
    class DigestQuestion(Message):
        group_id: str = attrs.field(metadata=text(NAME_CHARS_MAX))
        index: int = attrs.field(metadata=number())

The fields travel in order as one array of msgpack (of JSON in older protocols); a `bare` message is its only field.
`unpack` believes nothing: the size of the whole, the number of fields, their types, ranges and lengths are checked
before a value exists. A fault is a RemoteProtocolError that names the message and the field.

Memory is bounded, too: a decoder makes an array of the length that a few bytes announce, and again for each array in
it, 1024 deep. So no array may announce more items than the message may have, maps are refused where the message has
none, extensions always, and a `long_list_of` is taken apart item by item.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final, Self, TypeVar

import attrs
import msgpack
import orjson

from jetraft.raft.mesh.errors import RemoteProtocolError

NUMBER_MAX: Final = (1 << 64) - 1
NUMBER_MIN: Final = -(1 << 63)

M = TypeVar("M", bound="Message")

_TRAVELS: Final = "travels"


@attrs.frozen(slots=True)
class Travels:
    """How a field travels. `read` raises ValueError; `items_max` is of the longest array in it."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    items_max: int = 0
    pairs_max: int = 0  # of the largest map in it
    count_max: int = 0  # of a long list, which is taken apart before its items are decoded: `items_max` is theirs


Metadata = Mapping[str, Travels]


@attrs.frozen(kw_only=True, slots=True)
class Layout:
    """The description of a message class in `protocol`."""

    what: str
    bytes_max: int
    is_bare: bool
    is_json: bool
    items_max: int  # of the longest array in it
    pairs_max: int  # of the largest map in it
    fields: tuple[tuple[str, Travels], ...]


class Message:
    """The base of all messages; see the module. Subclasses are attrs classes with the decorator `protocol`."""

    __slots__ = ()

    layout: ClassVar[Layout]

    def pack(self) -> bytes:
        """The bytes in which it travels."""
        value = _write(self)
        packed: bytes = orjson.dumps(value) if self.layout.is_json else msgpack.packb(value)
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """The message of `pack`. Raises RemoteProtocolError."""
        layout = cls.layout
        if len(packed) > layout.bytes_max:
            raise RemoteProtocolError(f"{layout.what}: {len(packed)} bytes, the limit is {layout.bytes_max}")
        try:
            value = orjson.loads(packed) if layout.is_json else _unpacked(packed, layout)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise RemoteProtocolError(f"{layout.what}: not decodable: {error}") from error
        try:
            return _read(cls, value)
        except ValueError as error:
            raise RemoteProtocolError(f"{layout.what}: {error}") from error


PROTOCOLS: Final[dict[str, type[Message]]] = {}


def protocol(what: str, *, bytes_max: int, bare: bool = False, as_json: bool = False) -> Callable[[type[M]], type[M]]:
    """Register a message class. `what` names it in errors, `bytes_max` bounds what is decoded."""

    def register(cls: type[M]) -> type[M]:
        fields = tuple((field.name, field.metadata[_TRAVELS]) for field in attrs.fields(cls))  # type: ignore[arg-type]
        assert not bare or len(fields) == 1
        assert cls.__name__ not in PROTOCOLS, "the name of a message is its own"
        cls.layout = Layout(
            what=what,
            bytes_max=bytes_max,
            is_bare=bare,
            is_json=as_json,
            items_max=max(len(fields), *(travels.items_max for _, travels in fields)),
            pairs_max=max(travels.pairs_max for _, travels in fields),
            fields=fields,
        )
        PROTOCOLS[cls.__name__] = cls
        return cls

    return register


def unpack_any(packed: bytes, *kinds: type[Message]) -> Message:
    """The message of one of these kinds, which differ in what their fields can be. Raises RemoteProtocolError."""
    *others, last = kinds
    for kind in others:
        # Not this kind: the last one tells what is wrong.
        with suppress(RemoteProtocolError):
            return kind.unpack(packed)
    return last.unpack(packed)


def _unpacked(packed: bytes, layout: Layout) -> Any:
    """Strings and bytes are no longer than what is decoded."""
    limits = {"max_array_len": layout.items_max, "max_map_len": layout.pairs_max, "max_ext_len": 0}
    if not any(travels.count_max for _, travels in layout.fields):
        return msgpack.unpackb(packed, **limits)
    unpacker = msgpack.Unpacker(max_buffer_size=layout.bytes_max, **limits)
    unpacker.feed(packed)
    if unpacker.read_array_header() != len(layout.fields):
        raise ValueError(f"not {len(layout.fields)} fields")
    values = [_next_long(unpacker, travels) if travels.count_max else unpacker.unpack() for _, travels in layout.fields]
    if unpacker.tell() != len(packed):
        raise ValueError("more than a message")
    return values


def _next_long(unpacker: msgpack.Unpacker, travels: Travels) -> list[Any]:
    count = unpacker.read_array_header()
    if count > travels.count_max:
        raise ValueError(f"a list of {count}, the limit is {travels.count_max}")
    return [unpacker.unpack() for _ in range(count)]


def _write(message: Message) -> Any:
    values = [travels.write(getattr(message, name)) for name, travels in message.layout.fields]
    return values[0] if message.layout.is_bare else values


def _read(cls: type[M], value: Any) -> M:
    """Raises ValueError, which names the field."""
    fields = {}
    if cls.layout.is_bare:
        value = [value]
    if type(value) is not list or len(value) != len(cls.layout.fields):
        raise ValueError(f"not {len(cls.layout.fields)} fields")
    for (name, travels), found in zip(cls.layout.fields, value, strict=True):
        try:
            fields[name] = travels.read(found)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return cls(**fields)


# -- how fields travel


def _same(value: Any) -> Any:
    return value


def _kind(
    read: Callable[[Any], Any], write: Callable[[Any], Any] = _same, items_max: int = 0, pairs_max: int = 0
) -> Metadata:
    return {_TRAVELS: Travels(read, write, items_max, pairs_max)}


def number(low: int = 0, high: int = NUMBER_MAX) -> Metadata:
    """A whole number within bounds."""

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"not a number from {low} to {high}")
        return value

    return _kind(read)


def flag() -> Metadata:
    """True or false."""

    def read(value: Any) -> bool:
        if type(value) is not bool:
            raise ValueError("neither true nor false")
        return value

    return _kind(read)


def text(chars_max: int, *, chars_min: int = 0) -> Metadata:
    """A string."""

    def read(value: Any) -> str:
        if type(value) is not str or not chars_min <= len(value) <= chars_max:
            raise ValueError(f"not a text of {chars_min} to {chars_max} characters")
        return value

    return _kind(read)


def octets(bytes_max: int) -> Metadata:
    """Bytes."""

    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) > bytes_max:
            raise ValueError(f"not at most {bytes_max} bytes")
        return value

    return _kind(read)


def member_of(values: Mapping[Any, Any]) -> Metadata:
    """One of few values, by what stands for them on the wire."""
    written = {value: wire for wire, value in values.items()}

    def read(found: Any) -> Any:
        if type(found) not in (int, str) or found not in values:
            raise ValueError(f"none of {', '.join(map(repr, values))}")
        return values[found]

    return _kind(read, written.__getitem__)


def optional(metadata: Metadata) -> Metadata:
    """The same, or nothing."""
    inner = metadata[_TRAVELS]

    def read(value: Any) -> Any:
        return None if value is None else inner.read(value)

    def write(value: Any) -> Any:
        return None if value is None else inner.write(value)

    return _kind(read, write, inner.items_max, inner.pairs_max)


def list_of(metadata: Metadata, count_max: int) -> Metadata:
    """A tuple of at most so many."""
    inner = metadata[_TRAVELS]

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > count_max:
            raise ValueError(f"not a list of at most {count_max}")
        return tuple([inner.read(item) for item in value])

    def write(value: Any) -> list[Any]:
        return [inner.write(item) for item in value]

    return _kind(read, write, max(count_max, inner.items_max), inner.pairs_max)


def long_list_of(metadata: Metadata, count_max: int) -> Metadata:
    """A tuple of so many that no array in the message may be as long; only as a field of the message itself."""
    travels = list_of(metadata, count_max)[_TRAVELS]
    return {_TRAVELS: attrs.evolve(travels, items_max=metadata[_TRAVELS].items_max, count_max=count_max)}


def map_of(key: Metadata, value: Metadata, count_max: int) -> Metadata:
    """A dict of at most so many pairs."""
    keys, values = key[_TRAVELS], value[_TRAVELS]

    def read(found: Any) -> dict[Any, Any]:
        if type(found) is not dict or len(found) > count_max:
            raise ValueError(f"not a map of at most {count_max}")
        return {keys.read(each): values.read(item) for each, item in found.items()}

    def write(found: Any) -> dict[Any, Any]:
        return {keys.write(each): values.write(item) for each, item in found.items()}

    items_max = max(keys.items_max, values.items_max)
    return _kind(read, write, items_max, max(count_max, keys.pairs_max, values.pairs_max))


def message_of(cls: type[Message]) -> Metadata:
    """A message inside another one."""

    def read(value: Any) -> Message:
        return _read(cls, value)

    return _kind(read, _write, cls.layout.items_max, cls.layout.pairs_max)


def json_object() -> Metadata:
    """An object of JSON, whatever is in it: the next layer judges it."""

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise ValueError("not an object")
        return value

    return _kind(read)
