"""Which column of a DataFrame is what of a message; checked when a write is planned."""

from collections.abc import Mapping, Sequence

import attrs
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.write.subjects import kept_pattern

NAMES = ("subject", "data", "headers", "msg_id")
INTO_A_VIEW = (
    "INSERT INTO: CREATE TEMPORARY VIEW v (subject STRING, data BINARY) USING jetstream OPTIONS (servers, stream)"
)


@attrs.frozen(kw_only=True, slots=True)
class Layout:
    """What a task needs to make messages of rows: places of columns, and the subjects that the stream keeps."""

    stream: str
    subject: int | None  # None: subject_value is the subject of each row
    subject_value: str | None
    data: int
    headers: int | None
    msg_id: int | None
    exactly_once: bool
    filters: tuple[str, ...] = ()  # the stream's subjects
    kept: str = ""  # a regular expression of the subjects that they match

    def within(self, filters: Sequence[str]) -> "Layout":
        """The same, for a stream with these subjects."""
        return attrs.evolve(self, filters=tuple(filters), kept=kept_pattern(filters))


def layout_of(schema: StructType, *, stream: str, subject: str | None, exactly_once: bool) -> Layout:
    """Return where the columns are. Raises BadOptionError, naming what is missing, wrong or unknown."""
    places = {field.name.lower(): place for place, field in enumerate(schema.fields)}
    check_names(schema, places, subject=subject, exactly_once=exactly_once)
    for name, place in places.items():
        check_type(name, schema.fields[place].dataType)
    return Layout(
        stream=stream,
        subject=places.get("subject"),
        subject_value=subject,
        data=places["data"],
        headers=places.get("headers"),
        msg_id=places.get("msg_id"),
        exactly_once=exactly_once,
    )


def check_names(schema: StructType, places: Mapping[str, int], *, subject: str | None, exactly_once: bool) -> None:
    """Raise BadOptionError for columns that are missing, unknown, or do not fit the options."""
    unknown = [field.name for field in schema.fields if field.name.lower() not in NAMES]
    if unknown:
        raise BadOptionError(
            f"columns {', '.join(map(repr, unknown))} are not part of a message: the columns of a write are "
            f"subject, data, headers and msg_id; select() what is to be written ({INTO_A_VIEW})"
        )
    if len(places) != len(schema.fields):
        raise BadOptionError(f"a column is there twice: {', '.join(field.name for field in schema.fields)}")
    if "data" not in places:
        raise BadOptionError("column 'data' is missing: BINARY or STRING, the payload of each message")
    if "subject" not in places and subject is None:
        raise BadOptionError("the subject is missing: add a column 'subject' or set option 'subject'")
    if "subject" in places and subject is not None:
        raise BadOptionError("there is a column 'subject' and an option 'subject': leave one of them out")
    if "msg_id" in places and exactly_once:
        raise BadOptionError(
            "column 'msg_id' is for delivery=at-least-once: with exactly-once the stream refuses a whole batch for an "
            "id that it knows"
        )


def check_type(name: str, found: DataType) -> None:
    """Raise BadOptionError for a column of a wrong type."""
    if name == "headers":
        good = isinstance(found, MapType) and isinstance(found.keyType, StringType)
        value = found.valueType if isinstance(found, MapType) else None
        inner = value.elementType if isinstance(value, ArrayType) else value
        if not good or not isinstance(inner, StringType):
            raise BadOptionError(
                f"column 'headers' is {found.simpleString()}, expected MAP<STRING, ARRAY<STRING>> or "
                "MAP<STRING, STRING>"
            )
        return
    kinds = (StringType, BinaryType) if name == "data" else (StringType,)
    if not isinstance(found, kinds):
        expected = " or ".join(kind().simpleString().upper() for kind in kinds)
        raise BadOptionError(f"column {name!r} is {found.simpleString()}, expected {expected}")
