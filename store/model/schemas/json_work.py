"""How much work a JSON schema can make of a document, known before the document is judged.

The schemas that apply to one value are those of the value's own place (allOf, anyOf, $ref and the like) and what is
left over from the value around it (properties, items). Branches that lead to the same place multiply: a schema of 1 KiB
can ask for 2^30 comparisons of one number. So for each schema and depth a bound is calculated of the comparisons that
one value takes; a document has so many values of each depth. A bound and no measurement: where several fields
share a value's depth the costliest one counts for all.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Self
from urllib.parse import unquote

import attrs

from jetraft.store.model.schemas.rules import BadSchemaError

DEPTH_MAX: Final = 32  # of documents
NODES_MAX: Final = 1_000  # schemas in a schema: the table is calculated in 40 ms then
NESTING_MAX: Final = 64  # of the schema's own text
WORK_MAX: Final = 50_000  # comparisons of a document: about 1 ms
PATTERN_BYTES_MAX: Final = 512 * 1024  # patterns of one value, times the bytes of the payload: about 1 ms
UNIQUE_COST: Final = 8  # for each value inside of an array without repeats: it is hashed
FRACTION_COST: Final = 20  # of a multipleOf that is no whole number: a division of fractions
FRACTION_MIN: Final = 1e-20
GREAT: Final = re.compile(rb"[0-9][eE][+-]?[0-9]{2,3}(?=[\s,\]}])|[0-9]{25}")  # numbers that are long as fractions
GREAT_MAX: Final = 50  # of them in a document with such a multipleOf: each takes up to 0.05 ms
EXPLAINED_WORK_MAX: Final = 2_000  # comparisons, where each makes an error with its place: about 1 ms

IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
OF_FIELDS: Final = ("additionalProperties", "propertyNames", "patternProperties", "unevaluatedProperties")
OF_ITEMS: Final = ("items", "additionalItems", "contains", "unevaluatedItems")
AGAIN: Final = ("unevaluatedProperties", "unevaluatedItems")  # what is in place is compared once more for them
DEFINITIONS: Final = ("$defs", "definitions")
NOT_SERVED: Final = ("$dynamicRef", "$recursiveRef")


@attrs.define(slots=True)
class _Node:
    """A schema within the schema: what it costs by itself, and the places of those that it leads to."""

    cost: int
    patterns: int = 0
    uniques: int = 0
    has_fraction: bool = False
    has_branches: bool = False
    factor: int = 1  # of what is in place
    in_place: list[int] = attrs.Factory(list)
    one_field: list[int] = attrs.Factory(list)  # a field is one of them
    each_field: list[int] = attrs.Factory(list)
    one_item: list[int] = attrs.Factory(list)
    each_item: list[int] = attrs.Factory(list)


@attrs.frozen(slots=True)
class Work:
    """The highest cost of one value of each depth, from the document itself (0) on."""

    by_depth: tuple[int, ...]
    most: int
    patterns: int  # that are matched with one text
    has_fractions: bool  # as multipleOf
    has_branches: bool  # of which a document fits one: to say why it fits none takes longer than to see it

    @classmethod
    def of(cls, schema: dict[str, Any]) -> Self:
        """Calculate. Raises BadSchemaError for a schema without a bound, or that this does not understand."""
        graph = _Graph(schema)
        nodes = graph.nodes
        uniques = UNIQUE_COST * sum(graph.bounds([node.uniques for node in nodes]))
        by_depth = [cost + uniques for cost in graph.bounds([node.cost for node in nodes])]
        patterns = graph.bounds([node.patterns for node in nodes])
        if by_depth[0] > WORK_MAX:
            raise BadSchemaError(f"one value can take more than {WORK_MAX} comparisons")
        return cls(
            by_depth=tuple(by_depth),
            most=max(by_depth),
            patterns=max(patterns),
            has_fractions=any(node.has_fraction for node in nodes),
            has_branches=any(node.has_branches for node in nodes),
        )

    def why_too_much(self, payload: bytes, document: object) -> str:
        """Why a document is not judged; empty when it is. Only what may be too much is looked at closely."""
        if self.patterns * len(payload) > PATTERN_BYTES_MAX:
            return f"too large for {self.patterns} patterns on one value"
        if self.has_fractions and len(GREAT.findall(payload)) > GREAT_MAX:
            return f"more than {GREAT_MAX} very large or small numbers, and a multipleOf that is no whole number"
        opened = payload.count(b"{") + payload.count(b"[")
        if opened < DEPTH_MAX and (opened + payload.count(b",") + 1) * self.most <= WORK_MAX:
            return ""
        work = self._measured(document)
        if work is None:
            return f"nested deeper than {DEPTH_MAX}"
        return f"judging it can take more than {WORK_MAX} comparisons" if work > WORK_MAX else ""

    def may_explain(self, document: object) -> bool:
        """Whether it may be asked where a document does not fit: with branches that costs more than the judgement."""
        return not self.has_branches or (self._measured(document) or 0) <= EXPLAINED_WORK_MAX

    def _measured(self, document: object) -> int | None:
        """The work for the document, or more than WORK_MAX; None for one that is nested too deep."""
        work, level = 0, [document]
        for cost in self.by_depth:
            work += len(level) * cost
            if work > WORK_MAX:
                return work
            level = [inner for one in level if isinstance(one, dict | list) for inner in _inside(one)]
            if not level:
                return work
        return None


def _inside(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


class _Graph:
    """The schemas within a schema, and which leads to which."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._places: dict[int, int] = {}  # by the identity of a schema, which lives as long as the root
        self._anchors: dict[str, Any] = {}
        self._find_anchors(schema, 0)
        self.nodes: list[_Node] = []
        self._waiting: list[tuple[int, Any]] = []
        self._place_of(schema)
        while self._waiting:
            place, found = self._waiting.pop()
            self._read(self.nodes[place], found)

    def bounds(self, costs: list[int]) -> list[int]:
        """The highest cost of one value of each depth."""
        try:
            order = list(TopologicalSorter({n: node.in_place for n, node in enumerate(self.nodes)}).static_order())
        except CycleError as error:
            raise BadSchemaError("a $ref leads back to itself at the same value") from error
        now, found = costs, []
        for depth in range(DEPTH_MAX):
            before, now = now, [0] * len(self.nodes)
            for n in order:
                node = self.nodes[n]
                own = costs[n] if depth == 0 else _inside_of(node, before)
                now[n] = own + node.factor * sum(now[other] for other in node.in_place)
            found.append(now[0])
        return found

    def _place_of(self, schema: Any) -> int:
        if isinstance(schema, bool):
            schema = self._anchors.setdefault(f" {schema}", {})  # one node for all of them
        if not isinstance(schema, dict):
            raise BadSchemaError("a schema is an object, true or false")
        place = self._places.get(id(schema))
        if place is None:
            place = self._places[id(schema)] = len(self.nodes)
            if place >= NODES_MAX:
                raise BadSchemaError(f"has more than {NODES_MAX} schemas inside")
            self.nodes.append(_Node(cost=1))
            self._waiting.append((place, schema))
        return place

    def _read(self, node: _Node, schema: dict[str, Any]) -> None:
        for name in NOT_SERVED:
            if name in schema:
                raise BadSchemaError(f"{name} is not served")
        node.patterns = ("pattern" in schema) + len(_dict(schema.get("patternProperties")))
        node.uniques = "uniqueItems" in schema
        node.has_fraction = isinstance(schema.get("multipleOf"), float)
        node.has_branches = "anyOf" in schema or "oneOf" in schema
        node.factor = 1 + sum(name in schema for name in AGAIN)
        if "$ref" in schema:
            node.in_place.append(self._place_of(self._resolved(schema["$ref"])))
        for name in IN_PLACE:
            node.in_place += self._places_in(name, schema)
        for name in OF_FIELDS:
            node.each_field += self._places_in(name, schema)
        for name in OF_ITEMS:
            listed = name == "items" and isinstance(schema.get(name), list)  # as prefixItems was written before
            (node.one_item if listed else node.each_item).extend(self._places_in(name, schema))
        node.one_field += self._places_in("properties", schema)
        node.one_item += self._places_in("prefixItems", schema)
        node.cost += len(node.one_field) + sum(
            _values_in(value) for name, value in schema.items() if name in ("enum", "const", "required")
        )
        node.cost += _values_in(schema.get("dependentRequired", 0)) + _cost_of_multiple(schema.get("multipleOf"))

    def _places_in(self, name: str, schema: dict[str, Any]) -> list[int]:
        """The schemas that a keyword has: one, a list of them, or by names."""
        if name not in schema:
            return []
        value = schema[name]
        if name in ("dependentSchemas", "dependencies", "patternProperties", "properties"):
            return [self._place_of(one) for one in _dict(value).values() if not isinstance(one, list)]
        return [self._place_of(one) for one in (value if isinstance(value, list) else [value])]

    def _resolved(self, reference: Any) -> Any:
        """The schema that a reference within the schema names."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadSchemaError("a $ref begins with # and stays within the schema")
        if not reference.startswith("#/"):
            found = self._root if reference == "#" else self._anchors.get(reference[1:])
            if found is None:
                raise BadSchemaError(f"$ref {reference} leads nowhere")
            return found
        found = self._root
        for part in _parts(reference):
            try:
                found = found[int(part)] if isinstance(found, list) else found[part]
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise BadSchemaError(f"$ref {reference} leads nowhere") from error
        return found

    def _find_anchors(self, value: Any, depth: int) -> None:
        """Note the names within the schema; another base for references is refused with them."""
        if depth > NESTING_MAX:
            raise BadSchemaError(f"nested deeper than {NESTING_MAX}")
        if isinstance(value, dict):
            names = ("$id", "$schema", "id") if "draft-04" in str(self._root.get("$schema")) else ("$id", "$schema")
            for name in names:
                if depth and isinstance(value.get(name), str):
                    raise BadSchemaError(f"{name} is for the whole schema: use $defs inside")
            if isinstance(value.get("$anchor"), str):
                self._anchors[value["$anchor"]] = value
        for inner in _inside(value) if isinstance(value, dict | list) else ():
            self._find_anchors(inner, depth + 1)


def _inside_of(node: _Node, before: list[int]) -> int:
    """The cost of a value inside by the schemas that this one has for it, `before` being what they cost."""
    field = max((before[n] for n in node.one_field), default=0) + sum(before[n] for n in node.each_field)
    item = max((before[n] for n in node.one_item), default=0) + sum(before[n] for n in node.each_item)
    return max(field, item)


def _parts(reference: str) -> list[str]:
    """The names of a JSON pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in unquote(reference[2:]).split("/")]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _cost_of_multiple(value: Any) -> int:
    if not isinstance(value, float):
        return 0
    if 0 < value < FRACTION_MIN:
        raise BadSchemaError(f"multipleOf is {FRACTION_MIN} or more")
    return FRACTION_COST


def _values_in(value: Any) -> int:
    """How many values, those inside counted."""
    if isinstance(value, dict | list):
        return 1 + sum(_values_in(inner) for inner in _inside(value))
    return 1
