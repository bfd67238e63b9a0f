"""The keys `jetraft.schema*` of a stream: which schema judges the messages of which subjects.

A stream may have several schemas: each key may end with a number, `jetraft.schema.2`. The schema of the lowest number
whose subject matches judges a message; a key without a number comes before all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.store.model.subject import matches, valid_subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA: Final = "jetraft.schema"
KEY: Final = re.compile(r"jetraft\.schema(_type|_message|_subject)?(?:\.([1-9][0-9]?))?")
JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
KINDS: Final = (JSON, AVRO, PROTOBUF)
SCHEMAS_MAX: Final = 16  # of a stream: each message is compared with the subjects of all
SCHEMA_BYTES_MAX: Final = 32 * 1024  # of one: compiling it takes a few ms
SUBJECT_BYTES_MAX: Final = 255


class BadSchemaError(ValueError):
    """A schema cannot be; the text says where."""


@attrs.frozen(kw_only=True, slots=True)
class SchemaRule:
    """One schema, and what it judges."""

    kind: str  # of KINDS
    text: str  # JSON Schema, Avro schema, or a FileDescriptorSet in base64
    message: str = ""  # Protobuf: the full name of the message type
    subject: str = ">"
    number: str = ""  # what its keys end with

    @property
    def key(self) -> str:
        """The key that has the schema."""
        return f"{SCHEMA}.{self.number}" if self.number else SCHEMA


def read_rules(metadata: Mapping[str, str]) -> tuple[SchemaRule, ...]:
    """The schemas that the metadata names, by their numbers. Raises BadSchemaError; schemas are not looked into."""
    parts: dict[str, dict[str, str]] = {}
    for key, value in metadata.items():
        if found := KEY.fullmatch(key):
            parts.setdefault(found[2] or "", {})[found[1] or ""] = value
    if len(parts) > SCHEMAS_MAX:
        raise BadSchemaError(f"a stream has {SCHEMAS_MAX} schemas at most, not {len(parts)}")
    return tuple(_rule(number, parts[number]) for number in sorted(parts, key=lambda number: int(number or 0)))


def rule_for(rules: Sequence[SchemaRule], subject: bytes) -> SchemaRule | None:
    """Which schema judges the messages of a subject; None: none."""
    for rule in rules:
        if rule.subject == ">" or matches(rule.subject.encode(), subject):
            return rule
    return None


def _rule(number: str, parts: Mapping[str, str]) -> SchemaRule:
    end = f".{number}" if number else ""
    kind, text, message = (parts.get(name, "") for name in ("_type", "", "_message"))
    subject = parts.get("_subject", ">")
    if not text:
        raise BadSchemaError(f"{SCHEMA}{end} is missing")
    if len(text.encode()) > SCHEMA_BYTES_MAX:
        raise BadSchemaError(f"{SCHEMA}{end} is larger than {SCHEMA_BYTES_MAX} bytes")
    if kind not in KINDS:
        raise BadSchemaError(f"{SCHEMA}_type{end} is json, avro or protobuf, not {kind[:40]!r}")
    if (kind == PROTOBUF) != bool(message):
        raise BadSchemaError(f"{SCHEMA}_message{end} names the message of a protobuf schema, and of no other one")
    if not valid_subject(subject.encode()) or len(subject) > SUBJECT_BYTES_MAX:
        raise BadSchemaError(f"{SCHEMA}_subject{end} is a subject, with wildcards or without, not {subject[:40]!r}")
    return SchemaRule(kind=kind, text=text, message=message, subject=subject, number=number)
