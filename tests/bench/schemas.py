"""What judging one payload by a schema takes: `python -m tests.bench.schemas`.

An order of about 1 KiB in each of the languages; the least of several rounds, so that other work counts little.
"""

from __future__ import annotations

import base64
import io
import time
from typing import Any, Final

import fastavro
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from jetraft.store.model.schemas.compiled import check_schema, fault_in
from jetraft.store.model.schemas.rules import SchemaRule

ROUNDS: Final = 50
CALLS: Final = 100
LINE: Final = {
    "type": "object",
    "required": ["sku", "count", "price"],
    "properties": {
        "sku": {"type": "string", "minLength": 3},
        "count": {"type": "integer", "minimum": 1},
        "price": {"type": "number"},
        "text": {"type": "string"},
    },
}
ORDER: Final = {
    "type": "object",
    "required": ["id", "customer", "lines"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "customer": {"type": "string", "pattern": "^[^@]+@[^@]+$"},
        "currency": {"enum": ["EUR", "USD", "CHF"]},
        "lines": {"type": "array", "items": LINE},
    },
}

AVRO_LINE: Final = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "text", "type": ["null", "string"]},
    ],
}
AVRO_ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD", "CHF"]}},
        {"name": "lines", "type": {"type": "array", "items": AVRO_LINE}},
    ],
}


def document() -> dict[str, Any]:
    """An order with eleven lines."""
    lines = [{"sku": f"sku-{n}", "count": n + 1, "price": 9.99, "text": "x" * 40} for n in range(11)]
    return {"id": 17, "customer": "ann@example.com", "currency": "EUR", "lines": lines}


def cases() -> dict[str, tuple[SchemaRule, bytes]]:
    """A rule and a payload that fits, by language."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO_ORDER), document())
    return {
        "json": (SchemaRule(kind="json", text=orjson.dumps(ORDER).decode()), orjson.dumps(document())),
        "avro": (SchemaRule(kind="avro", text=orjson.dumps(AVRO_ORDER).decode()), out.getvalue()),
        "protobuf": protobuf(),
    }


def protobuf() -> tuple[SchemaRule, bytes]:
    """The same order."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    line, order = file.message_type.add(name="Line"), file.message_type.add(name="Order")
    text, number, price = kinds.TYPE_STRING, kinds.TYPE_INT64, kinds.TYPE_DOUBLE
    for place, (name, kind) in enumerate([("sku", text), ("count", number), ("price", price), ("text", text)], 1):
        line.field.add(name=name, number=place, type=kind, label=kinds.LABEL_OPTIONAL)
    for place, (name, kind) in enumerate([("id", number), ("customer", text), ("currency", text)], 1):
        order.field.add(name=name, number=place, type=kind, label=kinds.LABEL_OPTIONAL)
    many = {"label": kinds.LABEL_REPEATED, "type": kinds.TYPE_MESSAGE, "type_name": ".shop.Line"}
    order.field.add(name="lines", number=4, **many)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**document())
    whole = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    return SchemaRule(kind="protobuf", text=whole, message="shop.Order"), made.SerializeToString()


def microseconds(rule: SchemaRule, payload: bytes) -> float:
    """The least time of one judgement."""
    check_schema(rule)
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            fault_in(rule, payload)
        best = min(best, (time.perf_counter() - begun) / CALLS)
    return best * 1e6


def main() -> None:
    """Print a row for each language."""
    for name, (rule, payload) in cases().items():
        assert not fault_in(rule, payload)
        print(f"{name}: {len(payload)} bytes, {microseconds(rule, payload):.1f} us")


if __name__ == "__main__":
    main()
