"""Judges histories of registers: has a register an order of the operations, each of them within its time?

The search is Wing and Gong's with Lowe's memory of what was tried: operations are taken out of the history in a
possible order, an operation only while no other one has ended before it began, and a pair of (what is taken, state) is
never tried twice. Histories of one key are judged on their own: that is enough for a map (Herlihy and Wing).

An operation whose answer was lost may have taken place at any time after it began, or not at all. The search is
bounded: a history that needs more steps is undecided, which is not the same as accepted.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

STEPS_MAX: Final = 500_000
NEVER: Final = 1 << 63  # the end of an operation whose answer was lost
ABSENT: Final = ""  # the value of a key before its first write


class Action(enum.Enum):
    """What an operation does with the register."""

    READ = "read"
    WRITE = "write"
    SWAP = "swap"  # from `expected` to `value`, done
    REFUSED = "refused"  # a swap that was refused, as the value was not `expected`


class Judgement(enum.Enum):
    """What came of a search."""

    LINEARIZABLE = "linearizable"
    REFUSED = "not linearizable"
    UNDECIDED = "undecided"


@attrs.frozen(kw_only=True, slots=True)
class Operation:
    """One operation. Written values are unique. `end_ns` is NEVER, and `is_known` False, when the answer was lost."""

    action: Action
    value: str = ABSENT  # read or written
    expected: str = ABSENT  # of a swap
    begin_ns: int
    end_ns: int = NEVER

    @property
    def is_known(self) -> bool:
        """Whether the outcome was told."""
        return self.end_ns != NEVER


def step(operation: Operation, state: str) -> str | None:
    """The state after the operation; None when it cannot have happened there as it was told."""
    match operation.action:
        case Action.READ:
            return state if operation.value == state else None
        case Action.WRITE:
            return operation.value
        case Action.SWAP:
            if state == operation.expected:
                return operation.value
            return None if operation.is_known else state
        case Action.REFUSED:
            return None if state == operation.expected else state


def judge(history: Iterable[Operation], *, steps_max: int = STEPS_MAX) -> Judgement:
    """Whether the operations of one key are those of a register that was absent at first."""
    operations = sorted(_relevant(history), key=lambda operation: operation.begin_ns)
    wanted = sum(1 << place for place, operation in enumerate(operations) if operation.is_known)
    return _search(operations, wanted, steps_max)


def _relevant(history: Iterable[Operation]) -> list[Operation]:
    """A read without an answer says nothing, and nobody waits for it."""
    return [operation for operation in history if operation.is_known or operation.action is not Action.READ]


def _search(operations: Sequence[Operation], wanted: int, steps_max: int) -> Judgement:
    tried = {(0, ABSENT)}
    waiting = [(0, ABSENT)]  # (the operations that have taken place, the state after them)
    steps = 0
    while waiting:
        taken, state = waiting.pop()
        if taken & wanted == wanted:
            return Judgement.LINEARIZABLE
        possible = _possible(operations, taken)
        # What was told and leaves the state as it is may come at once: nothing that follows becomes impossible by it.
        quiet = [place for place in possible if operations[place].is_known and step(operations[place], state) == state]
        for place in quiet[:1] or possible:
            steps += 1
            after = step(operations[place], state)
            if after is not None and (found := (taken | 1 << place, after)) not in tried:
                tried.add(found)
                waiting.append(found)
        if steps > steps_max:
            return Judgement.UNDECIDED
    return Judgement.REFUSED


def _possible(operations: Sequence[Operation], taken: int) -> list[int]:
    """Those that may come next: none that is left has ended before they began. The latest is tried last."""
    found: list[int] = []
    first_end_ns = NEVER
    place = _first_left(taken)
    while place < len(operations) and operations[place].begin_ns <= first_end_ns:
        if not taken >> place & 1:
            found.append(place)
            first_end_ns = min(first_end_ns, operations[place].end_ns)
        place += 1
    found = [place for place in found if operations[place].begin_ns <= first_end_ns]
    return sorted(found, key=lambda place: operations[place].end_ns, reverse=True)  # the last is popped first


def _first_left(taken: int) -> int:
    """The place of the lowest bit that is not set."""
    return (~taken & (taken + 1)).bit_length() - 1
