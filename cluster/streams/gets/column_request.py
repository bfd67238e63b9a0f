"""The request of a direct get that is to be answered in columns. Pure.

A reader that takes columns sends `Accept: application/vnd.jetraft.columns.v1` with a batch direct get. Servers that do
not know this header answer in rows. The object `columns` in the body is for answers in columns only:

    message_bytes   the largest message that the reader takes, from its server's INFO; 64 KiB if absent, at most 900,000
    up_to_seq       the last sequence of the answer; with it, `batch` and `max_bytes` do not limit the answer
    filters         subjects, with wildcards; only messages of one of them
    select          which of time, subject, headers, data; all if absent. The sequence is always there

Layout of an answer: _column_record.pyx. Decision 89.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from jetraft.cluster.streams.gets._column_record import DATA, HEADERS, SUBJECTS, TIMES
from jetraft.store.model import message

ACCEPT: Final = b"Accept"
MEDIA_TYPE: Final = b"application/vnd.jetraft.columns.v1"
MESSAGE_BYTES_MAX: Final = 900_000  # nats-server's default max_payload is 1 MiB
MESSAGE_BYTES_DEFAULT: Final = 64 << 10
MESSAGE_BYTES_MIN: Final = 4096  # a reader that takes less is answered in rows
FILTERS_MAX: Final = 256
SELECTED: Final = {"time": TIMES, "subject": SUBJECTS, "headers": HEADERS, "data": DATA}
EVERYTHING: Final = TIMES | SUBJECTS | HEADERS | DATA


@attrs.frozen(kw_only=True, slots=True)
class ColumnRequest:
    """How an answer in columns is to be."""

    message_bytes: int = MESSAGE_BYTES_DEFAULT
    up_to_seq: int = 0  # 0: none
    filters: tuple[bytes, ...] = ()
    wanted: int = EVERYTHING


def parse_column_request(hdr: bytes, wish: Any) -> ColumnRequest | None:
    """Return what the reader wants; None when it wants rows. Raises ValueError when its wish is malformed."""
    accepted = message.get(hdr, ACCEPT) if hdr else None
    if accepted is None or MEDIA_TYPE not in {part.partition(b";")[0].strip() for part in accepted.split(b",")}:
        return None
    if wish is None:
        return ColumnRequest()
    if not isinstance(wish, dict):
        raise ValueError("not an object")  # noqa: TRY004  (what a client sent)
    message_bytes = _number(wish, "message_bytes", MESSAGE_BYTES_DEFAULT)
    if message_bytes < MESSAGE_BYTES_MIN:
        return None
    return ColumnRequest(
        message_bytes=min(message_bytes, MESSAGE_BYTES_MAX),
        up_to_seq=_number(wish, "up_to_seq", 0),
        filters=tuple(subject.encode() for subject in _words(wish, "filters", FILTERS_MAX)),
        wanted=_wanted(wish),
    )


def _wanted(wish: dict[str, Any]) -> int:
    if wish.get("select") is None:
        return EVERYTHING
    wanted = 0
    for name in _words(wish, "select", len(SELECTED)):
        if name not in SELECTED:
            raise ValueError(f"there is no column {name!r}")
        wanted |= SELECTED[name]
    return wanted


def _number(wish: dict[str, Any], name: str, absent: int) -> int:
    value = wish.get(name, absent)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} is not a number")
    return value


def _words(wish: dict[str, Any], name: str, count_max: int) -> list[str]:
    value = wish.get(name, [])
    if not isinstance(value, list) or len(value) > count_max or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{name} is not a list of words")
    return value
