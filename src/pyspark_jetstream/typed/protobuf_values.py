"""Columns of Protobuf messages: protobuf parses the payloads one by one, Arrow makes the columns.

A field without presence has its default, others are null where they are absent. Enums are the names of their values,
and the number as text where a value has no name. Fields that the message type does not have are passed over.
"""

import base64
from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

from pyspark_jetstream.typed import shapes
from pyspark_jetstream.typed.row_decoder import RowDecoder
from pyspark_jetstream.typed.shapes import Budget, Shape, UnsupportedSchemaError

_Type = FieldDescriptor
SCALARS = {
    _Type.TYPE_DOUBLE: shapes.DOUBLE,
    _Type.TYPE_FLOAT: shapes.FLOAT,
    _Type.TYPE_BOOL: shapes.FLAG,
    _Type.TYPE_STRING: shapes.TEXT,
    _Type.TYPE_BYTES: shapes.BYTES,
    _Type.TYPE_ENUM: shapes.TEXT,
    **dict.fromkeys((_Type.TYPE_INT32, _Type.TYPE_SINT32, _Type.TYPE_SFIXED32), shapes.INT),
    **dict.fromkeys((_Type.TYPE_INT64, _Type.TYPE_SINT64, _Type.TYPE_SFIXED64), shapes.LONG),
    **dict.fromkeys((_Type.TYPE_UINT32, _Type.TYPE_FIXED32), shapes.LONG),
    **dict.fromkeys((_Type.TYPE_UINT64, _Type.TYPE_FIXED64), shapes.LARGE),
}

Reading = Callable[[Any], Any]  # of a message, or of a value


def protobuf_decoder(text: str, message: str) -> RowDecoder:
    """Return what decodes messages of one type; an empty payload is a message whose fields are absent.

    Raises UnsupportedSchemaError.
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        for one in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file:
            pool.Add(one)
        described = pool.FindMessageTypeByName(message)
    except Exception as error:  # binascii, DecodeError, TypeError and KeyError: it was checked by the server
        raise UnsupportedSchemaError(f"not a FileDescriptorSet with a message {message}: {error}") from error
    parse = message_factory.GetMessageClass(described).FromString
    shape, reading = message_of(described, "", (), Budget())
    name = described.full_name
    return RowDecoder(type=shape.type, what=f"a message {name}", read=lambda payload: reading(parse(payload)))


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
        return shapes.TEXT, lambda number: names.get(number, str(number))
    return SCALARS[field.type], _itself


def _itself(value: Any) -> Any:
    return value


def _key(key: Any) -> str:
    """A key of a map, as JSON of Protobuf writes it."""
    return str(key).lower() if isinstance(key, bool) else str(key)
