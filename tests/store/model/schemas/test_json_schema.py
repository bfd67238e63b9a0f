"""JSON schemas: what fits, where what does not fit is wrong, and that neither schema nor document takes long."""

from __future__ import annotations

import time
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.schemas.compiled import (
    PAYLOAD_BYTES_MAX,
    check_schema,
    fault_in,
)
from jetraft.store.model.schemas.faults import TEXT_CHARS_MAX
from jetraft.store.model.schemas.json_schema import JsonJudge
from jetraft.store.model.schemas.json_work import DEPTH_MAX, WORK_MAX, Work
from jetraft.store.model.schemas.rules import BadSchemaError, SchemaRule

ADDRESS = {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]}
ORDER = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "state": {"enum": ["new", "paid"]},
        "lines": {"type": "array", "items": {"required": ["sku"], "properties": {"price": {"type": "number"}}}},
        "to": {"oneOf": [{"type": "string"}, ADDRESS]},
        "a/b": {"maxLength": 2},
    },
}
LONG_MS = 250  # of what takes 1 ms on an idle machine


def rule(schema: Any) -> SchemaRule:
    return SchemaRule(kind="json", text=schema if isinstance(schema, str) else orjson.dumps(schema).decode())


def fault(schema: Any, document: Any) -> str:
    return fault_in(rule(schema), document if isinstance(document, bytes) else orjson.dumps(document))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"id": 1, "state": "new", "lines": [{"sku": 1, "price": 2.5}], "to": "me", "a/b": "x"}, ""),
        ([], "expected object"),
        ({}, "/id: missing"),
        ({"id": "SECRET"}, "/id: expected integer"),
        ({"id": 0}, "/id: expected 1 or more"),
        ({"id": 1, "more": 1}, "/more: not expected"),
        ({"id": 1, "state": "SECRET"}, '/state: expected one of "new", "paid"'),
        ({"id": 1, "lines": [{"sku": 1}, {"sku": 1, "price": "SECRET"}]}, "/lines/1/price: expected number"),
        ({"id": 1, "lines": [{"price": 1}]}, "/lines/0/sku: missing"),
        ({"id": 1, "to": {"zip": 9}}, "/to/zip: expected string"),
        ({"id": 1, "to": 9}, "/to: fits none of the 2 schemas of oneOf"),
        ({"id": 1, "a/b": "SECRET"}, "/a~1b: expected 2 characters or less"),
        (b"", "not JSON at character 0"),
        (b'{"id":SECRET', "not JSON at character 6"),
        (b'{"id":"\xff"}', "not JSON at character 0"),
        (b"[1e999]", "not JSON at character 1"),
    ],
)
def test_the_answer_names_the_field_and_nothing_of_its_value(document: Any, said: str) -> None:
    assert fault(ORDER, document) == said
    assert "SECRET" not in said


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not JSON at character 1"),
        ("[1]", "a JSON schema is an object"),
        ({"properties": {"a": {"type": 7}}}, "/properties/a/type: not a JSON schema"),
        ({"properties": 3}, "/properties: not a JSON schema: expected object"),
        ({"items": "x"}, "a schema is an object, true or false"),
        ({"pattern": "(?=a)"}, "/pattern: not a regular expression without look-around"),
        ({"pattern": "(a{1000}){1000}"}, "/pattern: not a regular expression"),
        ({"$schema": "http://example.com/x"}, "Unknown meta-schema: 'http://example.com/x'"),
        ({"$ref": "http://127.0.0.1:1/x"}, "a $ref begins with # and stays within the schema"),
        ({"$ref": "file:///etc/passwd"}, "a $ref begins with # and stays within the schema"),
        ({"$ref": "#/$defs/a"}, "$ref #/$defs/a leads nowhere"),
        ({"$ref": "#a"}, "$ref #a leads nowhere"),
        ({"$ref": "#"}, "a $ref leads back to itself at the same value"),
        ({"$dynamicRef": "#a"}, "$dynamicRef is not served"),
        ({"$defs": {"a": {"$id": "http://example.com/a"}}}, "$id is for the whole schema: use $defs inside"),
        ({"multipleOf": 1e-300}, "multipleOf is 1e-20 or more"),
        ({"anyOf": [{"minimum": n} for n in range(1001)]}, "has more than 1000 schemas inside"),
        ("[" * 100 + "]" * 100, "a JSON schema is an object"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested deeper than 64"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_with_its_place(schema: Any, said: str) -> None:
    with pytest.raises(BadSchemaError) as refused:
        check_schema(rule(schema))
    assert str(refused.value).startswith(f"jetraft.schema: {said}")
    assert len(str(refused.value)) <= TEXT_CHARS_MAX + 40


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_drafts_of_before_are_known(draft: str) -> None:
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "items": [{"type": "string"}]}
    assert fault(schema, [1]) == "/0: expected string"
    assert not fault(schema, ["a", 1])


def test_what_is_not_printable_is_escaped_and_what_is_long_is_cut() -> None:
    assert fault({"additionalProperties": False}, {"a\n\x1b[31m": 1}) == "/a\\u000a\\u001b[31m: not expected"
    said = fault({"additionalProperties": False}, {"n" * 60_000: 1})
    assert len(said) < TEXT_CHARS_MAX
    assert said.endswith("nnn...: not expected")


def test_a_payload_is_judged_up_to_a_size_and_a_depth() -> None:
    assert not fault({}, b'"%s"' % (b"x" * (PAYLOAD_BYTES_MAX - 2)))
    assert fault({}, b'"%s"' % (b"x" * (PAYLOAD_BYTES_MAX - 1))).startswith("larger than 65536 bytes")
    deep = b"[" * (DEPTH_MAX - 1) + b"1" + b"]" * (DEPTH_MAX - 1)
    assert not fault({}, deep)
    assert fault({}, b"[%s]" % deep) == "nested deeper than 32"
    assert fault({}, b"[" * 30_000).startswith("not JSON")


def doubled(kind: str, times: int) -> dict[str, Any]:
    """Schemas that each lead to the next one twice."""
    defs: dict[str, Any] = {f"d{n}": {kind: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(times)}
    return {"$defs": {**defs, f"d{times}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize("kind", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_doubles_its_work_at_one_value_is_refused(kind: str) -> None:
    with pytest.raises(BadSchemaError, match="one value can take more than 50000 comparisons"):
        check_schema(rule(doubled(kind, 60)))


TWICE = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
CHAIN = {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "minimum": n} for n in range(2)]}
UNEVALUATED = {"items": {"unevaluatedProperties": False, "allOf": [{"properties": {"a": {}}}] * 100}}
TREE = {"anyOf": [{"properties": {"t": {"const": n}, "c": {"$ref": "#"}}} for n in range(3)]}


def nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf, "t": 2, "c": leaf}
    return leaf


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        (TREE, orjson.dumps(nested(9, {"t": 9}))),
        (
            {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "minimum": n} for n in range(2)]},
            b'{"a":' * 30 + b"1" + b"}" * 30,
        ),
        ({"items": {"enum": list(range(900))}}, b"[" + b",".join([b'"q"'] * 15_000) + b"]"),
        ({"uniqueItems": True}, b"[" + b",".join(b"%d" % n for n in range(11_000)) + b"]"),
        ({"items": {"multipleOf": 0.01}}, b"[" + b",".join([b"1e308"] * 9_000) + b"]"),
        ({"allOf": [{"pattern": f"(x+x+)+y{n}"} for n in range(100)]}, b'"%s"' % (b"x" * 65_000)),
        (
            {"unevaluatedProperties": False, "allOf": [{"properties": {"a": {}}}] * 100},
            b"[" + b",".join([b"{}"] * 9_000) + b"]",
        ),
    ],
)
def test_no_document_takes_long_to_judge(schema: Any, document: bytes) -> None:
    check_schema(rule(schema))
    begun = time.process_time()
    fault(schema, document)
    assert (time.process_time() - begun) * 1_000 < LONG_MS


def test_branches_say_where_only_while_that_is_cheap() -> None:
    assert fault(TREE, {"t": 2, "c": {"t": 9}}) == "/c/t: expected 0"
    said = fault(TREE, {"t": 2, "c": {"t": 2, "c": {"t": 2, "c": {"t": 9}}}})
    assert said == "fits no schema of an anyOf or oneOf, and is too large to say where"


# --- against the library by itself, and a plain count

names = st.sampled_from(["a", "b", "c"])
leaves = st.sampled_from(
    [{}, {"type": "integer"}, {"type": ["string", "null"]}, {"enum": [1, "a", None]}, {"const": 2}, {"maxLength": 1},
     {"minimum": 1.5}, {"pattern": "^a"}, {"multipleOf": 2}, {"$ref": "#/$defs/leaf"}, {"type": "object"}]
)  # fmt: skip


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = {
        "properties": st.dictionaries(names, inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
        "additionalProperties": inner | st.booleans(),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "contains": inner,
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "required": st.lists(names, unique=True),
        "uniqueItems": st.booleans(),
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"pattern": "^[ab]"}]),
        "dependentSchemas": st.dictionaries(names, inner, max_size=1),
        "unevaluatedProperties": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional=keywords)


with_leaf: Any = st.recursive(leaves, grown, max_leaves=8)
schemas = with_leaf.map(lambda found: {**found, "$defs": {"leaf": {"type": "boolean"}}})
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 4) | st.sampled_from(["", "a", "ab", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(schemas, documents)
def test_it_agrees_with_the_library(schema: dict[str, Any], document: Any) -> None:
    said = fault(schema, document)
    assert (not said) == jsonschema_rs.validator_for(schema, validate_formats=False).is_valid(document), said
    assert said.isprintable()
    assert len(said) <= TEXT_CHARS_MAX


@given(schemas, st.binary(max_size=40))
def test_no_payload_raises(schema: dict[str, Any], payload: bytes) -> None:
    assert fault_in(rule(schema), payload).isprintable()


def counted(root: Any, schema: Any, value: Any) -> int:
    """How many schemas a plain judge compares with a value and what is inside, if none of them is passed over."""
    if not isinstance(schema, dict):
        return 1
    here = [schema[name] for name in ("not", "if", "then", "else") if name in schema]
    here += [root["$defs"]["leaf"]] if "$ref" in schema else []
    here += [one for name in ("allOf", "anyOf", "oneOf") for one in schema.get(name, [])]
    here += schema.get("dependentSchemas", {}).values()
    pairs = [(one, value) for one in here]
    if isinstance(value, dict):
        pairs += [(one, inner) for name, inner in value.items() for one in of_field(schema, name)]
    elif isinstance(value, list):
        each = [schema[name] for name in ("items", "contains") if name in schema]
        pairs += [(one, inner) for inner in value for one in each]
        pairs += zip(schema.get("prefixItems", []), value, strict=False)
    names = len(value) if isinstance(value, dict) and "propertyNames" in schema else 0
    return 1 + names + sum(counted(root, one, inner) for one, inner in pairs)


def of_field(schema: Any, name: str) -> list[Any]:
    found = [schema["properties"][name]] if name in schema.get("properties", {}) else []
    found += [one for pattern, one in schema.get("patternProperties", {}).items() if pattern[-1] in name]
    return found + ([schema["additionalProperties"]] if "additionalProperties" in schema else [])


FIVE = {"$defs": {"leaf": True}, "allOf": [{"minimum": 0}] * 5}


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"additionalProperties": FIVE, "properties": {"a": FIVE}}, {"a": 1, "b": 1}),
        ({"patternProperties": {"^a": FIVE, "a": FIVE}}, {"a": 1}),
        ({"contains": FIVE, "items": FIVE, "prefixItems": [FIVE, FIVE]}, [1, 2, 3]),
        ({"dependentSchemas": {"a": FIVE}, "if": FIVE, "then": FIVE, "not": FIVE}, {"a": 1}),
    ],
)
def test_each_way_to_a_schema_counts(schema: dict[str, Any], document: Any) -> None:
    measured = Work.of(schema)._measured(document)
    assert measured is not None
    assert counted(schema, schema, document) <= measured


def test_numbers_that_are_long_as_fractions_are_few() -> None:
    schema = {"items": {"multipleOf": 0.5}}
    said = "more than 50 very large or small numbers, and a multipleOf that is no whole number"
    for number in (b"1e308", b"1E-300 ", b"1" * 30):
        assert fault(schema, b"[" + b",".join([number] * 51) + b"]") == said
        assert fault(schema, b"[" + b",".join([number] * 50) + b"]") != said
    assert not fault(schema, b"[" + b",".join([b"2.5"] * 500) + b"]")
    assert not fault({"type": "array"}, b"[" + b",".join([b"1e308"] * 500) + b"]")


@given(schemas, documents)
def test_the_bound_is_never_below_what_a_plain_judge_compares(schema: dict[str, Any], document: Any) -> None:
    work = Work.of(schema)
    measured = work._measured(document)
    assert measured is not None
    assert counted(schema, schema, document) <= measured
    values = orjson.dumps(document)
    assert measured <= (sum(values.count(mark) for mark in (b",", b"{", b"[")) + 1) * work.most


def test_a_library_that_fails_refuses_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("SECRET")

    monkeypatch.setattr(JsonJudge, "fault", broken)
    assert fault({"title": "broken"}, 1) == "can not be judged: RuntimeError"


def test_the_limits_hold_together() -> None:
    assert WORK_MAX > PAYLOAD_BYTES_MAX // 2, "a flat document of the largest size is judged"
