"""Direct get requests: what a client may ask of any replica, and the statuses that refuse it. Pure.

Source: stream.go (processDirectGetRequest), ADR-31; the texts and the order of the checks were observed on 2.15.1.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import orjson

from jetraft.cluster.streams.gets.column_request import ColumnRequest, parse_column_request
from jetraft.store.model import message
from jetraft.store.model.gotime import parse_time

API_LEVEL: Final = 5  # what this server serves (protocol of nats-server 2.15)
MIN_LAST_SEQ: Final = b"Jetraft-Min-Last-Seq"  # answer from a replica that has this sequence, or refuse
LAST_SEQ: Final = b"Jetraft-Last-Seq"  # how far the replica is

EMPTY: Final = message.status(408, b"Empty Request")
BAD: Final = message.status(408, b"Bad Request")
MALFORMED: Final = message.status(408, b"Malformed Request")
NOT_FOUND: Final = message.status(404, b"Message Not Found")
NO_RESULTS: Final = message.status(404, b"No Results")
TOO_MANY: Final = message.status(413, b"Too Many Results")
DAMAGED: Final = message.status(500, b"Message Damaged")
LEVEL: Final = message.status(412, b"Required Api Level")

KINDS: Final[dict[str, type]] = {
    "seq": int,
    "last_by_subj": str,
    "next_by_subj": str,
    "batch": int,
    "max_bytes": int,
    "start_time": str,
    "multi_last": list,
    "up_to_seq": int,
    "up_to_time": str,
    "no_hdr": bool,
}


UNSIGNED: Final = frozenset({"seq", "up_to_seq"})


class RefusedError(Exception):
    """The request is answered with one status."""

    def __init__(self, hdr: bytes) -> None:
        super().__init__(hdr)
        self.hdr = hdr


@attrs.frozen(kw_only=True, slots=True)
class DirectRequest:
    """A direct get; 0, empty and None are absent."""

    seq: int = 0
    start_time_ns: int | None = None
    last_by_subj: bytes = b""
    next_by_subj: bytes = b""
    multi_last: tuple[bytes, ...] = ()
    batch: int = 0
    max_bytes: int = 0
    up_to_seq: int = 0
    up_to_time_ns: int | None = None
    no_hdr: bool = False
    columns: ColumnRequest | None = None  # of a batch: answer in columns


def parse_direct_request(payload: bytes, hdr: bytes) -> DirectRequest:
    """The request of a DIRECT.GET body. Raises RefusedError."""
    check_level(hdr)
    if not payload:
        raise RefusedError(EMPTY)
    fields, wish = _load(payload)
    request = DirectRequest(
        seq=fields.get("seq", 0),
        start_time_ns=_time(fields, "start_time"),
        last_by_subj=fields.get("last_by_subj", "").encode(),
        next_by_subj=fields.get("next_by_subj", "").encode(),
        multi_last=tuple(subject.encode() for subject in fields.get("multi_last", ())),
        batch=fields.get("batch", 0),
        max_bytes=max(0, fields.get("max_bytes", 0)),
        up_to_seq=fields.get("up_to_seq", 0),
        up_to_time_ns=_time(fields, "up_to_time"),
        no_hdr=fields.get("no_hdr", False),
        columns=_columns(hdr, wish) if "batch" in fields else None,
    )
    _check(request)
    return request


def check_level(hdr: bytes) -> None:
    """Refuse a client that needs a later API than this server has."""
    wanted = message.get(hdr, message.REQUIRED_API_LEVEL) if hdr else None
    if wanted is not None and (not wanted.isdigit() or int(wanted[:9]) > API_LEVEL):
        raise RefusedError(LEVEL)


def position_needed(hdr: bytes) -> int:
    """The last sequence that a replica must have to answer; 0 when the client does not mind."""
    wanted = message.get(hdr, MIN_LAST_SEQ) if hdr else None
    return int(wanted[:19]) if wanted is not None and wanted.isdigit() else 0


def behind(last_seq: int) -> bytes:
    """The status of a replica that is not as far as the client needs. Not 503: clients take that for no responders."""
    return message.status(412, b"Replica Behind", {LAST_SEQ: b"%d" % last_seq})


def _check(request: DirectRequest) -> None:
    by_time = request.start_time_ns is not None
    if not (request.seq or by_time or request.last_by_subj or request.next_by_subj or request.multi_last):
        raise RefusedError(EMPTY)
    last = bool(request.last_by_subj)
    last_and_more = last and bool(request.seq or by_time or request.next_by_subj or request.batch or request.multi_last)
    if last_and_more or (request.seq and by_time) or (request.up_to_seq and request.up_to_time_ns is not None):
        raise RefusedError(BAD)


def _columns(hdr: bytes, wish: Any) -> ColumnRequest | None:
    try:
        return parse_column_request(hdr, wish)
    except ValueError as error:
        raise RefusedError(MALFORMED) from error


def _load(payload: bytes) -> tuple[dict[str, Any], Any]:
    """The fields that nats-server knows, and what is said about columns."""
    try:
        fields: Any = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise RefusedError(MALFORMED) from error
    if not isinstance(fields, dict):
        raise RefusedError(MALFORMED)
    known: dict[str, Any] = {name: value for name, value in fields.items() if name in KINDS and value is not None}
    for name, value in known.items():
        if type(value) is not KINDS[name]:
            raise RefusedError(MALFORMED)
    if any(known.get(name, 0) < 0 for name in UNSIGNED):
        raise RefusedError(MALFORMED)
    if not all(isinstance(subject, str) for subject in known.get("multi_last", ())):
        raise RefusedError(MALFORMED)
    return known, fields.get("columns")


def _time(fields: dict[str, Any], name: str) -> int | None:
    if name not in fields:
        return None
    time_ns = parse_time(fields[name])
    if time_ns is None:
        raise RefusedError(MALFORMED)
    return time_ns
