r"""Subjects: which are valid, and which of them a stream keeps.

The check of rows is one regular expression for both, so that it runs in Arrow's compiled code over a whole column. A
subject with a blank or a line end would be read as other protocol, so none is sent unchecked.
"""

import re
from collections.abc import Sequence

# Of a literal subject: neither a blank nor a control character, and not * or > (which nats-server would take within a
# token, and which no filter could name).
TOKEN = r"[^\x00-\x20\x7f.*>]+"  # noqa: S105  (a token of a subject)
LITERAL = re.compile(rf"{TOKEN}(?:\.{TOKEN})*")
SUBJECT_BYTES_MAX = 2000  # a protocol line has 4,096 bytes in nats-server, and the reply subject and sizes are in it


def kept_pattern(filters: Sequence[str]) -> str:
    """Return the regular expression (RE2 and Python) of the valid subjects that one of these filters matches."""
    return "^(?:" + "|".join(_filter_pattern(one) for one in filters) + ")$"


def _filter_pattern(one: str) -> str:
    parts = []
    for token in one.split("."):
        if token == "*":  # noqa: S105  (a wildcard)
            parts.append(TOKEN)
        elif token == ">":  # noqa: S105
            parts.append(rf"{TOKEN}(?:\.{TOKEN})*")
        else:
            parts.append("".join(char if char.isalnum() and char.isascii() else _quoted(char) for char in token))
    return r"\.".join(parts)


def _quoted(char: str) -> str:
    """RE2 takes a backslash before ASCII punctuation only."""
    return "\\" + char if char.isascii() else char


def covers(one: str, other: str) -> bool:
    """Whether each subject that `other` matches, a literal or a filter, is matched by `one`."""
    mine, theirs = one.split("."), other.split(".")
    for place, token in enumerate(mine):
        if token == ">":  # noqa: S105
            return len(theirs) > place
        if place >= len(theirs) or theirs[place] == ">" or (token != "*" and token != theirs[place]):  # noqa: S105
            return False
    return len(mine) == len(theirs)
