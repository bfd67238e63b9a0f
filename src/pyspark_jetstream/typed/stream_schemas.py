"""Which schema of a stream decodes the rows of a query. Pure.

The keys are those of jetraft's extension (docs/extensions.md): `jetraft.schema`, `_type`, `_message` and `_subject`,
each with a number behind it where a stream has several.
"""

import re
from collections.abc import Mapping, Sequence

import attrs

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.subjects import covers

KEY = re.compile(r"jetraft\.schema(_type|_message|_subject)?(?:\.([1-9][0-9]?))?")
JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"


@attrs.frozen(kw_only=True, slots=True)
class StreamSchema:
    """One schema of a stream."""

    kind: str
    text: str
    message: str = ""  # Protobuf: the full name of the message type
    subject: str = ">"  # of the messages that it is for
    number: str = ""  # what its keys end with

    def is_same_type(self, other: "StreamSchema | None") -> bool:
        """Whether both read a payload alike."""
        return other is not None and (self.kind, self.text, self.message) == (other.kind, other.text, other.message)


@attrs.frozen(slots=True)
class Decoding:
    """How the rows of a query are decoded: resolved when the query is planned, the same in all its tasks."""

    schema: StreamSchema
    is_permissive: bool = False  # a row that does not fit is null


def schemas_of(metadata: Mapping[str, str]) -> list[StreamSchema]:
    """Return the schemas in a stream's metadata, in the order in which the server takes them."""
    parts: dict[str, dict[str, str]] = {}
    for key, value in metadata.items():
        if found := KEY.fullmatch(key):
            parts.setdefault(found[2] or "", {})[found[1] or ""] = value
    return [
        StreamSchema(
            kind=parts[number].get("_type", ""),
            text=parts[number].get("", ""),
            message=parts[number].get("_message", ""),
            subject=parts[number].get("_subject", ">"),
            number=number,
        )
        for number in sorted(parts, key=lambda number: int(number or 0))
    ]


def choose(stream: str, metadata: Mapping[str, str], decode: str, subjects: Sequence[str]) -> StreamSchema:
    """Return the schema that an option `decode` means: by number, or the one that is for all rows of the query.

    Raises BadOptionError where there is none, or where several are.
    """
    found = schemas_of(metadata)
    if not found:
        raise BadOptionError(f"option 'decode': stream {stream!r} has no schema (jetraft.schema in its metadata)")
    if decode.isdigit():
        chosen = [one for one in found if one.number == decode]
    else:
        chosen = found if len(found) == 1 else _of_subjects(found, subjects)
    if not chosen:
        numbers = ", ".join(f"{one.number or 'true'} for {one.subject}" for one in found)
        raise BadOptionError(
            f"option 'decode': which schema of stream {stream!r} is meant? It has {numbers}; choose a number, or "
            "filter by a 'subject' that one of them is for"
        )
    return chosen[0]


def _of_subjects(found: Sequence[StreamSchema], subjects: Sequence[str]) -> list[StreamSchema]:
    """The schema that the server takes for all of these filters: the first that covers one, if none before it may."""
    firsts = []
    for subject in subjects:
        touching = [one for one in found if overlap(one.subject, subject)]
        if not touching or not covers(touching[0].subject, subject):
            return []
        firsts.append(touching[0])
    return firsts[:1] if len(set(firsts)) == 1 else []


def overlap(one: str, other: str) -> bool:
    """Whether a subject may match both filters."""
    left, right = one.split("."), other.split(".")
    for mine, theirs in zip(left, right, strict=False):
        if ">" in {mine, theirs}:
            return True
        if "*" not in {mine, theirs} and mine != theirs:
            return False
    return len(left) == len(right)
