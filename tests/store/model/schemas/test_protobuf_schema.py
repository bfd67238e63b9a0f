"""Protobuf: what the library writes fits, what fits it parses, and a payload that does not is named by its field."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.schemas.compiled import check_schema, fault_in
from jetraft.store.model.schemas.rules import BadSchemaError, SchemaRule
from jetraft.store.model.schemas.walking import VALUES_MAX

Field = descriptor_pb2.FieldDescriptorProto
ONE, NEEDED, MANY = 1, 2, 3
SCALARS = {
    "double": Field.TYPE_DOUBLE,
    "int32": Field.TYPE_INT32,
    "uint64": Field.TYPE_UINT64,
    "sint64": Field.TYPE_SINT64,
    "bool": Field.TYPE_BOOL,
    "fixed32": Field.TYPE_FIXED32,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
}


def described() -> descriptor_pb2.FileDescriptorSet:
    """`shop.Order` in two files, with all kinds of fields; proto2 has required ones, groups and closed enums."""
    other = descriptor_pb2.FileDescriptorProto(name="line.proto", package="shop", syntax="proto3")
    line = other.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=ONE)
    line.field.add(name="price", number=2, type=Field.TYPE_DOUBLE, label=ONE)
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto2", dependency=["line.proto"]
    )
    file.enum_type.add(name="State").value.add(name="NEW", number=-1)
    file.enum_type[0].value.add(name="PAID", number=3)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_INT64, label=NEEDED)
    order.field.add(name="lines", number=2, type=Field.TYPE_MESSAGE, type_name=".shop.Line", label=MANY)
    order.field.add(name="state", number=3, type=Field.TYPE_ENUM, type_name=".shop.State", label=ONE)
    order.field.add(name="states", number=4, type=Field.TYPE_ENUM, type_name=".shop.State", label=MANY)
    order.field.add(name="inner", number=5, type=Field.TYPE_GROUP, type_name=".shop.Order.Inner", label=ONE)
    order.nested_type.add(name="Inner").field.add(name="n", number=1, type=Field.TYPE_INT32, label=ONE)
    order.field.add(name="before", number=6, type=Field.TYPE_MESSAGE, type_name=".shop.Order", label=ONE)
    for number, (name, kind) in enumerate(SCALARS.items(), 20):
        order.field.add(name=f"one_{name}", number=number, type=kind, label=ONE)
        order.field.add(name=f"many_{name}", number=number + 20, type=kind, label=MANY)
        packed = order.field.add(name=f"packed_{name}", number=number + 40, type=kind, label=MANY)
        packed.options.packed = name not in ("string", "bytes")
    return descriptor_pb2.FileDescriptorSet(file=[other, file])


SET = base64.b64encode(described().SerializeToString()).decode()
POOL = descriptor_pool.DescriptorPool()
for one in described().file:
    POOL.Add(one)
Order: Any = message_factory.GetMessageClass(POOL.FindMessageTypeByName("shop.Order"))
RULE = SchemaRule(kind="protobuf", text=SET, message="shop.Order")


def order(**fields: Any) -> Any:
    return Order(**{"id": 7, **fields})


def test_what_the_library_writes_fits() -> None:
    whole = order(lines=[{"sku": "ä", "price": 2.5}, {}], state=-1, states=[3, -1], inner={"n": -1}, before=order())
    assert not fault_in(RULE, whole.SerializeToString())


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "/id: missing"),
        (b"\x08", "/id: expected int64, the payload ends"),
        (b"\x08" + b"\xff" * 10, "/id: expected int64"),
        (b"\x0d1234", "/id: expected int64"),
        (b"hello", "field 13 is not in the schema"),
        (b"\x00\x00", "field 0 is not in the schema"),
        (b"\x08\x01\x12\x00\x12\x03\x0a\x01\xff", "/lines/1/sku: expected UTF-8"),
        (b"\x08\x01\x12\x03\x0a\x05a", "/lines/0/sku: expected string, the payload ends"),
        (b"\x08\x01\x12\x05\x0a", "/lines/0: expected message, the payload ends"),
        (b"\x08\x01\x18\x04", "/state: expected one of 2 values of the enum"),
        (b"\x08\x01\x22\x02\x03\x04", "/states/0: expected one of 2 values of the enum"),
        (b"\x08\x01\x2b\x08\x01", "/inner: expected the end of a group, the payload ends"),
        (b"\x08\x01\x2b\x34", "/inner: field 6 is not in the schema"),
        (b"\x08\x01\x32\x00", "/before/id: missing"),
        (b"\x08\x01\x2c", "/inner: expected group"),
    ],
)
def test_the_answer_names_the_field(payload: bytes, said: str) -> None:
    assert fault_in(RULE, payload) == said


@pytest.mark.parametrize(
    ("text", "message", "said"),
    [
        ("%", "shop.Order", "not base64"),
        ("aGVsbG8=", "shop.Order", "not a FileDescriptorSet"),
        (SET, "shop.Nothing", "has no message shop.Nothing"),
        (SET, "shop.State", "has no message shop.State"),
        (base64.b64encode(descriptor_pb2.FileDescriptorSet(file=described().file[1:]).SerializeToString()).decode(),
         "shop.Order", "not a FileDescriptorSet with all imports"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_is_refused(text: str, message: str, said: str) -> None:
    with pytest.raises(BadSchemaError) as refused:
        check_schema(SchemaRule(kind="protobuf", text=text, message=message))
    assert str(refused.value).startswith(f"jetraft.schema: {said}")


def test_no_payload_is_walked_deeper_or_further_than_the_bounds() -> None:
    nested = order()
    for _ in range(40):
        nested = order(before=nested)
    assert fault_in(RULE, nested.SerializeToString()).endswith("nested deeper than 32")
    assert fault_in(RULE, b"\x08\x01" * (VALUES_MAX + 1)) == "/id: has more than 2048 values"
    many = order(packed_int32=[-1] * 5_000, packed_double=[1.0] * 1_000)
    assert not fault_in(RULE, many.SerializeToString()), "packed numbers are passed over together"


values: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "fixed32": st.integers(0, 2**32 - 1),
    "string": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
}
fields: dict[str, st.SearchStrategy[Any]] = {
    "lines": st.lists(st.fixed_dictionaries({}, optional={"sku": values["string"], "price": values["double"]})),
    "state": st.sampled_from([-1, 3]),
    "states": st.lists(st.sampled_from([-1, 3])),
    "inner": st.fixed_dictionaries({"n": values["int32"]}),
    "before": st.just({"id": 1}),
    **{f"one_{name}": strategy for name, strategy in values.items()},
    **{f"{how}_{name}": st.lists(one, max_size=3) for name, one in values.items() for how in ("many", "packed")},
}
orders = st.builds(order, **{name: st.none() | strategy for name, strategy in fields.items()})


@given(orders)
def test_it_agrees_with_what_the_library_writes(written: Any) -> None:
    assert fault_in(RULE, written.SerializeToString()) == ""


@given(orders, st.data())
def test_the_library_parses_all_of_what_fits(written: Any, data: st.DataObject) -> None:
    payload = bytearray(written.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    said = fault_in(RULE, bytes(payload))
    assert said.isprintable()
    assert not said.startswith("can not be judged")
    if not said:
        parsed = Order.FromString(bytes(payload))
        assert parsed.IsInitialized()
        assert len(unknown_fields.UnknownFieldSet(parsed)) == 0
