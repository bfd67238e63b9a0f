"""Protobuf: a payload is one message of a type in a FileDescriptorSet (`protoc --include_imports -o`), in base64.

protobuf reads the descriptors. The bytes are walked here, not decoded: that names the field that does not fit, and ends
after a number of steps. A field that the type does not have is refused, which readers of Protobuf would pass over:
nearly any bytes are a message of unknown fields. Source: "Encoding" of protobuf.dev; what fits is what protobuf parses.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from jetraft.store.model.schemas.faults import at
from jetraft.store.model.schemas.rules import BadSchemaError
from jetraft.store.model.schemas.walking import Cursor, Misfit

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

VARINT, FIXED64, SIZED, GROUP, GROUP_END, FIXED32 = range(6)  # wire types
NUMBER_BITS: Final = 64
WIDTHS: Final = {FIXED64: 8, FIXED32: 4}
PACKED_VARINTS: Final = re.compile(rb"(?:[\x80-\xff]{0,9}[\x00-\x7f])*", re.DOTALL)

_Type = FieldDescriptor
WIRES: Final = {
    **dict.fromkeys((_Type.TYPE_DOUBLE, _Type.TYPE_FIXED64, _Type.TYPE_SFIXED64), FIXED64),
    **dict.fromkeys((_Type.TYPE_FLOAT, _Type.TYPE_FIXED32, _Type.TYPE_SFIXED32), FIXED32),
    **dict.fromkeys((_Type.TYPE_STRING, _Type.TYPE_BYTES, _Type.TYPE_MESSAGE), SIZED),
    _Type.TYPE_GROUP: GROUP,
}
NAMES: Final = {
    getattr(_Type, name): name.removeprefix("TYPE_").lower() for name in dir(_Type) if name.startswith("TYPE_")
}


@attrs.frozen(slots=True)
class ProtobufJudge:
    """One message type."""

    _table: _Table

    @classmethod
    def of(cls, text: str, message: str) -> Self:
        """Compile. Raises BadSchemaError."""
        try:
            described = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise BadSchemaError("not base64") from error
        except DecodeError as error:
            raise BadSchemaError("not a FileDescriptorSet") from error
        pool = descriptor_pool.DescriptorPool()
        try:
            for one in described.file:
                pool.Add(one)
            found: Descriptor = pool.FindMessageTypeByName(message)
        except (TypeError, ValueError) as error:
            raise BadSchemaError(f"not a FileDescriptorSet with all imports: {error}") from error
        except KeyError as error:
            raise BadSchemaError(f"has no message {message}") from error
        return cls(_Tables(pool).of(found))

    def fault(self, payload: bytes) -> str:
        """See `compiled.PayloadJudge`."""
        try:
            _message(self._table, Cursor(payload))
        except Misfit as misfit:
            return at(misfit.pointer, misfit.expected)
        return ""


@attrs.define(slots=True, eq=False)
class _Table:
    """The fields of a message type, by number."""

    fields: dict[int, _Field] = attrs.Factory(dict)
    required: dict[int, str] = attrs.Factory(dict)


@attrs.frozen(slots=True, eq=False)
class _Field:
    name: str
    expected: str
    wire: int
    is_repeated: bool
    is_text: bool = False
    inner: _Table | None = None
    symbols: frozenset[int] | None = None  # of an enum that has no others


class _Tables:
    """Makes a table for each message type, once: types may contain themselves."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._made: dict[str, _Table] = {}

    def of(self, described: Any) -> _Table:
        """The table of a message type."""
        table = self._made.get(described.full_name)
        if table is None:
            table = self._made[described.full_name] = _Table()
            for field in (*described.fields, *self._pool.FindAllExtensions(described)):
                table.fields[field.number] = self._field(field)
                if field.is_required:
                    table.required[field.number] = field.name
        return table

    def _field(self, field: Any) -> _Field:
        enum = field.enum_type
        return _Field(
            name=field.name,
            expected=NAMES[field.type],
            wire=WIRES.get(field.type, VARINT),
            is_repeated=field.is_repeated,
            is_text=field.type == _Type.TYPE_STRING,
            inner=self.of(field.message_type) if field.message_type is not None else None,
            symbols=frozenset(enum.values_by_number) if enum is not None and enum.is_closed else None,
        )


def _message(table: _Table, cursor: Cursor, *, group: int = 0) -> None:
    """The fields up to the end, or to the end of the group of this number."""
    seen: dict[int, int] = {}
    with cursor.inside:
        while cursor.pos < cursor.end:
            key = _varint(cursor, "a field")
            number, wire = key >> 3, key & 7
            if wire == GROUP_END and group and number == group:
                break
            field = table.fields.get(number)
            if field is None:
                raise Misfit(f"field {number} is not in the schema")
            place = seen[number] = seen.get(number, -1) + 1
            try:
                _value(field, number, wire, cursor)
            except Misfit as misfit:
                if field.is_repeated:
                    misfit.within(place)
                misfit.within(field.name)
                raise
        else:
            if group:
                raise Misfit("expected the end of a group, the payload ends")
    for number, name in table.required.items():
        if number not in seen:
            missing = Misfit("missing")
            missing.within(name)
            raise missing


def _value(field: _Field, number: int, wire: int, cursor: Cursor) -> None:
    cursor.step()
    if wire != field.wire:
        if wire != SIZED or not field.is_repeated or field.wire in (SIZED, GROUP):
            raise Misfit(f"expected {field.expected}")
        _packed(field, cursor)
    elif wire == VARINT:
        _one_varint(field, cursor)
    elif wire in WIDTHS:
        cursor.skip(WIDTHS[wire], field.expected)
    elif wire == GROUP:
        assert field.inner is not None, "groups are messages"
        _message(field.inner, cursor, group=number)
    elif field.inner is not None:
        end = _end_of(field, cursor)
        cursor.end, end = end, cursor.end
        _message(field.inner, cursor)
        cursor.end = end
    elif field.is_text:
        cursor.text(_varint(cursor, field.expected))
    else:
        cursor.skip(_varint(cursor, field.expected), field.expected)


def _packed(field: _Field, cursor: Cursor) -> None:
    """Numbers of a repeated field, back to back."""
    end = _end_of(field, cursor)
    if field.wire in WIDTHS:
        if (end - cursor.pos) % WIDTHS[field.wire]:
            raise Misfit(f"expected {field.expected}")
        cursor.pos = end
    elif field.symbols is None:
        if not PACKED_VARINTS.fullmatch(cursor.data, cursor.pos, end):
            raise Misfit(f"expected {field.expected}")
        cursor.pos = end
    else:
        while cursor.pos < end:
            cursor.step()
            _one_varint(field, cursor)
        if cursor.pos != end:
            raise Misfit(f"expected {field.expected}")


def _one_varint(field: _Field, cursor: Cursor) -> None:
    found = _varint(cursor, field.expected)
    if field.symbols is not None:
        number = (found & 0xFFFF_FFFF) - ((found & 0x8000_0000) << 1)
        if number not in field.symbols:
            raise Misfit(f"expected one of {len(field.symbols)} values of the enum")


def _end_of(field: _Field, cursor: Cursor) -> int:
    size = _varint(cursor, field.expected)
    if size > cursor.end - cursor.pos:
        raise Misfit(f"expected {field.expected}, the payload ends")
    return cursor.pos + size


def _varint(cursor: Cursor, expected: str) -> int:
    found = cursor.varint(expected)
    if found >> NUMBER_BITS:
        raise Misfit(f"expected {expected}")
    return found
