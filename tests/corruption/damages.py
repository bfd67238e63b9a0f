"""What may happen to a file while nobody uses it: six damages, each drawn from a seed.

An even seed hits the beginning, where a file says what it is; an odd one anywhere in what was written.
"""

import enum
from collections.abc import Iterator, Sequence
from random import Random

import attrs

from tests.corruption.places import Place, Tree, places

PAGE_BYTES = 4096
HEAD_BYTES = 96
CUT_BYTES = 200  # behind the head of a block


class Damage(enum.Enum):
    """What is done."""

    FLIP = "flip"  # one bit
    TRUNCATE = "truncate"
    ZERO = "zero"  # one page
    DELETE = "delete"
    SWAP = "swap"  # with another file, of its own kind where there is one
    OLD = "old"  # what it held at an earlier time


@attrs.frozen(kw_only=True)
class Case:
    """One damage to a file of one kind; the seed chooses the file and the place in it."""

    kind: str
    damage: Damage
    seed: int

    @property
    def random(self) -> Random:
        """The same numbers each time."""
        return Random(f"{self.kind} {self.damage.value} {self.seed}")

    def __str__(self) -> str:
        return f"{self.kind}: {self.damage.value}, seed {self.seed}"


@attrs.frozen(kw_only=True)
class Done:
    """What a case did: the file, and what happened to it; `file` is "" when there was nothing to damage."""

    file: str = ""
    what: str = "nothing to damage"


def cases(tree: Tree, seed: int) -> list[Case]:
    """Every damage of every kind of file in a store."""
    found = dict.fromkeys(place.kind for place in places(tree))
    return [Case(kind=kind, damage=damage, seed=seed) for kind in found for damage in Damage]


def inflict(tree: Tree, case: Case, older: Sequence[Tree] = ()) -> Done:
    """Do to a store what the case says; `older` are copies of the store from earlier, the newest first."""
    random = case.random
    candidates = [place for place in places(tree) if place.kind == case.kind]
    random.shuffle(candidates)
    for place in candidates:
        what = _inflict(tree, place, case, random, older)
        if what:
            return Done(file=place.name, what=what)
    return Done()


def _inflict(tree: Tree, place: Place, case: Case, random: Random, older: Sequence[Tree]) -> str:
    """Say what was done, "" when this file cannot be damaged so."""
    content = tree.read(place.name)
    match case.damage:
        case Damage.DELETE:
            tree.remove(place.name)
            return f"deleted, {len(content)} bytes"
        case Damage.SWAP:
            return _swap(tree, place, content, random)
        case Damage.OLD:
            before = next(_versions(place, content, older), None)
            if before is not None:
                tree.write(place.name, before)
            return "" if before is None else f"replaced by an earlier version, {len(before)} bytes"
    changed, what = _changed(content, case, random)
    if changed == content:
        return ""
    tree.write(place.name, changed)
    return what


def _changed(content: bytes, case: Case, random: Random) -> tuple[bytes, str]:
    used = len(content.rstrip(b"\0"))
    if not used:
        return content, ""
    at_head = case.seed % 2 == 0
    if case.damage is Damage.FLIP:
        at, bit = random.randrange(min(used, HEAD_BYTES) if at_head else used), random.randrange(8)
        return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :], f"bit {bit} of byte {at} flipped"
    if case.damage is Damage.TRUNCATE:
        size = min(CUT_BYTES, used // 2) if at_head else random.randrange(used)
        return content[:size], f"cut to {size} of {len(content)} bytes"
    assert case.damage is Damage.ZERO
    written = [at for at in range(0, used, PAGE_BYTES) if any(content[at : at + PAGE_BYTES])]
    at = written[0] if at_head else random.choice(written)
    page = bytes(len(content[at : at + PAGE_BYTES]))
    return content[:at] + page + content[at + PAGE_BYTES :], f"page at byte {at} zeroed"


def _swap(tree: Tree, place: Place, content: bytes, random: Random) -> str:
    others = [other for other in places(tree) if other.name != place.name and tree.read(other.name) != content]
    alike = [other for other in others if _family(other.kind) == _family(place.kind)]
    if not others:
        return ""
    other = random.choice(alike or others)
    tree.write(place.name, tree.read(other.name))
    tree.write(other.name, content)
    return f"swapped with {other.name}"


def _family(kind: str) -> str:
    """A kind without its owner and age: blocks are blocks."""
    return kind.rpartition("/")[2].removesuffix(" last").removesuffix(" only")


def _versions(place: Place, content: bytes, older: Sequence[Tree]) -> Iterator[bytes]:
    for tree in older:
        if place.name in tree.names() and (before := tree.read(place.name)) != content:
            yield before
