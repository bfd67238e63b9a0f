"""Reads the fields of a token's claims, each as what it has to be. Pure.

A field that is missing or null is empty, as in Go; one of another type is refused without a part of the token in the
text.
"""

from collections.abc import Mapping
from typing import Any


class TokenError(ValueError):
    """A text is not a token that can be believed; the message is one line without a part of the token."""


def string(block: Mapping[str, Any], key: str) -> str:
    """A text. Raises TokenError."""
    value = block.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TokenError(f'"{key}" is not a text')
    return value


def integer(block: Mapping[str, Any], key: str) -> int:
    """An integer of 64 bits. Raises TokenError."""
    value = block.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise TokenError(f'"{key}" is not an integer')
    return value


def flag(block: Mapping[str, Any], key: str) -> bool:
    """A boolean. Raises TokenError."""
    value = block.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise TokenError(f'"{key}" is not a boolean')
    return value


def table(block: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object. Raises TokenError."""
    value = block.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TokenError(f'"{key}" is not an object')
    return value


def items(block: Mapping[str, Any], key: str) -> list[Any]:
    """A list. Raises TokenError."""
    value = block.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TokenError(f'"{key}" is not a list')
    return value


def strings(block: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts. Raises TokenError."""
    found = items(block, key)
    if not all(isinstance(item, str) for item in found):
        raise TokenError(f'"{key}" is not a list of texts')
    return tuple(found)


def tables(block: Mapping[str, Any], key: str) -> tuple[Mapping[str, Any], ...]:
    """A list of objects. Raises TokenError."""
    found = items(block, key)
    if not all(isinstance(item, dict) for item in found):
        raise TokenError(f'"{key}" is not a list of objects')
    return tuple(found)
