"""Documents become columns: at once and one by one alike, exactly, and whatever strangers have published.

What is refused here was published without a schema, or before it: a payload may be anything.
"""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyspark_jetstream.typed import json_values
from pyspark_jetstream.typed.json_shapes import json_shape
from pyspark_jetstream.typed.json_values import JsonDecoder, is_plain
from pyspark_jetstream.typed.shapes import UnsupportedSchemaError

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": "number"},
        "note": {"type": ["string", "null"]},
        "paid": {"type": "boolean"},
        "buyer": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "counts": {"items": {"type": "integer"}, "type": "array"}},
        }
    },
}
NOTHING = dict.fromkeys(ORDER["properties"])
MANY = 100  # rows: more than are read one by one


def decoder(schema: Any = ORDER) -> JsonDecoder:
    return JsonDecoder(json_shape(json.dumps(schema)))


def decoded(*payloads: bytes, schema: Any = ORDER, beside: int = MANY) -> tuple[list[Any], list[tuple[int, str]]]:
    """The values of payloads, and what is wrong, among others that fit."""
    found = decoder(schema).decode(pa.array([*payloads, *[b'{"id":1}'] * beside], pa.binary()))
    assert len(found.column) == len(payloads) + beside
    return found.column.slice(0, len(payloads)).to_pylist(), found.faults


def alone(payload: bytes, schema: Any = ORDER) -> Any:
    """The value of a payload that fits: the same among many and by itself."""
    many, faults = decoded(payload, schema=schema)
    assert not faults
    assert decoded(payload, schema=schema, beside=0) == (many, [])
    return many[0]


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
def test_integers_are_exact(number: int) -> None:
    assert alone(b'{"id":%d}' % number)["id"] == number
    assert alone(b'{"lines":[{"counts":[%d,null]}]}' % number)["lines"] == [{"sku": None, "counts": [number, None]}]


@pytest.mark.parametrize("text", ["1.0", "10e-1", "0.1e1", "1E0"])
def test_an_integer_may_be_written_with_a_fraction_of_nothing(text: str) -> None:
    assert alone(f'{{"id":{text}}}'.encode())["id"] == 1
    assert alone(b'{"id":9007199254740993.0}')["id"] == 2**53 + 1


def test_integers_beyond_64_bits_are_decimals_where_the_schema_speaks_of_them() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}}
    assert int(alone(b'{"id":%d}' % (2**64 - 1), schema)["id"]) == 2**64 - 1
    assert decoded(b'{"id":"1"}', schema=schema)[1] == [(0, "/id: expected number")]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"{}", {}),
        (b' \r\n{"id" :\n 7 }\t', {"id": 7}),
        (b'{"id":null,"note":null,"buyer":null,"lines":null}', {}),
        (b'{"other":{"id":[null,{"a":"}x"}]},"note":"n"}', {"note": "n"}),
        (b'{"note":"a","note":"b"}', {"note": "b"}),
        (b'{"amount":0.1,"paid":true}', {"amount": 0.1, "paid": True}),
        (b'{"amount":5}', {"amount": 5.0}),
        ('{"note":"gr\u00fc\u00dfe \U0001f600"}'.encode(), {"note": "gr\u00fc\u00dfe \U0001f600"}),
        (rb'{"note":"\ud83d\ude00\u0000\n\"}x{"}', {"note": '\U0001f600\x00\n"}x{'}),
        (b'{"note":"NaN or:Inf"}', {"note": "NaN or:Inf"}),
        (b'{"buyer":{"name":"Ann","more":1}}', {"buyer": {"name": "Ann", "age": None}}),
        (b'{"lines":[]}', {"lines": []}),
        (b'{"lines":[null,{}]}', {"lines": [None, {"sku": None, "counts": None}]}),
    ],
)
def test_a_document_has_the_fields_of_its_schema(payload: bytes, expected: dict[str, Any]) -> None:
    assert alone(payload) == {**NOTHING, **expected}


@pytest.mark.parametrize("payload", [b"", b"null", b" null "])
def test_an_empty_payload_and_the_document_null_have_no_value(payload: bytes) -> None:
    assert alone(payload) is None


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"{", "not JSON at character 1"),
        (b'{"id":1}{"id":2}', "not JSON at character 8"),
        (b'{"id":1} null', "not JSON at character 9"),
        (b'{"id":1}\nnull\n{"id":2}', "not JSON at character 9"),
        (b'{"id":1}]', "not JSON at character 8"),
        (b'{"lines":', "not JSON at character 9"),
        (b'{"id":1}}', "not JSON at character 8"),
        (b"[1]", "/: expected an object"),
        (b"17", "/: expected an object"),
        (b"text", "not JSON at character 0"),
        (b"\xef\xbb\xbf{}", "not JSON at character 0"),
        (b'{"note":"\xff"}', "not UTF-8"),
        (b'{"other":"\xff"}', "not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (rb'{"note":"\ud83d"}', "/note: half of a surrogate pair"),
        (b'{"id":"1"}', "/id: expected number"),
        (b'{"id":true}', "/id: expected number"),
        (b'{"id":1.5}', "/id: expected integer"),
        (b'{"id":9223372036854775808}', "/id: expected an integer within int64"),
        (b'{"id":1e30}', "/id: expected an integer within int64"),
        (b'{"amount":1e400}', "/amount: expected a number that a double can hold"),
        (b'{"amount":NaN}', "not JSON"),
        (b'{"other":-Infinity}', "not JSON"),
        (b'{"note":5}', "/note: expected string"),
        (b'{"paid":0}', "/paid: expected boolean"),
        (b'{"buyer":[]}', "/buyer: expected an object"),
        (b'{"buyer":{"age":"x"}}', "/buyer/age: expected number"),
        (b'{"lines":{}}', "/lines: expected an array"),
        (b'{"lines":[{"sku":"a"},{"sku":1}]}', "/lines/1/sku: expected string"),
    ],
)
def test_a_document_that_does_not_fit_is_named_and_no_other_is_touched(payload: bytes, why: str) -> None:
    for place in (0, 3, MANY):
        rows = [b'{"id":%d}' % number for number in range(MANY)]
        rows.insert(place, payload)
        found = decoder().decode(pa.array(rows, pa.binary()))
        assert found.faults == [(place, why)]
        values = found.column.to_pylist()
        assert values.pop(place) is None
        assert [value["id"] for value in values] == list(range(MANY))


def test_a_document_that_is_nested_deeply_fits_or_is_named() -> None:
    values, faults = decoded(b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert (values, faults) in (([NOTHING], []), ([None], [(0, "not JSON")]))


def test_payloads_that_complete_each_other_are_two_that_do_not_fit() -> None:
    rows = [b'{"buyer":', b'{"name":"x"}}', b'{"id":1}{"id":2}', *[b'{"id":3}'] * MANY]
    found = decoder().decode(pa.array(rows, pa.binary()))
    assert [place for place, _ in found.faults] == [0, 1, 2]


WORDS = (
    """{"id":1} {"note":"x}"} { } [ ] , : " "id" "lines" "sku" "zz" null true -1.5 9007199254740993 1e400 NaN Inf {}"""
)
PIECES = st.sampled_from([*WORDS.split(), " ", "\n", "\0", "", "\\", "\\ud83d", "\u00e9", "\ufeff"])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(PIECES, max_size=5).map("".join), min_size=1, max_size=6))
def test_what_arrow_reads_at_once_is_what_is_read_one_by_one(texts: list[str]) -> None:
    payloads = pa.array([text.encode() for text in texts], pa.binary())
    one = decoder()
    column = one._whole(payloads)
    expected = one._by_rows(payloads)
    if column is not None:
        assert not expected.faults
        assert column.equals(expected.column)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "amount": st.floats(allow_nan=False, allow_infinity=False),
        "note": st.text(max_size=8),
        "buyer": st.fixed_dictionaries({}, optional={"name": st.text(max_size=4), "more": JSON_VALUES}),
        "other": JSON_VALUES,
    },
)


@settings(deadline=None, max_examples=100)
@given(st.lists(ORDERS, min_size=40, max_size=60))
def test_documents_of_the_schema_are_read_at_once_and_equal_what_was_written(orders: list[dict[str, Any]]) -> None:
    payloads = pa.array([json.dumps(order).encode() for order in orders], pa.binary())
    found = decoder().decode(payloads)
    assert not found.faults
    for order, value in zip(orders, found.column.to_pylist(), strict=True):
        expected = {name: order.get(name) for name in NOTHING}
        if order.get("buyer") is not None:
            expected["buyer"] = {name: order["buyer"].get(name) for name in ("name", "age")}
        assert value == expected


NO_JSON = st.sampled_from(
    [b"", b"null", b"{", b"}", b"[]", b"17", b"\xff", b'{"id":NaN}', b'{"x":-Inf}', b'{"note":"NaN"}']
)
NUMBERS = st.sampled_from(["1.0", "1e0", "0.5", "9223372036854775808", "-9223372036854775808", "1e400", "-0", "true"])
CUT = st.tuples(ORDERS.map(json.dumps), st.integers(0, 60)).map(lambda given: given[0][: given[1]].encode())
PAYLOADS = st.one_of(
    ORDERS.map(lambda order: json.dumps(order).encode()),
    ORDERS.map(lambda order: json.dumps(order, ensure_ascii=False, indent=1).encode()),
    NUMBERS.map(lambda number: f'{{"id":{number}}}'.encode()),
    NUMBERS.map(lambda number: f'{{"amount":{number},"lines":[{{"counts":[{number}]}}]}}'.encode()),
    CUT,
    NO_JSON,
)


@settings(deadline=None, max_examples=200)
@given(st.lists(PAYLOADS, min_size=1, max_size=4), st.integers(0, 40))
@example([b'{"amount":NaN}'], 20)
@example([b'{"other":-Inf}', b'{"id":1}'], 20)
@example([b'{"id":9223372036854775808}'], 20)
def test_a_column_with_what_does_not_fit_is_what_its_rows_are_one_by_one(given: list[bytes], before: int) -> None:
    """Values, faults and their sentences: a few payloads among others that fit."""
    payloads = pa.array([b'{"id":1}'] * before + given + [b'{"note":"n"}'] * (40 - before), pa.binary())
    one = decoder()
    found, expected = one.decode(payloads), one._by_rows(payloads)
    assert found.faults == expected.faults
    assert found.column.equals(expected.column)


def test_a_column_that_fits_is_never_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "document", None)
    payloads = [b'{"id":%d,"other":{"a":[1]},"lines":[{"sku":"s"}]}' % number for number in range(1000)]
    payloads[500] = b""
    found = decoder().decode(pa.array(payloads, pa.binary()))
    assert (found.column.null_count, found.faults) == (1, [])


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"enum": ["a", "b", None]}, pa.string()),
        ({"const": 5}, pa.int64()),
        ({"type": ["integer", "number", "null"]}, pa.float64()),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, pa.bool_()),
        ({"allOf": [{"type": "integer"}]}, pa.int64()),
        ({"type": ["integer", "string"]}, "text"),
        ({}, "text"),
        (True, "text"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "text"),
        ({"type": "array", "items": [{"type": "integer"}]}, "text"),
        ({"$ref": "#"}, "text"),
        ({"$ref": "https://example.org/other"}, "text"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, pa.map_(pa.string(), pa.int64())),
        ({"type": "object"}, "text"),
    ],
)
def test_a_field_has_the_type_that_its_schema_fixes(schema: Any, kind: Any) -> None:
    shape = json_shape(json.dumps({"properties": {"f": schema}}))
    found = shape.type.field("f").type
    assert found == (pa.string() if kind == "text" else kind)
    assert is_plain(shape) == (kind != "text" and not isinstance(kind, pa.MapType))


def test_open_fields_are_their_json_and_maps_have_any_key() -> None:
    schema = {"properties": {"any": {}, "map": {"type": "object", "additionalProperties": {"type": "integer"}}}}
    payload = '{"any": {"a": [1.50, 12345678901234567890, "\u00fc", null]}, "map": {"k": 1, "": null}}'.encode()
    assert alone(payload, schema) == {
        "any": '{"a":[1.50,12345678901234567890,"\u00fc",null]}',
        "map": [("k", 1), ("", None)],
    }


def test_a_schema_that_names_types_again_and_again_is_bounded() -> None:
    levels = {f"l{n}": {"properties": {side: {"$ref": f"#/$defs/l{n + 1}"} for side in "ab"}} for n in range(30)}
    with pytest.raises(UnsupportedSchemaError, match="more than 10,000 fields"):
        json_shape(json.dumps({"properties": {"a": {"$ref": "#/$defs/l0"}}, "$defs": levels}))


@pytest.mark.parametrize("schema", ["{", '{"type":"integer"}', '{"type":"object"}', "true", "[1]"])
def test_a_schema_without_named_fields_gives_no_columns(schema: str) -> None:
    with pytest.raises(UnsupportedSchemaError):
        json_shape(schema)
