"""The types of values in a configuration file: one function for each, with the key's name for its error.

A wrong value raises OptionsError with one line; config/file.py adds the place.
"""

import math
import re

from jetraft.api.config.gotypes import go_type, wrong_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, split_url
from jetraft.api.options.options import LOG_FORMATS
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gosyntax import go_quote

DURATION_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
TYPES = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
UNITS_OF_SIZE = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PORT = re.compile(r"[-+]?[0-9]{1,9}")
SIGNED = re.compile(r"[-+]?[0-9]{1,18}")
INT32_MAX = (1 << 31) - 1
UNITS_LONGEST_FIRST = ("ns", "us", "µs", "ms", "s", "m", "h")  # so that "ms" is not read as "m"


def duration_ns(key: str, value: object) -> int:
    """A duration in nanoseconds, from `2m`, `1h30m`, `250ms`, or a number of seconds."""
    wrong = OptionsError(f'{key}: invalid duration "{value}"')
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    if not isinstance(value, str):
        return int(value * NS_PER_S)
    total, rest = 0.0, value
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        unit = next((unit for unit in UNITS_LONGEST_FIRST if rest[digits:].startswith(unit)), "")
        if not unit:
            raise wrong
        try:
            total += float(rest[:digits]) * DURATION_UNITS_NS[unit]
        except ValueError:
            raise wrong from None
        rest = rest[digits + len(unit) :]
    if not value or not math.isfinite(total):
        raise wrong
    return int(total)


def signed_duration_ns(key: str, value: object) -> int:
    """The same, of which one below zero stands for the default."""
    if isinstance(value, str) and value.startswith("-"):
        return -duration_ns(key, value[1:])
    return duration_ns(key, value)


def go_duration_ns(key: str, value: object) -> int:
    """A duration that has to be a string, in nats-server's words where it is none; it may be below zero."""
    if not isinstance(value, str):
        raise wrong_type(value, "string")
    try:
        return signed_duration_ns("time", value)
    except OptionsError as error:
        raise OptionsError(f"error parsing {key}: {error}") from None


def integer(key: str, value: object) -> int:
    """An integer; booleans and strings are refused."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionsError(f"{key}: expected a number, got {value!r}")
    return value


def boolean(key: str, value: object) -> bool:
    """A boolean; the grammar has parsed `true`, `yes`, `on` and their opposites."""
    if not isinstance(value, bool):
        raise OptionsError(f"{key}: expected true or false, got {value!r}")
    return value


def log_format(key: str, value: object) -> str:
    """The form of log lines."""
    if value not in LOG_FORMATS:
        raise OptionsError(f"unknown {key}: {value!r}; there are {', '.join(LOG_FORMATS)}")
    return str(value)


def text(key: str, value: object) -> str:
    """A string; a number is refused, as nats-server does."""
    if not isinstance(value, str):
        raise OptionsError(f"{key}: expected a string, got {value!r}")
    return value


def secret_text(key: str, value: object) -> str:
    """A string that no error shows."""
    if not isinstance(value, str):
        raise OptionsError(f"{key}: expected a string, got {TYPES.get(type(value), 'a map')}")
    return value


def texts(key: str, value: object) -> tuple[str, ...]:
    """A list of strings, or one string."""
    return tuple(text(key, item) for item in (value if isinstance(value, list) else [value]))


def name_without_spaces(key: str, value: object) -> str:
    """The name of a server or a cluster."""
    found = text(key, value)
    if " " in found:
        raise OptionsError(f"{key.replace('_', ' ')} cannot contain spaces")
    return found


def cipher(key: str, value: object) -> str:
    """`aes` or `chachapoly`, with the alias `chacha`."""
    name = {"chacha": "chachapoly"}.get(text(key, value).lower(), str(value).lower())
    if name not in ("aes", "chachapoly"):
        raise OptionsError(f'Unknown cipher type: "{value}"')
    return name


def address(key: str, value: object, *, default_port: int) -> tuple[str, int]:
    """Host and port, from `host:port`, `:port`, a port alone, or a URL."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "", value
    host, port, _ = split_url(text(key, value), default_port=default_port)
    return host, port


def host_port(value: object) -> tuple[str, int]:
    """Host and port of `host:port`, `[host]:port`, `:port` or a port alone. Raises OptionsError as nats-server does."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "", value
    if not isinstance(value, str):
        raise OptionsError(f"expected port or host:port, got {go_type(value)}")
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (not bracketed and set(host) & set(":[]")):
        raise OptionsError(f"could not parse address string {go_quote(value)}")
    if not PORT.fullmatch(port):
        raise OptionsError(f"could not parse port {go_quote(port)}")
    return host.strip("[]"), int(port)


def size_bytes(shown: str, value: object) -> int:
    """Bytes, as a number or as a string in units of 1024, `10G`. `shown` is how nats-server's errors name the key."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise OptionsError(f"{shown} must be int64 or string")
    if isinstance(value, int):
        return value
    if not value:
        return 0
    number, unit = value[:-1], value[-1]
    if not SIGNED.fullmatch(number):
        raise OptionsError(f"{shown} strconv.ParseInt: parsing {go_quote(number)}: invalid syntax")
    if unit not in UNITS_OF_SIZE:
        raise OptionsError(f"{shown} sizes defined as strings must end in K, M, G, T")
    return int(number) * UNITS_OF_SIZE[unit]


def bounded_bytes(key: str, value: object) -> int:
    """A size that nats-server keeps in 32 bits."""
    found = integer(key, value)
    if found > INT32_MAX:
        raise OptionsError(f"{key} value is too big")
    return found


def table(key: str, value: object) -> Table:
    """A map."""
    if not isinstance(value, Table):
        raise OptionsError(f"expected {key} to be a map, got {value!r}")
    return value


def pairs(key: str, value: object) -> tuple[tuple[str, str], ...]:
    """A map of strings, sorted by key."""
    return tuple(sorted((name, text(f"{key}.{name}", item)) for name, item in table(key, value).items()))
