"""Parsers of option values other than positions. Each takes text without surrounding blanks and raises ValueError."""

import re
from collections.abc import Callable
from pathlib import Path

from pyspark_jetstream.positions import STREAM_NAME
from pyspark_jetstream.subjects import is_filter

DEFAULT_PORT = 4222
PREFIX = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
TOKEN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
PATTERN = re.compile(r"[^\s.>/\\\x00]{1,255}")
VALUE = "value"  # the column of decoded payloads
# Only where `columns` or another option names them: nanoseconds since 1970, headers in their order, decoded payloads.
MORE_COLUMNS = ("time_ns", "header_list", VALUE)
ALL_COLUMNS = ("stream_seq", "time", "subject", "headers", "data", "stream")
# As Spark reads sizes: a number with k, m or g, powers of 1024.
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_list(text: str) -> tuple[str, ...]:
    """Return the comma-separated parts, without repetitions."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_servers(text: str) -> tuple[str, ...]:
    """Return the server URLs of a comma-separated list of `host`, `host:port`, `nats://...` and `tls://...`."""
    urls = [part.strip() for part in text.split(",") if part.strip()]
    if not urls:
        raise ValueError("needs at least one server such as nats://127.0.0.1:4222")
    return tuple(_parse_server(url) for url in urls)


def _parse_server(text: str) -> str:
    if "@" in text:
        # Not the text itself: what is before the @ is a password.
        raise SecretInValueError(
            "servers look like nats://host:port (credentials go into the options user, password, token)"
        )
    scheme, separator, rest = text.rpartition("://")
    scheme = scheme or "nats"
    if scheme not in {"nats", "tls"} or (separator and not rest):
        raise ValueError("servers look like nats://host:port or tls://host:port")
    host, colon, port = rest.rstrip("/").rpartition(":")
    if not colon or port.endswith("]"):
        host, port = rest.rstrip("/"), str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError("servers look like nats://host:port")
    return f"{scheme}://{host}:{port}"


class SecretInValueError(ValueError):
    """The value is wrong and may have a password, so it is not shown."""


def parse_stream(text: str) -> tuple[str, ...]:
    """Return a valid stream name, as the only one."""
    if not STREAM_NAME.fullmatch(text):
        raise ValueError("a stream name has no spaces, dots, wildcards or slashes")
    return (text,)


def parse_streams(text: str) -> tuple[str, ...]:
    """Return stream names and patterns, in which `*` is any part of a name."""
    names = parse_list(text)
    if not names or not all(PATTERN.fullmatch(name) for name in names):
        raise ValueError("expected names of streams, or patterns with *, separated by commas")
    return names


def matches(name: str, pattern: str) -> bool:
    """Whether a name has the form of a pattern, in which `*` is any part."""
    return form_of(pattern).fullmatch(name) is not None


def form_of(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def parse_subjects(text: str) -> tuple[str, ...]:
    """Return subject filters."""
    filters = parse_list(text)
    if not filters or not all(is_filter(subject) for subject in filters):
        raise ValueError("expected subjects such as orders.eu.> or orders.*.new, separated by commas")
    return filters


def parse_columns(text: str) -> tuple[str, ...]:
    """Return the names of columns, in the order that the user gave; which ones there are depends on other options."""
    names = parse_list(text)
    if not names:
        raise ValueError(f"expected columns out of {', '.join(ALL_COLUMNS)}")
    return names


def parse_tokens(text: str) -> tuple[str, ...]:
    """Return the names of consecutive tokens of a subject, "" for one that has no name."""
    names = tuple("" if part.strip() == "_" else part.strip() for part in text.split(","))
    given = [name for name in names if name]
    if not given or not all(TOKEN_NAME.fullmatch(name) for name in given) or len({*map(str.lower, given)}) < len(given):
        raise ValueError("expected names of columns, separated by commas, each once; _ for a token without one")
    if taken := [name for name in given if name.lower() in {*ALL_COLUMNS, *MORE_COLUMNS}]:
        raise ValueError(f"{taken[0]!r} is another column")
    return names


def parse_decode(text: str) -> str:
    """Return "true", the number of a schema, or "" for false."""
    found = text.lower()
    if found not in {"true", "false"} and not re.fullmatch(r"[1-9][0-9]?", found):
        raise ValueError("expected true, false, or the number of one of the stream's schemas")
    return "" if found == "false" else found


def parse_mode(text: str) -> bool:
    """Return whether a row that does not fit is null."""
    if text.upper() not in {"PERMISSIVE", "FAILFAST"}:
        raise ValueError("expected FAILFAST or PERMISSIVE")
    return text.upper() == "PERMISSIVE"


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


def parse_bytes(text: str) -> int:
    """Return bytes, from `1000`, `64k`, `16m`, `16mb` or `1g`."""
    match = re.fullmatch(r"(\d{1,15})(?:([kmg])b?|b?)", text.lower())
    size = int(match[1]) * UNITS[match[2] or ""] if match else 0
    if size < 1:
        raise ValueError("expected bytes such as 1000000, 64k, 16m or 1g")
    return size


def parse_seconds(text: str) -> float:
    """Return a duration in seconds, from `5`, `5s`, `500ms`, `15m` or `1h`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|min|m|h)?", text)
    seconds = float(match[1]) * SECONDS[match[2] or ""] if match else 0.0
    if seconds <= 0:
        raise ValueError("expected seconds such as 5, 0.5 or 500ms")
    return seconds


def parse_text(text: str) -> str:
    """Return a text that is not empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


def parse_prefix(text: str) -> str:
    """Return a prefix of subjects, without a dot at its end."""
    if not PREFIX.fullmatch(text.removesuffix(".")):
        raise ValueError("expected tokens such as JS.hub.API, without wildcards")
    return text.removesuffix(".")


def parse_name(text: str) -> str:
    """Return a name that is one token of a subject."""
    if not STREAM_NAME.fullmatch(text):
        raise ValueError("a name has no spaces, dots, wildcards or slashes")
    return text


def parse_file(text: str) -> str:
    """Return the path of a file that can be read."""
    if not text:
        raise ValueError("must not be empty")
    try:
        with Path(text).open("rb"):
            return text
    except OSError as error:
        raise ValueError(f"the file cannot be read ({error.strerror})") from None


Parser = Callable[[str], object]
