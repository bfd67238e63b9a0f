"""The text of a payload's fault, for every kind of schema: a place and the expected value, all printable."""

from typing import Final

TEXT_CHARS_MAX: Final = 256  # of an answer
PATH_CHARS_MAX: Final = 128  # of it, for where the error is


def at(path: str, expected: str) -> str:
    """A fault with its place, which is empty for the payload itself."""
    where = shown(path, PATH_CHARS_MAX)
    return f"{where}: {expected}" if where else expected


def shown(text: str, chars_max: int) -> str:
    """A text without what a terminal or a log would take for more than text, and not longer than this."""
    plain = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text[: chars_max + 1])
    return plain if len(plain) <= chars_max else plain[: chars_max - 3] + "..."
