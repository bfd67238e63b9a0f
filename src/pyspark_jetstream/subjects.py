"""Subject filters: which subjects match, and the one filter that a server can serve for several. Pure.

A batch direct get takes one filter (`next_by_subj`; ADR-31). For several filters the server is asked for the narrowest
one that covers them all, and the task drops the rest.
"""

import re
from collections.abc import Callable, Sequence

ALL = ">"


def is_filter(text: str) -> bool:
    """Whether this is a subject filter: tokens without blanks, `>` at the end only."""
    tokens = text.split(".")
    return all(token and not re.search(r"\s", token) for token in tokens) and ALL not in tokens[:-1]


def covers(wide: str, narrow: str) -> bool:
    """Whether every subject that matches `narrow` matches `wide`."""
    wider, narrower = wide.split("."), narrow.split(".")
    for position, token in enumerate(wider):
        if token == ALL:
            return position < len(narrower)
        if position >= len(narrower) or narrower[position] == ALL:
            return False
        if token not in {"*", narrower[position]}:
            return False
    return len(wider) == len(narrower)


def cover(filters: Sequence[str]) -> str:
    """Return the narrowest filter that covers all of these; `>` for none."""
    if not filters:
        return ALL
    split = [subject.split(".") for subject in filters]
    common: list[str] = []
    for position in range(min(map(len, split))):
        tokens = {words[position] for words in split}
        if ALL in tokens:
            return ".".join([*common, ALL])
        common.append(tokens.pop() if len(tokens) == 1 else "*")
    if len(set(map(len, split))) == 1:
        return ".".join(common)
    # `a` and `a.b`: `a.>` does not match `a`, so a token less is fixed.
    return ".".join([*common[:-1], ALL])


def matcher(filters: Sequence[str]) -> Callable[[bytes], bool]:
    """Return the test whether a subject matches one of the filters."""
    found = re.compile(b"|".join(_pattern(subject) for subject in filters)).fullmatch
    return lambda subject: found(subject) is not None


def _pattern(subject: str) -> bytes:
    """The regular expression of one filter, over bytes: subjects need not be UTF-8."""
    parts = {"*": rb"[^.]+", ALL: rb"(?s:.+)"}
    return rb"\.".join(parts.get(token) or re.escape(token.encode()) for token in subject.split("."))
