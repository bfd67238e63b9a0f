"""The schema of a query is the one that the server judges its rows by, or the one that the option names."""

import json
from itertools import product

import pytest

from jetraft.store.model.schemas.rules import KINDS, read_rules, rule_for
from jetraft.store.model.subject import matches
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.typed.stream_schemas import choose, overlap, schemas_of

TWO = {
    "jetraft.schema": json.dumps({"properties": {"a": {}}}),
    "jetraft.schema_type": "json",
    "jetraft.schema_subject": "orders.*.new",
    "jetraft.schema.10": "AAAA",
    "jetraft.schema_type.10": "protobuf",
    "jetraft.schema_message.10": "shop.Order",
    "jetraft.schema.2": '"long"',
    "jetraft.schema_type.2": "avro",
    "jetraft.schema_subject.2": "orders.>",
    "jetraft.schema_x": "another key",
}


def test_schemas_are_those_of_the_server_in_its_order() -> None:
    found = schemas_of(TWO)
    assert [one.number for one in found] == ["", "2", "10"]
    for mine, rule in zip(found, read_rules(TWO), strict=True):
        assert (mine.kind, mine.text, mine.message, mine.subject) == (rule.kind, rule.text, rule.message, rule.subject)
    assert {one.kind for one in found} == set(KINDS)


@pytest.mark.parametrize("subjects", [("orders.eu.new",), ("orders.eu.old", "orders.us.old"), ("bills.a", "bills.b.*")])
def test_the_schema_of_a_query_is_the_one_that_its_rows_were_judged_by(subjects: tuple[str, ...]) -> None:
    chosen = choose("S", TWO, "true", subjects)
    for subject in subjects:
        rule = rule_for(read_rules(TWO), subject.replace("*", "x").encode())
        assert rule is not None
        assert rule.number == chosen.number


@pytest.mark.parametrize("subjects", [(), (">",), ("orders.>",), ("orders.eu.new", "bills.a"), ("orders.eu.*",)])
def test_rows_of_several_schemas_need_a_number(subjects: tuple[str, ...]) -> None:
    with pytest.raises(BadOptionError, match=r"It has true for orders.\*.new, 2 for orders.>, 10 for >"):
        choose("S", TWO, "true", subjects)
    assert choose("S", TWO, "10", subjects).message == "shop.Order"
    with pytest.raises(BadOptionError, match="which schema of stream 'S'"):
        choose("S", TWO, "3", subjects)


def test_a_stream_without_a_schema_is_named() -> None:
    with pytest.raises(BadOptionError, match=r"stream 'S' has no schema \(jetraft.schema in its metadata\)"):
        choose("S", {"other": "x"}, "true", ())


def test_filters_overlap_when_a_subject_matches_both() -> None:
    tokens = ("a", "b", "*", ">")
    filters = [".".join(parts) for size in (1, 2, 3) for parts in product(tokens, repeat=size) if ">" not in parts[:-1]]
    subjects = [".".join(parts) for size in (1, 2, 3, 4) for parts in product("abc", repeat=size)]
    for one, other in product(filters, repeat=2):
        both = any(matches(one.encode(), each.encode()) and matches(other.encode(), each.encode()) for each in subjects)
        assert overlap(one, other) == both, (one, other)
