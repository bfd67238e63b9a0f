"""Subscriptions as the pages show them, and the comparison of two subjects with wildcards."""

from collections.abc import Callable
from heapq import merge
from typing import Any, Final

from jetraft.api.monitor.steps import Rows, Steps
from jetraft.api.plane._plane import Plane

# As the plane gives it: account, subject, queue, sid, messages delivered, limit of them (0: none), cid (0: a sink).
Row = tuple[bytes, bytes, bytes, bytes, int, int, int]


ROWS_PART: Final = 256  # that are looked for, or put in order, in a step: some 0.2 ms


def subscriptions_of(plane: Plane, cid: int, most: int | None = None) -> Steps[list[Row]]:
    """The subscriptions of a connection, all or at least the first `most` of them; none when it has ended.

    Those that come or go between two steps are there or not.
    """
    rows, place = dict[bytes, Row](), 0
    while True:
        buckets, place, more = plane.subscriptions_from(cid, place, ROWS_PART)
        rows.update((row[3], row) for row in more)
        if place >= buckets or (most is not None and len(rows) >= most):
            return list(rows.values())
        yield 0


def texts(subjects: list[bytes]) -> Steps[Rows]:
    """Subjects as text, in order: sorted in parts, which are merged when they are written."""
    parts = []
    for at in range(0, len(subjects), ROWS_PART):
        parts.append(sorted(text(one) for one in subjects[at : at + ROWS_PART]))
        yield 0
    return Rows(merge(*parts))


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
