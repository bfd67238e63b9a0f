"""Columns of Protobuf messages: protobuf parses the payloads one by one, Arrow makes the columns.

A field without presence has its default, others are null where they are absent. Enums are the names of their values,
and the number as text where a value has no name. Fields that the message type does not have are passed over.
"""

import base64
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

from pyspark_jetstream.typed.shapes import (
    BIG,
    BYTES,
    DOUBLE,
    FLAG,
    FLOAT,
    INT,
    LONG,
    TEXT,
    Budget,
    Decoded,
    MisfitError,
    Shape,
    UnsupportedSchemaError,
    by_rows,
)

_Type = FieldDescriptor
UNSIGNED = Shape(BIG)  # of 64 bits
SCALARS = {
    _Type.TYPE_DOUBLE: DOUBLE,
    _Type.TYPE_FLOAT: FLOAT,
    _Type.TYPE_BOOL: FLAG,
    _Type.TYPE_STRING: TEXT,
    _Type.TYPE_BYTES: BYTES,
    _Type.TYPE_ENUM: TEXT,
    **dict.fromkeys((_Type.TYPE_INT32, _Type.TYPE_SINT32, _Type.TYPE_SFIXED32), INT),
    **dict.fromkeys((_Type.TYPE_INT64, _Type.TYPE_SINT64, _Type.TYPE_SFIXED64), LONG),
    **dict.fromkeys((_Type.TYPE_UINT32, _Type.TYPE_FIXED32), LONG),
    **dict.fromkeys((_Type.TYPE_UINT64, _Type.TYPE_FIXED64), UNSIGNED),
}

Reading = Callable[[Any], Any]  # of a message, or of a value


class ProtobufDecoder:
    """One message type."""

    def __init__(self, text: str, message: str) -> None:
        """Raises UnsupportedSchemaError."""
        pool = descriptor_pool.DescriptorPool()
        try:
            for one in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file:
                pool.Add(one)
            described = pool.FindMessageTypeByName(message)
        except Exception as error:  # binascii, DecodeError, TypeError and KeyError: it was checked by the server
            raise UnsupportedSchemaError(f"not a FileDescriptorSet with a message {message}: {error}") from error
        self._class = message_factory.GetMessageClass(described)
        shape, self._read = message_of(described, "", (), Budget())
        self.type = shape.type

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the messages of payloads; an empty one is a message whose fields are absent."""
        return by_rows(payloads, self.type, self._value)

    def _value(self, payload: bytes) -> Any:
        try:
            found = self._class.FromString(payload)
        except Exception as error:  # whatever a library raises about the bytes of a stranger
            raise MisfitError(f"not a message {self._class.DESCRIPTOR.full_name} ({type(error).__name__})") from error
        return self._read(found)


def message_of(described: Any, path: str, within: tuple[str, ...], budget: Budget) -> tuple[Shape, Reading]:
    """Return the shape of a message type, and what makes a dictionary of a message. Raises UnsupportedSchemaError."""
    if described.full_name in within:
        raise UnsupportedSchemaError(f"{path}: the message {described.full_name} contains itself")
    if not described.fields:
        raise UnsupportedSchemaError(f"{path or '/'}: a message without fields")
    inner = (*within, described.full_name)
    parts = {field.name: field_of(field, f"{path}/{field.name}", inner, budget) for field in described.fields}
    readings = [(name, reading) for name, (_, reading) in parts.items()]
    shape = Shape(fields=tuple((name, found) for name, (found, _) in parts.items()))
    return shape, lambda message: {name: reading(message) for name, reading in readings}


def field_of(field: Any, path: str, within: tuple[str, ...], budget: Budget) -> tuple[Shape, Reading]:
    """Return the shape of a field, and what takes its value from a message."""
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        shape, inner = value_of(entry.fields_by_name["value"], path, within, budget)
        return Shape(item=shape, is_map=True), lambda message: [
            (_key(key), inner(one)) for key, one in getattr(message, name).items()
        ]
    shape, inner = value_of(field, path, within, budget)
    if field.is_repeated:
        return Shape(item=shape), lambda message: [inner(one) for one in getattr(message, name)]
    if field.has_presence:
        return shape, lambda message: inner(getattr(message, name)) if message.HasField(name) else None
    return shape, lambda message: inner(getattr(message, name))


def value_of(field: Any, path: str, within: tuple[str, ...], budget: Budget) -> tuple[Shape, Reading]:
    """Return the shape of one value of a field, and what converts it for Arrow."""
    budget.take()
    if field.message_type is not None:
        return message_of(field.message_type, path, within, budget)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return TEXT, lambda number: names.get(number, str(number))
    return SCALARS[field.type], _itself


def _itself(value: Any) -> Any:
    return value


def _key(key: Any) -> str:
    """A key of a map, as JSON of Protobuf writes it."""
    return str(key).lower() if isinstance(key, bool) else str(key)
