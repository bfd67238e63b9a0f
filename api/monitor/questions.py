"""Questions of pages: one value for each page, read from the arguments of a URL or from the body of a request.

Names, types and texts of errors are nats-server's. An argument that nats-server serves and this server does not is
refused; what nats-server does not know either is passed over.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs

from jetraft.store.model.encoding.fields import (
    FLAG,
    INT,
    TEXT,
    UINT64,
    WIRE,
    DecodeError,
    Int,
    ListOf,
    WireField,
    decode_object,
    mismatch,
)
from jetraft.store.model.encoding.gojson import JsonSyntaxError, Object, parse_values
from jetraft.store.model.gosyntax import go_quote

QUERY: Final = "query"  # of an attribute's metadata: its name in a URL
BODY_BYTES_MAX: Final = 64 * 1024  # of a request; the largest of nats-server's has some hundred
TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))  # as Go's ParseBool reads them
FALSE: Final = frozenset(("", "0", "f", "F", "FALSE", "false", "False"))
CONN_STATE: Final = Int("server.ConnState", -(1 << 63), (1 << 63) - 1)
TEXTS: Final = ListOf(TEXT, "[]string")
STATES: Final = {"": 0, "open": 0, "closed": 1, "any": 2, "all": 2}
INT_DIGITS_MAX: Final = 18
STREAMS_MAX: Final = 1000  # of /metrics, which is made in one turn
CONSUMERS_SHOWN: Final = 200
ROWS_SHOWN: Final = 100  # of the lists of the dashboard
ROWS_MAX: Final = 500
CONSUMERS_MAX: Final = 1000

T = TypeVar("T")


class ArgumentError(Exception):
    """An argument that is refused with status 400; the text is one line."""


class PageError(Exception):
    """A page that cannot be made; the text is one line. HTTP: `status`, in a request always code 500."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


def asked(kind: Any, default: Any = None, *, query: str = "", name: str = "") -> Any:
    """An attribute of a question; `query` is its name in a URL, `name` in a body if it differs from the attribute's."""
    return attrs.field(default=default, metadata={WIRE: WireField(kind, omitempty=False, name=name), QUERY: query})


@attrs.frozen(kw_only=True, slots=True)
class ConnzQuestion:
    """/connz."""

    sort: str = asked(TEXT, "", query="sort")
    username: bool = asked(FLAG, default=False, query="auth", name="auth")
    subscriptions: bool = asked(FLAG, default=False)
    subscriptions_detail: bool = asked(FLAG, default=False)
    offset: int = asked(INT, 0, query="offset")
    limit: int = asked(INT, 0, query="limit")
    cid: int = asked(UINT64, 0, query="cid")
    mqtt_client: str = asked(TEXT, "", query="mqtt_client")
    state: int = asked(CONN_STATE, 0)
    user: str = asked(TEXT, "", query="user")
    acc: str = asked(TEXT, "", query="acc")
    filter_subject: str = asked(TEXT, "", query="filter_subject")


@attrs.frozen(kw_only=True, slots=True)
class SubszQuestion:
    """/subsz."""

    offset: int = asked(INT, 0, query="offset")
    limit: int = asked(INT, 0, query="limit")
    subscriptions: bool = asked(FLAG, default=False, query="subs")
    account: str = asked(TEXT, "", query="acc")
    test: str = asked(TEXT, "", query="test")


@attrs.frozen(kw_only=True, slots=True)
class RoutezQuestion:
    """/routez."""

    subscriptions: bool = asked(FLAG, default=False)
    subscriptions_detail: bool = asked(FLAG, default=False)


@attrs.frozen(kw_only=True, slots=True)
class AccountzQuestion:
    """/accountz."""

    account: str = asked(TEXT, "", query="acc")


@attrs.frozen(kw_only=True, slots=True)
class StatzQuestion:
    """/accstatz; over HTTP it is about all accounts."""

    accounts: tuple[str, ...] = asked(TEXTS, ())
    include_unused: bool = asked(FLAG, default=False, query="unused")


@attrs.frozen(kw_only=True, slots=True)
class JszQuestion:
    """/jsz."""

    account: str = asked(TEXT, "", query="acc")
    accounts: bool = asked(FLAG, default=False, query="accounts")
    streams: bool = asked(FLAG, default=False, query="streams")
    consumer: bool = asked(FLAG, default=False, query="consumers")
    direct_consumer: bool = asked(FLAG, default=False, query="direct-consumers")
    config: bool = asked(FLAG, default=False, query="config")
    leader_only: bool = asked(FLAG, default=False, query="leader-only")
    offset: int = asked(INT, 0, query="offset")
    limit: int = asked(INT, 0, query="limit")
    raft: bool = asked(FLAG, default=False, query="raft")
    stream_leader_only: bool = asked(FLAG, default=False, query="stream-leader-only")


@attrs.frozen(kw_only=True, slots=True)
class RaftzQuestion:
    """/raftz."""

    account: str = asked(TEXT, "", query="acc")
    group: str = asked(TEXT, "", query="group")


@attrs.frozen(kw_only=True, slots=True)
class QueuesQuestion:
    """/ipqueuesz."""

    all: bool = asked(FLAG, default=False, query="all")
    filter: str = asked(TEXT, "", query="queues")


@attrs.frozen(kw_only=True, slots=True)
class HealthQuestion:
    """/healthz: of the whole node, or whether this account, stream or consumer is there too."""

    js_enabled_only: bool = asked(FLAG, default=False, query="js-enabled-only", name="js-enabled-only")
    js_server_only: bool = asked(FLAG, default=False, query="js-server-only", name="js-server-only")
    js_meta_only: bool = asked(FLAG, default=False, query="js-meta-only", name="js-meta-only")
    details: bool = asked(FLAG, default=False, query="details")
    account: str = asked(TEXT, "", query="account")
    stream: str = asked(TEXT, "", query="stream")
    consumer: str = asked(TEXT, "", query="consumer")

    @property
    def refusal(self) -> str:
        """Why the names do not go together; empty if they do."""
        if self.consumer and not self.stream:
            return '"stream" must not be empty when checking consumer health'
        if self.stream and not self.account:
            return '"account" must not be empty when checking stream health'
        return ""


@attrs.frozen(kw_only=True, slots=True)
class LeafzQuestion:
    """/leafz."""

    subscriptions: bool = asked(FLAG, default=False, query="subs")
    account: str = asked(TEXT, "", query="acc")


@attrs.frozen(kw_only=True, slots=True)
class GatewayzQuestion:
    """/gatewayz. There are none, so what is asked of them changes nothing; a wrong value is refused."""

    name: str = asked(TEXT, "", query="gw_name")
    accounts: bool = asked(FLAG, default=False, query="accs")
    account_name: str = asked(TEXT, "", query="acc_name")


@attrs.frozen(kw_only=True, slots=True)
class MetricsQuestion:
    """/metrics, over HTTP only: of all accounts or one, with so many streams and consumers at most."""

    acc: str = asked(TEXT, "", query="acc")
    streams: int = asked(INT, STREAMS_MAX, query="streams")
    consumers: int = asked(INT, CONSUMERS_SHOWN, query="consumers")

    @property
    def streams_max(self) -> int:
        """How many streams are shown at most."""
        return min(max(self.streams, 0), STREAMS_MAX)

    @property
    def consumers_max(self) -> int:
        """How many consumers are shown at most."""
        return min(max(self.consumers, 0), CONSUMERS_MAX)


@attrs.frozen(kw_only=True, slots=True)
class ListQuestion:
    """The lists of the dashboard, over HTTP only: a part of the rows, those whose names have the words of `filter`."""

    acc: str = asked(TEXT, "", query="acc")
    stream: str = asked(TEXT, "", query="stream")
    filter: str = asked(TEXT, "", query="filter")
    sort: str = asked(TEXT, "", query="sort")
    descending: bool = asked(FLAG, default=False, query="desc")
    offset: int = asked(INT, 0, query="offset")
    limit: int = asked(INT, ROWS_SHOWN, query="limit")

    @property
    def first(self) -> int:
        """The number of the first row, from 0."""
        return max(self.offset, 0)

    @property
    def rows_max(self) -> int:
        """How many rows are shown at most."""
        return min(max(self.limit, 0), ROWS_MAX)

    def matcher(self) -> Callable[..., bool]:
        """A function that says whether one of some names has the text, in whatever case."""
        wanted = self.filter.casefold()
        return lambda *names: not wanted or any(wanted in name.casefold() for name in names)


@attrs.frozen(kw_only=True, slots=True)
class NoQuestion:
    """A page without arguments."""


def from_query(cls: type[T], arguments: Mapping[str, str]) -> T:
    """The question of a URL. Raises ArgumentError."""
    found: dict[str, Any] = {}
    for field in attrs.fields(cls):  # type: ignore[arg-type, unused-ignore]  # a question is an attrs class
        query, how = field.metadata[QUERY], field.metadata[WIRE]
        text = arguments.get(query, "") if query else ""
        if how.kind == FLAG and query:
            found[field.name] = boolean(arguments, query)
        elif text and isinstance(how.kind, Int):
            found[field.name] = number(query, text, how)
        elif text:
            found[field.name] = text
    if cls in (ConnzQuestion, RoutezQuestion):
        found["subscriptions_detail"] = arguments.get("subs", "").lower() == "detail"
        found["subscriptions"] = found["subscriptions_detail"] or boolean(arguments, "subs")
    if cls is ConnzQuestion:
        found["state"] = _state(arguments.get("state", ""))
    return cls(**found)


def _state(text: str) -> int:
    state = STATES.get(text.lower())
    if state is None:
        raise ArgumentError(f"Error decoding state for {text}")
    return state


def boolean(arguments: Mapping[str, str], name: str) -> bool:
    """Return an argument as Go's ParseBool reads it; False without it. Raises ArgumentError."""
    text = arguments.get(name, "")
    if text in TRUE or text in FALSE:
        return text in TRUE
    said = f"strconv.ParseBool: parsing {go_quote(text)}: invalid syntax"
    raise ArgumentError(f"Error decoding boolean for '{name}': {said}")


def number(name: str, text: str, how: WireField) -> int:
    """Return an argument as Go's Atoi or ParseUint reads it. Raises ArgumentError."""
    signed = how.kind == INT
    digits = text[1:] if signed and text[:1] in ("+", "-") else text
    kind, parser = ("int", "strconv.Atoi") if signed else ("uint64", "strconv.ParseUint")
    if not (digits.isascii() and digits.isdecimal()):
        raise ArgumentError(f"Error decoding {kind} for '{name}': {parser}: parsing {go_quote(text)}: invalid syntax")
    if len(digits) > INT_DIGITS_MAX:
        raise ArgumentError(
            f"Error decoding {kind} for '{name}': {parser}: parsing {go_quote(text)}: value out of range"
        )
    return int(text)


def pairs_of(body: bytes, go_name: str) -> Object:
    """The fields of the body of a request. Raises ArgumentError with the text of Go's json.Unmarshal."""
    if not body:
        return Object()
    if len(body) > BODY_BYTES_MAX:
        raise ArgumentError(f"a request has {BODY_BYTES_MAX} bytes at most")
    try:
        values = parse_values(body)
    except JsonSyntaxError as error:
        raise ArgumentError(_trailing(body) or _without_offset(str(error))) from None
    if len(values) > 1:
        raise ArgumentError(_trailing(body) or "invalid character after top-level value")
    if not values:
        raise ArgumentError("unexpected end of JSON input")
    if values[0] is None:
        return Object()
    if not isinstance(values[0], Object):
        raise ArgumentError(str(mismatch(values[0], (go_name,), "")))
    return values[0]


def _without_offset(text: str) -> str:
    text = text.partition(" at offset ")[0]
    return "unexpected end of JSON input" if text == "unexpected EOF" else text


def _trailing(body: bytes) -> str:
    """The error for what follows a whole value; empty when the first value is not whole."""
    text = body.decode(errors="replace").lstrip(" \t\r\n")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return ""
    rest = text[end:].lstrip(" \t\r\n")
    return f"invalid character '{rest[0]}' after top-level value" if rest else ""


def from_pairs(cls: type[T], pairs: Object, go_name: str) -> T:
    """A value from the fields of a body that belong to it; others are passed over, as in Go. Raises ArgumentError."""
    how = {field.name: field.metadata[WIRE].name or field.name for field in attrs.fields(cls)}  # type: ignore[arg-type, unused-ignore]
    known = {name.casefold() for name in how.values()}
    mine = Object((name, value) for name, value in pairs if name.casefold() in known)
    try:
        return decode_object(cls, mine, path=(go_name,))
    except DecodeError as error:
        raise ArgumentError(str(error)) from None
