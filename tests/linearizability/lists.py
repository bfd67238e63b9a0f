"""Judges a list that publishes append to: the order of appends, what looks have seen, and what is there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.linearizability.checker import NEVER


class Append(NamedTuple):
    """A publish; `end_ns` is NEVER and `seq` 0 when it was not acknowledged."""

    value: str
    begin_ns: int
    end_ns: int
    seq: int


class Look(NamedTuple):
    """A linearizable read of the end of the list: its sequence, 0 when the list was empty."""

    begin_ns: int
    end_ns: int
    seq: int


def wrong_in_list(appends: Sequence[Append], looks: Sequence[Look], held: Mapping[int, str]) -> list[str]:
    """What is wrong, in words; nothing of a linearizable list. `held` is what the list had in the end.

    Sequences only grow, so each operation has an order with all others by its sequence; it is enough that none
    contradicts an operation that had ended before it began.
    """
    return [*_content(appends, held), *_order(appends, looks, held)]


def _content(appends: Sequence[Append], held: Mapping[int, str]) -> Iterable[str]:
    sent = {append.value for append in appends}
    for append in appends:
        if append.seq and held.get(append.seq) != append.value:
            yield f"{append.value}, acknowledged at {append.seq}, is lost"
    seen = set[str]()
    for seq, value in held.items():
        if value in seen:
            yield f"{value} is there twice, again at {seq}"
        if value not in sent:
            yield f"{value} at {seq} was never sent"
        seen.add(value)


def _order(appends: Sequence[Append], looks: Sequence[Look], held: Mapping[int, str]) -> Iterable[str]:
    place_of = {value: seq for seq, value in held.items()}
    ends = [(append.end_ns, append.seq, f"{append.value} was acknowledged") for append in appends if append.seq]
    ends += [(look.end_ns, look.seq, "a look was over, and it was seen") for look in looks if look.end_ns != NEVER]
    begins = [(append.begin_ns, place_of[append.value], append) for append in appends if append.value in place_of]
    moments: list[tuple[int, int, int, str | Append | Look]] = [(when, 0, seq, who) for when, seq, who in ends]
    moments += [(when, 1, seq, append) for when, seq, append in begins]
    moments += [(look.begin_ns, 1, look.seq, look) for look in looks if look.end_ns != NEVER]
    highest, by = 0, "nothing"
    for _, is_begin, seq, who in sorted(moments, key=lambda moment: moment[:2]):
        if not is_begin:
            if seq > highest:
                highest, by = seq, str(who)
        elif isinstance(who, Append) and seq <= highest:
            yield f"{who.value} came to {seq}, before {highest}, of which {by} before it was sent"
        elif isinstance(who, Look) and seq < highest:
            words = "was acknowledged before" if "acknowledged" in by else "was seen before"
            yield f"a look found {seq}, though {highest} {words} it began"
    begun = {append.value: append.begin_ns for append in appends}
    for look in looks:
        if look.end_ns != NEVER and look.seq in held and begun.get(held[look.seq], NEVER) > look.end_ns:
            yield f"a look found {look.seq} before it was sent"
