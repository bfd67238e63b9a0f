"""Avro: what fastavro writes fits, what fits fastavro reads, and a payload that does not is named by its field."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.schemas.avro_schema import AvroJudge
from jetraft.store.model.schemas.compiled import check_schema, fault_in
from jetraft.store.model.schemas.rules import BadSchemaError, SchemaRule
from jetraft.store.model.schemas.walking import VALUES_MAX

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": ["null", "double"]}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "paid", "type": "boolean"},
        {"name": "tags", "type": {"type": "map", "values": "bytes"}},
        {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
        {"name": "before", "type": ["null", "Order"]},
        {"name": "last", "type": ["null", "shop.Line"]},
    ],
}
DOCUMENT: dict[str, Any] = {
    "id": 7,
    "state": "PAID",
    "lines": [{"sku": "ä", "price": 2.5}, {"sku": "b", "price": None}],
    "paid": True,
    "tags": {"k": b"v"},
    "key": b"ab",
    "before": None,
    "last": {"sku": "c", "price": 1.0},
}


def rule(schema: Any) -> SchemaRule:
    return SchemaRule(kind="avro", text=schema if isinstance(schema, str) else orjson.dumps(schema).decode())


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def fault(schema: Any, payload: bytes) -> str:
    return fault_in(rule(schema), payload)


def test_what_the_library_writes_fits() -> None:
    assert not fault(ORDER, written(ORDER, DOCUMENT))
    assert not fault(ORDER, written(ORDER, {**DOCUMENT, "before": DOCUMENT}))


@pytest.mark.parametrize(
    ("schema", "payload", "said"),
    [
        (ORDER, b"", "/id: expected int, the payload ends"),
        (ORDER, b"\xff\xff\xff\xff\x1f", "/id: expected int"),
        (ORDER, b"\xff" * 20, "/id: expected int"),
        (ORDER, b"\x00\x04", "/state: expected one of 2 symbols"),
        (ORDER, b"\x00\x01", "/state: expected one of 2 symbols"),
        (ORDER, b"\x00\x00\x04\x02a\x00\x02\xff\x00", "/lines/1/sku: expected UTF-8"),
        (ORDER, b"\x00\x00\x02\x02a\x04", "/lines/0/price: expected one of 2 branches"),
        (ORDER, b"\x00\x00\x00\x02", "/paid: expected boolean"),
        (ORDER, b"\x00\x00\x00\x01\x00a", "/key: expected fixed of 2 bytes, the payload ends"),
        ("string", b"\x01", "expected string"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\x7f", "expected string, the payload ends"),
        ("string", b"\x02ab", "1 bytes too many behind the value"),
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00", "has a block of another size than it says"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\x7f\x00", "has more items than bytes"),
        ({"type": "array", "items": "double"}, b"\x04" + b"\x00" * 9, "expected items, the payload ends"),
    ],
)
def test_the_answer_names_the_field(schema: Any, payload: bytes, said: str) -> None:
    text = f'"{schema}"' if isinstance(schema, str) else schema
    assert fault(text, payload) == said


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not JSON at character 1"),
        ('"nothing"', "not an Avro schema: UnknownType: nothing"),
        ("3", "not an Avro schema"),
        ('{"type":"array"}', "not an Avro schema: KeyError: 'items'"),
        ('{"type":"fixed","name":"F","size":-1}', "the size of a fixed is a number of bytes"),
        (
            '{"__fastavro_parsed__":true,"__named_schemas":{},"type":"record","name":"A","fields":[{"name":"x","type":"B"}]}',
            "not an Avro",
        ),
        ('{"type":"array","items":' * 70 + '"int"' + "}" * 70, "nested deeper than 64"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(schema: str, said: str) -> None:
    with pytest.raises(BadSchemaError) as refused:
        check_schema(rule(schema))
    assert str(refused.value).startswith(f"jetraft.schema: {said}")


def test_no_payload_is_walked_deeper_or_further_than_the_bounds() -> None:
    itself = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}
    assert fault(itself, b"x").endswith("/a: nested deeper than 32")
    chain = {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}
    assert fault(chain, b"\x02" * 60_000).endswith("nested deeper than 32")
    many = {"type": "array", "items": "int"}
    assert not fault(many, written(many, [1] * (VALUES_MAX - 1)))
    assert fault(many, written(many, [1] * VALUES_MAX)) == f"/{VALUES_MAX - 1}: has more than 2048 values"
    doubles = {"type": "array", "items": "double"}
    assert not fault(doubles, written(doubles, [0.5] * 8_000)), "these are passed over together"
    nothing = {"type": "record", "name": "N", "fields": [{"name": f"n{n}", "type": "null"} for n in range(500)]}
    assert "has more than 2048 values" in fault({"type": "array", "items": nothing}, b"\x80\x10" + b"\x00" * 2_000)


leaves = st.sampled_from(["boolean", "int", "long", "float", "double", "bytes", "string"])
values: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=4),
    "string": st.text(max_size=4),
}


def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(inner, max_size=3).map(
        lambda types: [{"name": f"f{n}", "type": one} for n, one in enumerate(types)]
    )
    named = st.uuids().map(lambda one: f"R{one.hex}")
    return st.builds(lambda name, parts: {"type": "record", "name": name, "fields": parts}, named, fields)


schemas = st.recursive(
    leaves,
    lambda inner: (
        inner.map(lambda one: {"type": "array", "items": one})
        | inner.map(lambda one: {"type": "map", "values": one})
        | leaves.map(lambda one: ["null", one])
        | records(inner)
    ),
    max_leaves=6,
)


def valued(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, str):
        return values[schema]
    if isinstance(schema, list):
        return st.one_of([valued(one) for one in schema])
    if schema["type"] == "array":
        return st.lists(valued(schema["items"]), max_size=3)
    if schema["type"] == "map":
        return st.dictionaries(st.text(max_size=3), valued(schema["values"]), max_size=3)
    return st.fixed_dictionaries({field["name"]: valued(field["type"]) for field in schema["fields"]})


@given(st.data())
def test_it_agrees_with_what_the_library_writes(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    payload = written(schema, data.draw(valued(schema)))
    judge = AvroJudge.of(orjson.dumps(schema).decode())
    assert judge.fault(payload) == ""
    assert judge.fault(payload + b"\x00").endswith("1 bytes too many behind the value")
    assert not payload or judge.fault(payload[:-1])


@given(st.data())
def test_the_library_reads_all_of_what_fits(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    payload = data.draw(st.binary(max_size=12))
    said = fault_in(rule(orjson.dumps(schema).decode()), payload)
    assert said.isprintable()
    assert not said.startswith("can not be judged")
    if not said:
        left = io.BytesIO(payload)
        fastavro.schemaless_reader(left, fastavro.parse_schema(schema), None)
        assert left.tell() == len(payload)
