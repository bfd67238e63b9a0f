"""Every state in which a power cut can leave a store: after each operation, with each choice of what was not fsynced.

A `RecordingDisk` keeps a picture of the whole disk after every single operation of a run. `outcomes` turns a picture
into the disks that a power cut can leave of it: nothing that was not fsynced, all of it, each write kept alone or lost
alone (reorderings that lack an fsync between), torn writes, and the same with the changes of names. Source of the
method: "All file systems are not created equal" (OSDI'14).
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq, ne
from random import Random
from typing import Generic, TypeVar

import attrs

from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.lossy_tree import LossyDirectory, LossyFile

T = TypeVar("T")
SINGLE_WRITES_MAX = 12  # looked at one by one in a picture
TORN_SEEDS = (1, 2, 3)


@attrs.frozen(slots=True)
class Picture(Generic[T]):
    """The disk after an operation, and what was promised then."""

    operation: str
    root: LossyDirectory
    promised: T


class RecordingDisk(LossyDisk, Generic[T]):
    """A disk that takes a picture after every operation; `promised` says what holds at that moment."""

    def __init__(self, promised: Callable[[], T]) -> None:
        super().__init__()
        self._promised = promised
        self.pictures: list[Picture[T]] = []

    def _operate(self, name: str, arguments: tuple[object, ...]) -> None:
        super()._operate(name, arguments)
        self.take(name)

    def take(self, operation: str) -> None:
        """Keep a picture of this moment."""
        self.pictures.append(Picture(operation, copy.deepcopy(self._root), self._promised()))


def disk_of(root: LossyDirectory) -> LossyDisk:
    """A disk that holds this tree; its own copy."""
    disk = LossyDisk()
    disk._root = copy.deepcopy(root)
    return disk


def outcomes(root: LossyDirectory) -> Iterator[tuple[str, LossyDirectory]]:
    """What can be left of a disk, each with the name of the choice that leads there."""
    yield "the process was killed", root
    count = _cut(copy.deepcopy(root), lambda _number: True, names=True)
    for names in (False, True):
        kept = "names kept" if names else "names lost"
        yield from _choice(root, f"all writes, {kept}", lambda _number: True, names=names)
        if count:
            yield from _choice(root, f"no write, {kept}", lambda _number: False, names=names)
    if count > 1:
        for chosen in range(min(count, SINGLE_WRITES_MAX)):
            yield from _choice(root, f"write {chosen} alone", partial(eq, chosen), names=True)
            yield from _choice(root, f"all but write {chosen}", partial(ne, chosen), names=True)
    for seed in TORN_SEEDS if count else ():
        torn = copy.deepcopy(root)
        torn.crash(Random(seed))
        yield f"torn by seed {seed}", torn


def _choice(
    root: LossyDirectory, name: str, keep: Callable[[int], bool], *, names: bool
) -> Iterator[tuple[str, LossyDirectory]]:
    tree = copy.deepcopy(root)
    _cut(tree, keep, names=names)
    yield name, tree


def _cut(root: LossyDirectory, keep: Callable[[int], bool], *, names: bool) -> int:
    """Cut the power: of the writes that wait those with a chosen number are kept. Returns how many waited."""
    count = 0
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        directory.sync(None if names else 0)
        directory.names = dict(directory.durable)
        for _, node in sorted(directory.names.items()):
            if isinstance(node, LossyDirectory):
                waiting.append(node)
                continue
            count = _cut_file(node, keep, count)
    return count


def _cut_file(file: LossyFile, keep: Callable[[int], bool], count: int) -> int:
    for offset, piece in file.pending:
        if keep(count):
            file.apply(file.durable, offset, piece)
        count += 1
    file.pending.clear()
    file.data = bytearray(file.durable)
    return count
