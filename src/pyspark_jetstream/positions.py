"""Positions and incarnations of streams, as options name them. Pure.

A position is `earliest`, `latest`, a sequence or a time. JSON gives positions by stream, as Kafka's options do by
topic: `{"ORDERS": 100, "BILLS": "latest"}`; a stream that it does not name has the default.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import attrs

from pyspark_jetstream.times import rfc3339_of, unix_ns

MS_PER_S = 1000
STREAM_NAME = re.compile(r"[^\s.*>/\\\x00]{1,255}")


@attrs.frozen(kw_only=True, slots=True)
class Position:
    """A position in a stream, as in the options; at most one of the first three fields is set."""

    keyword: str | None = None  # "earliest" or "latest"
    stream_seq: int | None = None
    time: str | None = None  # RFC 3339, UTC
    by_stream: tuple[tuple[str, "Position"], ...] = ()

    def of(self, stream: str) -> "Position":
        """The position of this stream."""
        return dict(self.by_stream).get(stream, attrs.evolve(self, by_stream=()))


@attrs.frozen(kw_only=True, slots=True)
class Incarnation:
    """A stream that the user accepts in place of the one in the checkpoint, and where to continue in it."""

    created: str
    stream_seq: int | None  # None: at the sequence of the checkpoint


def parse_starting(text: str) -> Position:
    """Return where reading starts: earliest, latest, a sequence or a time."""
    return _parse(text, ("earliest", "latest"), Position(keyword="earliest"))


def parse_ending(text: str) -> Position:
    """Return where a batch ends: latest, a sequence or a time (exclusive)."""
    return _parse(text, ("latest",), Position(keyword="latest"))


def parse_starting_time(text: str) -> Position:
    """Return the start from a time: milliseconds since 1970 or RFC 3339, for all streams or by stream."""
    return _parse_times(text, Position(keyword="earliest"))


def parse_ending_time(text: str) -> Position:
    """Return the end from a time, exclusive."""
    return _parse_times(text, Position(keyword="latest"))


def parse_incarnations(text: str) -> tuple[tuple[str, Incarnation], ...]:
    """Return what is accepted, by stream; the name is empty for `<created>` or `<created>@<seq>` alone."""
    if not text.startswith("{"):
        return (("", _incarnation(text)),)
    return tuple((stream, _incarnation(value)) for stream, value in _by_stream(text).items())


def _incarnation(value: Any) -> Incarnation:
    created, at, seq = str(value).partition("@")
    try:
        unix_ns(created)
    except ValueError:
        raise ValueError("expected the creation time of the stream, or <time>@<sequence>") from None
    if at and not (seq.isascii() and seq.isdigit()):
        raise ValueError("expected <creation time>@<sequence>")
    return Incarnation(created=created, stream_seq=_sequence(int(seq)).stream_seq if at else None)


def _parse(text: str, keywords: tuple[str, ...], default: Position) -> Position:
    if text.lower() in keywords:
        return Position(keyword=text.lower())
    if text.isascii() and text.isdigit():
        return _sequence(int(text))
    if not text.startswith("{"):
        return Position(time=_time(text, keywords))
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError('expected JSON such as {"seq": 100} or {"time": "2026-01-01T00:00:00Z"}') from None
    if isinstance(value, dict) and not {"seq", "time"} & value.keys():
        return _given(value, default, lambda one: _position_of(one, keywords))
    return _position_of(value, keywords)


def _position_of(value: Any, keywords: tuple[str, ...]) -> Position:
    match value:
        case int() if not isinstance(value, bool):
            return _sequence(value)
        case str() if value.lower() in keywords:
            return Position(keyword=value.lower())
        case str():
            return Position(time=_time(value, keywords))
        case {"seq": int() as seq, **rest} if not rest and not isinstance(seq, bool):
            return _sequence(seq)
        case {"time": str() as time, **rest} if not rest:
            return Position(time=_time(time, ()))
    raise ValueError('expected {"seq": 100}, {"time": "2026-01-01T00:00:00Z"} or {"STREAM": 100}')


def _parse_times(text: str, default: Position) -> Position:
    return _given(_by_stream(text), default, _moment) if text.startswith("{") else _moment(text)


def _given(values: dict[str, Any], default: Position, parse: Callable[[Any], Position]) -> Position:
    wrong = [name for name in values if not STREAM_NAME.fullmatch(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no name of a stream")
    return attrs.evolve(default, by_stream=tuple((name, parse(value)) for name, value in values.items()))


def _by_stream(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        raise ValueError('expected JSON such as {"STREAM": ...}') from None
    assert isinstance(values, dict)  # it begins with a brace
    return values


def _moment(value: Any) -> Position:
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        return Position(time=_time(text, ("milliseconds since 1970",)))
    try:
        moment = datetime.fromtimestamp(int(text) // MS_PER_S, UTC).replace(microsecond=int(text) % MS_PER_S * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError("expected milliseconds since 1970") from None
    return Position(time=rfc3339_of(moment))


def _sequence(stream_seq: int) -> Position:
    if not 1 <= stream_seq < 1 << 63:
        raise ValueError("sequences start at 1")
    return Position(stream_seq=stream_seq)


def _time(text: str, keywords: tuple[str, ...]) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        words = ", ".join((*keywords, "a sequence"))
        raise ValueError(f"expected {words} or a time such as 2026-01-01T00:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone, such as 2026-01-01T00:00:00Z")
    return rfc3339_of(moment)
