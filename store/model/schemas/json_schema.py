"""JSON Schema, drafts 4 to 2020-12, by jsonschema-rs: nothing is fetched, patterns take time that is linear.

A schema refers to places in itself only. How much work a document takes is bounded before it is judged
(`json_work.py`). `format` is an annotation, as in draft 2020-12: it refuses nothing, whatever the draft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import jsonschema_rs
import orjson

from jetraft.store.model.schemas.faults import at
from jetraft.store.model.schemas.json_work import DEPTH_MAX, Work
from jetraft.store.model.schemas.rules import BadSchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REGEX_BYTES_MAX: Final = 16 * 1024  # of a compiled pattern: 64 KiB of text take 0.15 ms at most
UNEXPECTED: Final = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems")
SHOWN_CHARS_MAX: Final = 80  # of what a schema expects


@attrs.frozen(slots=True)
class JsonJudge:
    """One schema."""

    _validator: Any  # the class depends on the draft
    _work: Work

    @classmethod
    def of(cls, text: str) -> Self:
        """Compile. Raises BadSchemaError."""
        try:
            schema = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise BadSchemaError(f"not JSON at character {error.pos}") from error
        if not isinstance(schema, dict):
            raise BadSchemaError("a JSON schema is an object")
        work = Work.of(schema)  # first: it refuses what must not be compiled
        try:
            validator = jsonschema_rs.validator_for(
                schema,
                offline=True,
                validate_formats=False,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES_MAX),
            )
        except ValueError as error:
            raise BadSchemaError(_why_bad(error)) from error
        return cls(validator, work)

    def fault(self, payload: bytes) -> str:
        """See `compiled.PayloadJudge`."""
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            return f"not JSON at character {error.pos}"
        refused = self._work.why_too_much(payload, document)
        if refused or self._validator.is_valid(document):
            return refused
        if not self._work.may_explain(document):
            return "fits no schema of an anyOf or oneOf, and is too large to say where"
        try:
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            meant = _meant(error)
            return at(_pointer(_path(meant) + _first_field(meant, document)), _expected(meant))
        return ""


def _why_bad(error: Exception) -> str:
    if not isinstance(error, jsonschema_rs.ValidationError):
        return f"not a JSON schema: {error}"
    where = _pointer(error.instance_path)
    if error.kind.name == "format":
        return at(where, "not a regular expression without look-around and back-references, or a too large one")
    if error.kind.name == "$ref":
        return at(where, error.message)
    return at(where, "not a JSON schema: " + _expected(error))


def _meant(error: Any) -> Any:
    """Of what is wrong by the branches of anyOf and oneOf: what is wrong inside, in the branch that fits best."""
    for _ in range(DEPTH_MAX):
        here = len(error.instance_path)
        branches: list[list[Any]] = [branch for branch in error.kind.as_dict().get("context") or [] if branch]
        inside = [branch for branch in branches if all(len(_path(found)) > here for found in branch)]
        if not inside:
            break
        best: list[Any] = min(inside, key=len)
        error = max(best, key=lambda found: len(_path(found)))
    return error


def _path(error: Any) -> list[str | int]:
    """Its place, as far as the field that is missing or too much."""
    name, path = error.kind.name, list(error.instance_path)
    if name == "required":
        path.append(error.kind.property)
    elif name in UNEXPECTED:
        path.append(error.kind.unexpected[0])
    return path


def _first_field(error: Any, document: Any) -> list[str | int]:
    """The field that is too much where none is allowed: of that the library names the object only."""
    if error.kind.name != "falseSchema" or error.schema_path[-1:] != ["additionalProperties"]:
        return []
    for part in error.instance_path:
        document = document[part]
    return list(document)[:1]


def _expected(error: Any) -> str:
    """The schema's demand, without anything of the document."""
    name, said = error.kind.name, error.kind.as_dict()
    if name == "type":
        return f"expected {' or '.join(said['types'])}"
    if name in _TEXTS:
        return _TEXTS[name](said)
    return f"does not fit {name}"


def _options(said: dict[str, Any]) -> str:
    listed = ", ".join(_text(option) for option in said["options"])
    return f"expected one of {listed}" if len(listed) <= SHOWN_CHARS_MAX else "expected a value that is listed"


def _one_of(said: dict[str, Any]) -> str:
    if all(said["context"]):
        return f"fits none of the {len(said['context'])} schemas of oneOf"
    return "fits more than one schema of oneOf"


def _text(value: object) -> str:
    try:
        found = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # a number beyond 64 bits
        found = str(value)
    return found if len(found) <= SHOWN_CHARS_MAX else found[: SHOWN_CHARS_MAX - 3] + "..."


_TEXTS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "enum": _options,
    "const": lambda said: f"expected {_text(said['expected_value'])}",
    "minimum": lambda said: f"expected {_text(said['limit'])} or more",
    "maximum": lambda said: f"expected {_text(said['limit'])} or less",
    "exclusiveMinimum": lambda said: f"expected more than {_text(said['limit'])}",
    "exclusiveMaximum": lambda said: f"expected less than {_text(said['limit'])}",
    "multipleOf": lambda said: f"expected a multiple of {_text(said['multiple_of'])}",
    "minLength": lambda said: f"expected {said['limit']} characters or more",
    "maxLength": lambda said: f"expected {said['limit']} characters or less",
    "minItems": lambda said: f"expected {said['limit']} items or more",
    "maxItems": lambda said: f"expected {said['limit']} items or less",
    "minProperties": lambda said: f"expected {said['limit']} fields or more",
    "maxProperties": lambda said: f"expected {said['limit']} fields or less",
    "pattern": lambda said: f"expected the pattern {_text(said['pattern'])}",
    "required": lambda _: "missing",
    "uniqueItems": lambda _: "expected no item twice",
    "anyOf": lambda said: f"fits none of the {len(said['context'])} schemas of anyOf",
    "oneOf": _one_of,
    **dict.fromkeys((*UNEXPECTED, "falseSchema"), lambda _: "not expected"),
    "not": lambda _: "fits what the schema excludes",
    "contains": lambda _: "has not the items that the schema asks for",
    "propertyNames": lambda _: "has a field with a name that the schema does not allow",
}


def _pointer(path: Sequence[str | int]) -> str:
    """RFC 6901."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
