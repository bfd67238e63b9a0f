"""How messages travel and what is refused, by messages of the test's own."""

from __future__ import annotations

import enum
import tracemalloc

import attrs
import msgpack
import pytest

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import (
    PROTOCOLS,
    Message,
    flag,
    json_object,
    list_of,
    member_of,
    message_of,
    number,
    octets,
    optional,
    protocol,
    text,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@protocol("a point", bytes_max=64)
@attrs.frozen(kw_only=True, slots=True)
class Point(Message):
    x: int = attrs.field(metadata=number(-5, 5))
    y: int = attrs.field(metadata=number())


@protocol("a shape", bytes_max=4096)
@attrs.frozen(kw_only=True, slots=True)
class Shape(Message):
    name: str = attrs.field(metadata=text(8, chars_min=1))
    data: bytes = attrs.field(metadata=octets(4))
    colour: Colour = attrs.field(metadata=member_of({colour.value: colour for colour in Colour}))
    is_closed: bool = attrs.field(metadata=flag())
    points: tuple[Point, ...] | None = attrs.field(metadata=optional(list_of(message_of(Point), 3)))


@protocol("numbers in JSON", bytes_max=64, bare=True, as_json=True)
@attrs.frozen(kw_only=True, slots=True)
class Figures(Message):
    values: dict[str, object] = attrs.field(metadata=json_object())


for _own in ("Point", "Shape", "Figures"):
    del PROTOCOLS[_own]  # no protocols of the cluster

SHAPE = Shape(name="s", data=b"d", colour=Colour.BLUE, is_closed=True, points=(Point(x=-5, y=2**64 - 1),))
WIRE = ["s", b"d", "blue", True, [[-5, 2**64 - 1]]]


def test_fields_travel_in_order() -> None:
    assert SHAPE.pack() == msgpack.packb(WIRE)
    assert Shape.unpack(SHAPE.pack()) == SHAPE
    assert Figures(values={"a": [1]}).pack() == b'{"a":[1]}'
    assert Figures.unpack(b'{"a":[1]}').values == {"a": [1]}


@pytest.mark.parametrize(
    ("place", "wrong", "why"),
    [
        (0, "", "name: not a text of 1 to 8 characters"),
        (0, "123456789", "name: not a text"),
        (0, b"s", "name: not a text"),
        (1, b"12345", "data: not at most 4 bytes"),
        (1, "d", "data: not at most 4 bytes"),
        (2, "green", "colour: none of 'red', 'blue'"),
        (2, ["red"], "colour: none of"),
        (3, 1, "is_closed: neither true nor false"),
        (4, [[1, 2]] * 4, "points: not a list of at most 3"),
        (4, [[6, 0]], "points: x: not a number from -5 to 5"),
        (4, [[True, 0]], "points: x: not a number"),
        (4, [[1.0, 0]], "points: x: not a number"),
        (4, [[1]], "points: not 2 fields"),
        (4, {}, "points: not a list"),
    ],
)
def test_a_wrong_field_is_named(place: int, wrong: object, why: str) -> None:
    fields = list(WIRE)
    fields[place] = wrong
    with pytest.raises(RemoteProtocolError, match=f"^a shape: {why}"):
        Shape.unpack(msgpack.packb(fields))


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        msgpack.packb(WIRE)[:-1],
        msgpack.packb(WIRE) + b"\xc0",
        msgpack.packb(WIRE[:-1]),
        msgpack.packb({1: 2}),
        msgpack.packb(msgpack.Timestamp(1)),
        b"\xd4\xff\x00",
        b"\x91" * 2000,
        b"\x00" * 4097,
    ],
)
def test_what_is_no_array_of_the_fields_is_refused(packed: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^a shape: "):
        Shape.unpack(packed)


@pytest.mark.parametrize("packed", [b"", b"[]", b"7", b"{", b"[" * 60, b"{}" + b" " * 63])
def test_what_is_no_object_of_json_is_refused(packed: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^numbers in JSON: "):
        Figures.unpack(packed)


def test_arrays_that_announce_more_than_they_hold_cost_little() -> None:
    """Of 64 KiB with arrays of 65,536 items in each other a decoder without limits makes half a gigabyte."""
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            Shape.unpack((b"\xdd\x00\x01\x00\x00" * 1000)[: Shape.layout.bytes_max])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
