"""The options of the data source: names, defaults and errors.

Spark passes the options as strings with case-insensitive names. They are parsed once, when the data source is made, so
that an error is raised by `.load()` and not in a task. The frozen result is part of each partition.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import attrs

from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.times import rfc3339_of

DEFAULT_PORT = 4222
STREAM_NAME = re.compile(r"[^\s.*>/\\\x00]{1,255}")

# A failover takes a few seconds (jetraft: under 3, nats-server: up to 10); 30 s are enough for the restart of a node.
RETRY_TIMEOUT_S = 30.0
# nats.py waits 2 s for a connection, the Go client 2 s, Kafka's socket setup 10 s.
CONNECT_TIMEOUT_S = 3.0


@attrs.frozen(kw_only=True, slots=True)
class Position:
    """A position in a stream, as in the options; exactly one of the three fields is set."""

    keyword: str | None = None  # "earliest" or "latest"
    stream_seq: int | None = None
    time: str | None = None  # RFC 3339, UTC


@attrs.frozen(kw_only=True, slots=True)
class Access:
    """How to connect to the servers and log in; the same for all of them."""

    servers: tuple[str, ...]  # URLs, nats://host:port or tls://host:port
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    retry_timeout_s: float = RETRY_TIMEOUT_S


@attrs.frozen(kw_only=True, slots=True)
class Options:
    """All options of a query."""

    access: Access
    stream: str
    starting: Position = Position(keyword="earliest")  # the default of NATS consumers: deliver all
    ending: Position | None = None  # None: not given
    rows_per_trigger_max: int | None = None
    fail_on_data_loss: bool = True
    partitions_min: int = 1
    stats_dir: str | None = None


def parse_options(given: Mapping[str, str]) -> Options:
    """Return the parsed options. Raises BadOptionError, naming the option."""
    values = {name.lower(): value for name, value in given.items()}
    for name in values:
        if name not in KNOWN:
            raise BadOptionError(unknown_option(name))
    for name in ("servers", "stream"):
        if not values.get(name, "").strip():
            raise BadOptionError(f"option {name!r} is required")
    parsed = {name.lower(): _parse_one(name, values[name.lower()]) for name in PARSERS if name.lower() in values}
    if ("user" in parsed) != ("password" in parsed):
        raise BadOptionError("options 'user' and 'password' belong together: one of them is missing")
    if "user" in parsed and "token" in parsed:
        raise BadOptionError("options 'user' and 'token' exclude each other")
    if ("tlscertfile" in parsed) != ("tlskeyfile" in parsed):
        raise BadOptionError("options 'tlsCertFile' and 'tlsKeyFile' belong together: one of them is missing")
    access = Access(**{field: parsed[name] for name, field in ACCESS_FIELDS.items() if name in parsed})
    return Options(access=access, **{field: parsed[name] for name, field in OPTION_FIELDS.items() if name in parsed})


def unknown_option(name: str) -> str:
    """Return the message for an unknown option, with the most similar known one."""
    near = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"; did you mean {KNOWN[near[0]]!r}?" if near else f"; known options: {', '.join(sorted(KNOWN.values()))}"
    return f"unknown option {name!r}{hint}"


def _parse_one(name: str, text: str) -> Any:
    try:
        return PARSERS[name](text.strip())
    except ValueError as error:
        shown = "..." if name in SECRETS else repr(text)
        raise BadOptionError(f"option {name!r}: {error}, got {shown}") from None


def parse_servers(text: str) -> tuple[str, ...]:
    """Return the server URLs of a comma-separated list of `host`, `host:port`, `nats://...` and `tls://...`."""
    urls = [part.strip() for part in text.split(",") if part.strip()]
    if not urls:
        raise ValueError("needs at least one server such as nats://127.0.0.1:4222")
    return tuple(_parse_server(url) for url in urls)


def _parse_server(text: str) -> str:
    scheme, separator, rest = text.rpartition("://")
    scheme = scheme or "nats"
    if scheme not in {"nats", "tls"} or (separator and not rest):
        raise ValueError("servers look like nats://host:port or tls://host:port")
    host, colon, port = rest.rstrip("/").rpartition(":")
    if not colon or port.endswith("]"):
        host, port = rest.rstrip("/"), str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16 or "@" in host:
        raise ValueError("servers look like nats://host:port (credentials go into the options user, password, token)")
    return f"{scheme}://{host}:{port}"


def parse_stream(text: str) -> str:
    """Return a valid stream name."""
    if not STREAM_NAME.fullmatch(text):
        raise ValueError("a stream name has no spaces, dots, wildcards or slashes")
    return text


def parse_starting(text: str) -> Position:
    """Return where reading starts: earliest, latest, a sequence or a time."""
    return _parse_position(text, ("earliest", "latest"))


def parse_ending(text: str) -> Position:
    """Return where a batch ends: latest, a sequence or a time (exclusive)."""
    return _parse_position(text, ("latest",))


def _parse_position(text: str, keywords: tuple[str, ...]) -> Position:
    if text.lower() in keywords:
        return Position(keyword=text.lower())
    if text.isascii() and text.isdigit():
        return _sequence(int(text))
    if text.startswith("{"):
        return _parse_json_position(text)
    return Position(time=_time(text, keywords))


def _parse_json_position(text: str) -> Position:
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError('expected JSON such as {"seq": 100} or {"time": "2026-01-01T00:00:00Z"}') from None
    match value:
        case {"seq": int() as seq, **rest} if not rest and not isinstance(seq, bool):
            return _sequence(seq)
        case {"time": str() as time, **rest} if not rest:
            return Position(time=_time(time, ()))
    raise ValueError('expected {"seq": 100} or {"time": "2026-01-01T00:00:00Z"}')


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


def parse_bool(text: str) -> bool:
    """Return the value of a yes/no option."""
    if text.lower() not in {"true", "false"}:
        raise ValueError("expected true or false")
    return text.lower() == "true"


def parse_count(text: str) -> int:
    """Return a whole number of at least 1."""
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) < 1 << 63:
        raise ValueError("expected a whole number of at least 1")
    return int(text)


def parse_seconds(text: str) -> float:
    """Return a duration in seconds, from `5`, `5s` or `500ms`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)?", text)
    seconds = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else 0.0
    if seconds <= 0:
        raise ValueError("expected seconds such as 5, 0.5 or 500ms")
    return seconds


def parse_text(text: str) -> str:
    """Return a text that is not empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


PARSERS: dict[str, Callable[[str], Any]] = {
    "servers": parse_servers,
    "stream": parse_stream,
    "startingOffsets": parse_starting,
    "endingOffsets": parse_ending,
    "maxRecordsPerTrigger": parse_count,
    "failOnDataLoss": parse_bool,
    "minPartitions": parse_count,
    "user": parse_text,
    "password": parse_text,
    "token": parse_text,
    "tls": parse_bool,
    "tlsCaFile": parse_text,
    "tlsCertFile": parse_text,
    "tlsKeyFile": parse_text,
    "connectTimeout": parse_seconds,
    "retryTimeout": parse_seconds,
    "statsDir": parse_text,
}
KNOWN: dict[str, str] = {name.lower(): name for name in PARSERS}
SECRETS = frozenset({"password", "token"})
ACCESS_FIELDS = {
    "servers": "servers",
    "user": "user",
    "password": "password",
    "token": "token",
    "tls": "tls",
    "tlscafile": "tls_ca_file",
    "tlscertfile": "tls_cert_file",
    "tlskeyfile": "tls_key_file",
    "connecttimeout": "connect_timeout_s",
    "retrytimeout": "retry_timeout_s",
}
OPTION_FIELDS = {
    "stream": "stream",
    "startingoffsets": "starting",
    "endingoffsets": "ending",
    "maxrecordspertrigger": "rows_per_trigger_max",
    "failondataloss": "fail_on_data_loss",
    "minpartitions": "partitions_min",
    "statsdir": "stats_dir",
}
