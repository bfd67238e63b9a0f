"""Subscriptions as the pages show them, and the comparison of two subjects with wildcards."""

from collections.abc import Callable
from typing import Any

# As the plane gives it: account, subject, queue, sid, messages delivered, limit of them (0: none), cid (0: a sink).
Row = tuple[bytes, bytes, bytes, bytes, int, int, int]


def text(given: bytes) -> str:
    """Bytes of the protocol as text."""
    return given.decode(errors="replace")


def detail(row: Row, *, name_of: Callable[[str], str] | None = None) -> dict[str, Any]:
    """One subscription; on pages about several accounts with its own, which `name_of` gives the name of."""
    name, subject, queue, sid, msgs, limit, cid = row
    head = {} if name_of is None else {"account": text(name), "account_tag": name_of(text(name))}
    return {
        **head,
        "subject": text(subject),
        **({"qgroup": text(queue)} if queue else {}),
        "sid": text(sid),
        "msgs": msgs,
        **({"max": limit} if limit else {}),
        "cid": cid,
    }


def collide(wanted: str, subject: bytes) -> bool:
    """Whether some literal subject matches both patterns."""
    ours, theirs = wanted.split("."), text(subject).split(".")
    for mine, other in zip(ours, theirs, strict=False):
        if ">" in (mine, other):
            return True
        if mine != other and "*" not in (mine, other):
            return False
    return len(ours) == len(theirs)


def is_literal(subject: str) -> bool:
    """Whether a message can be published to it."""
    tokens = subject.split(".")
    return all(tokens) and not any(token in ("*", ">") or any(char in token for char in " \t\r\n") for token in tokens)
