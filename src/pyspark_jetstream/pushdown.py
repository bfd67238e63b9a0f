"""What the filters of `where` say about sequences, times and subjects of a batch read. Pure.

A filter only narrows what is read: Spark is given all of them back and applies them again. So a filter may be used in
part (a prefix of a subject that ends inside a token), and one that is not understood does no harm. Times of a stream
ascend; the first sequence at or after a time is found by the leader.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

from pyspark_jetstream.subjects import ALL, covers, is_filter
from pyspark_jetstream.times import rfc3339_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

MICROSECOND = timedelta(microseconds=1)


@attrs.frozen(kw_only=True, slots=True)
class Narrowing:
    """The part of a stream in which the rows of a query are."""

    start_seq: int = 1
    end_seq: int | None = None
    start_time: str | None = None  # RFC 3339, the first
    end_time: str | None = None  # exclusive
    subjects: tuple[str, ...] = ()  # none: all


def narrowing(filters: "Sequence[Filter]", subjects: Sequence[str]) -> Narrowing:
    """Return what the filters leave of a stream; `subjects` are those of the options."""
    found = Narrowing(subjects=tuple(subjects))
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        narrow = COLUMNS.get(path[0]) if len(path) == 1 else None
        if narrow is not None and value is not None:
            found = narrow(found, type(one).__name__, value)
    return found


def _by_seq(found: Narrowing, kind: str, value: Any) -> Narrowing:
    least, most = _bounds(kind, value)
    if least is not None:
        found = attrs.evolve(found, start_seq=max(found.start_seq, least))
    if most is not None:
        found = attrs.evolve(found, end_seq=most + 1 if found.end_seq is None else min(found.end_seq, most + 1))
    return found


def _bounds(kind: str, value: Any) -> tuple[int | None, int | None]:
    """The least and the greatest sequence that pass."""
    if kind == "In":
        return (None, None) if not value or None in value else (min(value), max(value))
    bounds: dict[str, tuple[int | None, int | None]] = {
        "EqualTo": (value, value),
        "EqualNullSafe": (value, value),
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value - 1),
        "LessThanOrEqual": (None, value),
    }
    return bounds.get(kind, (None, None))


def _by_time(found: Narrowing, kind: str, value: Any) -> Narrowing:
    """The column has microseconds, the stream nanoseconds: what is after one begins a microsecond later."""
    if not isinstance(value, datetime):
        return found
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    start = {"GreaterThan": MICROSECOND, "GreaterThanOrEqual": timedelta(), "EqualTo": timedelta()}.get(kind)
    end = {"LessThan": timedelta(), "LessThanOrEqual": MICROSECOND, "EqualTo": MICROSECOND}.get(kind)
    if start is not None:
        text = rfc3339_of(moment + start)
        found = attrs.evolve(found, start_time=max(found.start_time or text, text))
    if end is not None:
        text = rfc3339_of(moment + end)
        found = attrs.evolve(found, end_time=min(found.end_time or text, text))
    return found


def _by_subject(found: Narrowing, kind: str, value: Any) -> Narrowing:
    match kind:
        case "EqualTo" | "EqualNullSafe":
            wanted = [value]
        case "In" if None not in value:
            wanted = list(value)
        case "StringStartsWith" if "." in value:
            # The last token may be a part of one.
            wanted = [value.rpartition(".")[0] + "." + ALL]
        case _:
            return found
    # A subject with wildcards as text is no filter; what the options exclude needs no second rule.
    prefix = kind == "StringStartsWith"
    if not wanted or not all(is_filter(one) and (prefix or not {"*", ALL} & set(one.split("."))) for one in wanted):
        return found
    if prefix and {"*", ALL} & set(wanted[0].split(".")[:-1]):
        return found
    if all(any(covers(wide, one) for wide in found.subjects or (ALL,)) for one in wanted):
        return attrs.evolve(found, subjects=tuple(wanted))
    return found


COLUMNS: dict[str, Callable[[Narrowing, str, Any], Narrowing]] = {
    "stream_seq": _by_seq,
    "time": _by_time,
    "subject": _by_subject,
}
