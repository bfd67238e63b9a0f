"""How far a node's store is, so that an older copy of it can be told from the one that others have dealt with. Pure.

A copy of a store directory that is put back (a snapshot of a virtual machine, a backup of a disk) is sound, and has
forgotten what the node promised since: votes, and entries that it acknowledged. Nothing in it says so. But the other
nodes remember how far the ledger was when they heard of it last (raft/mesh/store_ages.py).

The number of its last record is not enough: a copy that is put back goes on, and soon has as many. So each start of a
server draws a number, and the ledger has those numbers, each with the place where the ledger was then. A store that has
gone through what others know of has the start that they know, and went on from there no earlier than they know.
"""

from typing import Any, Final, NamedTuple, Self

import attrs

STARTS_MAX: Final = 64  # that a ledger keeps: an older one is compared by the place alone
FORMER_MAX: Final = 8  # ledgers of a node that others remember: each is a disk that was replaced
NO_LEDGER: Final = 0  # in place of one that an operator has given up
U64_MAX: Final = (1 << 64) - 1


class LedgerPlace(NamedTuple):
    """The last durable record of a ledger, which only goes forward."""

    generation: int
    record: int  # of the generation


class StoreStart(NamedTuple):
    """A start of the server: a random number, and where the ledger was."""

    number: int
    place: LedgerPlace


@attrs.frozen(kw_only=True, slots=True)
class StoreAge:
    """A node's report of its store. `starts` are the newest, in order; the last one is that of its process."""

    ledger: int  # random
    starts: tuple[StoreStart, ...]
    place: LedgerPlace  # now

    def after(self, number: int) -> LedgerPlace | None:
        """The ledger's position when the next start came, or now; None when it does not know that start."""
        numbers = [start.number for start in self.starts]
        if number not in numbers:
            return None
        following = numbers.index(number) + 1
        return self.starts[following].place if following < len(numbers) else self.place

    def pack(self) -> list[Any]:
        """Plain values, for `unpack_age`."""
        return [self.ledger, pack_starts(self.starts), *self.place]


@attrs.frozen(kw_only=True, slots=True)
class KnownAge:
    """The furthest that a node's store was ever heard to be. `former` are ledgers that it had before, in order."""

    ledger: int
    start: int
    place: LedgerPlace
    former: tuple[int, ...] = ()

    @classmethod
    def first(cls, age: StoreAge) -> Self:
        """The knowledge of a node that is heard for the first time."""
        return cls(ledger=age.ledger, start=age.starts[-1].number, place=age.place)

    def is_after(self, age: StoreAge) -> bool:
        """Whether a store of that age has not gone through this: it is an older copy, or comes from one."""
        if age.ledger != self.ledger:
            return age.ledger in self.former
        reached = age.after(self.start)
        if reached is None:
            return len(age.starts) < STARTS_MAX or age.starts[0].place < self.place
        return reached < self.place

    def contradicts(self, age: StoreAge) -> bool:
        """The same, if the two come by different ways: one of the same start may only be the later news."""
        return self.start != age.starts[-1].number and self.is_after(age)

    def with_heard(self, age: StoreAge) -> Self:
        """The knowledge after a node whose store fits has said this. Another ledger is of a store that began empty."""
        former = self.former if age.ledger == self.ledger else (*self.former, self.ledger)[-FORMER_MAX:]
        return attrs.evolve(self.first(age), former=former)

    def disowned(self) -> Self:
        """The knowledge after an operator has said that the store is lost: it does not come back, an empty one may."""
        former = (*self.former, self.ledger)[-FORMER_MAX:]
        return attrs.evolve(self, ledger=NO_LEDGER, start=0, place=LedgerPlace(0, 0), former=former)

    def pack(self) -> list[Any]:
        """Plain values, for `unpack_known`."""
        return [self.ledger, self.start, *self.place, list(self.former)]


def pack_starts(starts: tuple[StoreStart, ...]) -> list[Any]:
    """Plain values, for `unpack_starts`."""
    return [[number, *place] for number, place in starts]


def unpack_starts(fields: object) -> tuple[StoreStart, ...]:
    """The reverse. Raises ValueError."""
    if not isinstance(fields, list) or not 0 < len(fields) <= STARTS_MAX:
        raise ValueError("the starts of a store are no list")
    return tuple(StoreStart(number, LedgerPlace(*place)) for number, *place in (_numbers(each, 3) for each in fields))


def unpack_age(fields: object) -> StoreAge:
    """The inverse of `StoreAge.pack`. Raises ValueError."""
    if not isinstance(fields, list) or len(fields) != 4:  # noqa: PLR2004  (ledger, starts, place)
        raise ValueError("the age of a store has four fields")
    ledger, starts, *place = fields
    ledger, *place = _numbers([ledger, *place], 3)
    return StoreAge(ledger=ledger, starts=unpack_starts(starts), place=LedgerPlace(*place))


def unpack_known(fields: object) -> KnownAge:
    """The inverse of `KnownAge.pack`. Raises ValueError."""
    if not isinstance(fields, list) or not fields or not isinstance(fields[-1], list) or len(fields[-1]) > FORMER_MAX:
        raise ValueError("what is known of a store is no list")
    *numbers, former = fields
    ledger, start, *place = _numbers(numbers, 4)
    return KnownAge(ledger=ledger, start=start, place=LedgerPlace(*place), former=tuple(_numbers(former, len(former))))


def _numbers(fields: object, count: int) -> list[int]:
    if not isinstance(fields, list) or len(fields) != count:
        raise ValueError(f"not {count} numbers")
    if any(type(field) is not int or not 0 <= field <= U64_MAX for field in fields):
        raise ValueError("something that is no number")
    return fields
