"""The options of `df.write` and `df.writeStream`; access to the servers is parsed as for reading."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from pyspark_jetstream import options as reading
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import Access
from pyspark_jetstream.write.layout import INTO_A_VIEW
from pyspark_jetstream.write.subjects import LITERAL

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
# Beside those of options.py: Spark hands its own options of a query to the data source too.
OF_SPARK = frozenset(
    {"partitionoverwritemode", "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms"}
)
# Options of reading that say who is asking, and where.
ACCESS = frozenset({*reading.ACCESS_FIELDS, "credsfile", "nkeyseedfile", "nkeyseed", "jwt", "domain", "queryname"})
CHANGED = "acceptChangedRows"
WRITE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # one token of a subject


@attrs.frozen(kw_only=True, slots=True)
class WriteOptions:
    """All options of a write."""

    access: Access
    stream: str
    subject: str | None = None  # of each row; None: the column `subject`
    exactly_once: bool = False
    fence_subject: str | None = None  # the fence of partition p of a query is at <fence_subject>.<query>.<p>
    write_id: str | None = None  # of a batch write; None: one of its own for each write
    write_epoch: int = 0  # of a batch write with a write_id
    changed_epoch: int | None = None  # the micro-batch whose rows may be others than an earlier attempt has written


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the parsed options. Raises BadOptionError, naming the option."""
    values = {name.lower(): value for name, value in given.items() if not is_of_spark(name.lower())}
    access_values = {name: value for name, value in values.items() if name in ACCESS or name == "stream"}
    for name in values:
        if name in access_values or name in KNOWN:
            continue
        if name in reading.KNOWN:
            hint = f" ({INTO_A_VIEW})" if name == "columns" else ""
            raise BadOptionError(f"option {reading.KNOWN[name]!r} is for reading{hint}")
        raise BadOptionError(unknown_option(name))
    common = reading.parse_options(access_values)
    parsed = {
        field: reading.parse_one(PARSERS, name, values[name.lower()])
        for name, field in FIELDS.items()
        if name.lower() in values
    }
    options = WriteOptions(access=common.access, stream=common.stream, **parsed)
    check_together(options)
    return options


def is_of_spark(name: str) -> bool:
    """Whether an option is one of Spark itself."""
    return name in OF_SPARK or reading.is_of_spark(name)


def check_together(options: WriteOptions) -> None:
    """Raise BadOptionError for options that do not fit each other."""
    if options.exactly_once and options.fence_subject is None:
        raise BadOptionError(
            f"delivery={EXACTLY_ONCE} keeps a small message for each partition in the stream: option 'fenceSubject' is "
            "required, such as fences.spark, and the stream's subjects must contain what is below it (fences.spark.>)"
        )
    if not options.exactly_once:
        given = {"fenceSubject": options.fence_subject, "writeId": options.write_id, CHANGED: options.changed_epoch}
        for name, value in given.items():
            if value is not None:
                raise BadOptionError(f"option {name!r} is for delivery={EXACTLY_ONCE}")
    if options.write_epoch and options.write_id is None:
        raise BadOptionError("option 'writeEpoch' needs option 'writeId'")


def unknown_option(name: str) -> str:
    """Return the message for an unknown option."""
    known = sorted([*KNOWN.values(), *(reading.KNOWN[one] for one in ACCESS), "stream"])
    return f"unknown option {name!r} of a write; known options: {', '.join(known)}"


def parse_subject(text: str) -> str:
    """Return a subject without wildcards."""
    if not LITERAL.fullmatch(text):
        raise ValueError("expected a subject without wildcards, blanks and empty tokens")
    return text


def parse_delivery(text: str) -> bool:
    """Whether delivery is exactly once."""
    if text.lower() not in {AT_LEAST_ONCE, EXACTLY_ONCE}:
        raise ValueError(f"expected {AT_LEAST_ONCE} or {EXACTLY_ONCE}")
    return text.lower() == EXACTLY_ONCE


def parse_write_id(text: str) -> str:
    """Return the name of a batch write."""
    if not WRITE_ID.fullmatch(text):
        raise ValueError("expected up to 64 letters, digits, - and _")
    return text


def parse_epoch(text: str) -> int:
    """Return a whole number of at least 0."""
    if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 63:
        raise ValueError("expected a whole number of at least 0")
    return int(text)


PARSERS: dict[str, Callable[[str], Any]] = {
    "subject": parse_subject,
    "delivery": parse_delivery,
    "fenceSubject": parse_subject,
    "writeId": parse_write_id,
    "writeEpoch": parse_epoch,
    CHANGED: parse_epoch,
}
FIELDS = {
    "subject": "subject",
    "delivery": "exactly_once",
    "fenceSubject": "fence_subject",
    "writeId": "write_id",
    "writeEpoch": "write_epoch",
    CHANGED: "changed_epoch",
}
KNOWN = {name.lower(): name for name in PARSERS}
