"""Avro and Protobuf: values are those that were written; what the schema has no columns for is named."""

import base64
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.typed.avro_values import avro_decoder
from pyspark_jetstream.typed.decoding import decoder_of
from pyspark_jetstream.typed.protobuf_values import protobuf_decoder
from pyspark_jetstream.typed.shapes import UnsupportedSchemaError
from pyspark_jetstream.typed.stream_schemas import StreamSchema

Field = descriptor_pb2.FieldDescriptorProto
ONE, MANY = 1, 3

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "count", "type": ["int", "long"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": "State"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}
ORDER = {
    "id": 2**53 + 1,
    "note": None,
    "count": -(2**63),
    "state": "PAID",
    "before": "NEW",
    "hash": b"\x00\x01\xff\x02",
    "at": 1_767_225_600_000_001,
    "lines": [{"sku": "gr\u00fc\u00df"}, {"sku": ""}],
    "tags": {"a": 0.1},
}


def written(schema: Any, value: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def test_avro_values_are_those_that_were_written() -> None:
    decoder = avro_decoder(json.dumps(AVRO))
    payload = written(
        {**AVRO, "fields": [{**one, "type": "long"} if one["name"] == "at" else one for one in AVRO["fields"]]}, ORDER
    )
    found = decoder.decode(pa.array([payload, b"", payload[:-1], payload + b"\0", b"\xff" * 40], pa.binary()))
    values = found.column.to_pylist()
    assert values[0] == {**ORDER, "tags": [("a", 0.1)]}
    assert values[1:] == [None] * 4
    assert [place for place, _ in found.faults] == [2, 3, 4]
    assert found.faults[1][1] == "1 bytes too many behind the Avro value"
    assert found.column.type == decoder.type


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (["string", "long"], "/f: a union of several types"),
        ("Order", "/f: the record Order contains itself"),
        ({"type": "record", "name": "Empty", "fields": []}, "/f: a record without fields"),
    ],
)
def test_an_avro_schema_without_columns_is_named(kind: Any, why: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=why):
        avro_decoder(json.dumps({"type": "record", "name": "Order", "fields": [{"name": "f", "type": kind}]}))
    for text in ('"long"', "{", '{"type": "nothing"}', "[]"):
        with pytest.raises(BadOptionError, match="the avro schema gives no columns"):
            decoder_of(StreamSchema(kind="avro", text=text))


def described() -> descriptor_pb2.FileDescriptorSet:
    """`shop.Order`, with fields of each kind, with and without presence."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=3)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=ONE)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_UINT64, label=ONE)
    order.field.add(name="delta", number=2, type=Field.TYPE_SINT64, label=ONE)
    order.field.add(name="small", number=3, type=Field.TYPE_FIXED32, label=ONE)
    order.field.add(name="state", number=4, type=Field.TYPE_ENUM, type_name=".shop.State", label=ONE)
    order.field.add(name="first", number=5, type=Field.TYPE_MESSAGE, type_name=".shop.Line", label=ONE)
    order.field.add(name="lines", number=6, type=Field.TYPE_MESSAGE, type_name=".shop.Line", label=MANY)
    order.field.add(name="hash", number=7, type=Field.TYPE_BYTES, label=ONE)
    order.field.add(name="counts", number=8, type=Field.TYPE_MESSAGE, type_name=".shop.Order.CountsEntry", label=MANY)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_BOOL, label=ONE)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=ONE)
    order.oneof_decl.add(name="_note")
    order.field.add(name="note", number=9, type=Field.TYPE_STRING, label=ONE, oneof_index=0, proto3_optional=True)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="inner", number=1, type=Field.TYPE_MESSAGE, type_name=".shop.Tree", label=ONE)
    file.message_type.add(name="Empty")
    return descriptor_pb2.FileDescriptorSet(file=[file])


SET = base64.b64encode(described().SerializeToString()).decode()


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for one in described().file:
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_messages_are_those_that_were_written() -> None:
    decoder = protobuf_decoder(SET, "shop.Order")
    order = order_class()(
        id=2**64 - 1, delta=-(2**63), small=2**32 - 1, state=3, hash=b"\xff", lines=[{"sku": "\u00fc"}]
    )
    order.counts[True] = -5
    unknown = order_class()(state=17, note="")
    payloads = [order.SerializeToString(), unknown.SerializeToString(), b"", b"\xff\xff", b"\x98\x06\x01"]
    found = decoder.decode(pa.array(payloads, pa.binary()))
    first, second, *others = found.column.to_pylist()
    assert first == {
        "id": 2**64 - 1,
        "delta": -(2**63),
        "small": 2**32 - 1,
        "state": "PAID",
        "first": None,
        "lines": [{"sku": "\u00fc"}],
        "hash": b"\xff",
        "counts": [("true", -5)],
        "note": None,
    }
    assert (second["state"], second["note"], second["id"], second["lines"]) == ("17", "", 0, [])
    assert others[1] is None
    assert (others[0]["id"], others[0]["note"], others[0]["lines"]) == (0, None, [])
    assert others[2]["state"] == "NEW"  # a field that the type does not have
    assert found.faults == [(3, "not a message shop.Order (DecodeError)")]


def test_binary_schemas_that_name_types_again_and_again_are_bounded() -> None:
    kind: Any = "long"
    for level in range(30):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": kind if level == 0 else f"R{level - 1}"}]
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(UnsupportedSchemaError, match="more than 10,000 fields"):
        avro_decoder(json.dumps(kind))
    file = descriptor_pb2.FileDescriptorProto(name="wide.proto", syntax="proto3")
    for level in range(30):
        message = file.message_type.add(name=f"R{level}")
        for number, name in enumerate("ab", 1):
            wide = message.field.add(name=name, number=number, label=ONE)
            wide.type, wide.type_name = Field.TYPE_MESSAGE, f".R{level + 1}"
    file.message_type.add(name="R30").field.add(name="a", number=1, type=Field.TYPE_INT64, label=ONE)
    text = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    with pytest.raises(UnsupportedSchemaError, match="more than 10,000 fields"):
        protobuf_decoder(text, "R0")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("shop.Tree", "/inner: the message shop.Tree contains itself"),
        ("shop.Empty", "/: a message without fields"),
        ("shop.Nothing", "not a FileDescriptorSet with a message shop.Nothing"),
    ],
)
def test_a_protobuf_schema_without_columns_is_named(message: str, why: str) -> None:
    with pytest.raises(BadOptionError, match=why):
        decoder_of(StreamSchema(kind="protobuf", text=SET, message=message))
