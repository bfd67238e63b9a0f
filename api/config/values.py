"""The types of values in a configuration file: one function for each, with the key's name for its error.

A wrong value raises OptionsError with one line; config/file.py adds the place.
"""

import math
from typing import Any

from jetraft.api.config.build import OptionsError, split_url
from jetraft.api.config.grammar import Table
from jetraft.store.model.clock import NS_PER_S

DURATION_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
TYPES = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
UNITS_LONGEST_FIRST = ("ns", "us", "µs", "ms", "s", "m", "h")  # so that "ms" is not read as "m"


def duration_ns(key: str, value: Any) -> int:
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


def signed_duration_ns(key: str, value: Any) -> int:
    """The same, of which one below zero stands for the default."""
    if isinstance(value, str) and value.startswith("-"):
        return -duration_ns(key, value[1:])
    return duration_ns(key, value)


def integer(key: str, value: Any) -> int:
    """An integer; booleans and strings are refused."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionsError(f"{key}: expected a number, got {value!r}")
    return value


def boolean(key: str, value: Any) -> bool:
    """A boolean; the grammar has parsed `true`, `yes`, `on` and their opposites."""
    if not isinstance(value, bool):
        raise OptionsError(f"{key}: expected true or false, got {value!r}")
    return value


def text(key: str, value: Any) -> str:
    """A string; a number is refused, as nats-server does."""
    if not isinstance(value, str):
        raise OptionsError(f"{key}: expected a string, got {value!r}")
    return value


def secret_text(key: str, value: Any) -> str:
    """A string that no error shows."""
    if not isinstance(value, str):
        raise OptionsError(f"{key}: expected a string, got {TYPES.get(type(value), 'a map')}")
    return value


def texts(key: str, value: Any) -> tuple[str, ...]:
    """A list of strings, or one string."""
    return tuple(text(key, item) for item in (value if isinstance(value, list) else [value]))


def cipher(key: str, value: Any) -> str:
    """`aes` or `chachapoly`, with the alias `chacha`."""
    name = {"chacha": "chachapoly"}.get(text(key, value).lower(), str(value).lower())
    if name not in ("aes", "chachapoly"):
        raise OptionsError(f'Unknown cipher type: "{value}"')
    return name


def address(key: str, value: Any, *, default_port: int) -> tuple[str, int]:
    """Host and port, from `host:port`, `:port`, a port alone, or a URL."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "", value
    host, port, _ = split_url(text(key, value), default_port=default_port)
    return host, port


def table(key: str, value: Any) -> Table:
    """A map."""
    if not isinstance(value, Table):
        raise OptionsError(f"expected {key} to be a map, got {value!r}")
    return value


def pairs(key: str, value: Any) -> tuple[tuple[str, str], ...]:
    """A map of strings, sorted by key."""
    return tuple(sorted((name, text(f"{key}.{name}", item)) for name, item in table(key, value).items()))
