"""What a crash leaves of a disk: the models that are explored, each a way to choose among what was not fsynced.

A kill leaves what processes saw. A power cut leaves of every write since the file's last fsync any subset, each whole,
or torn into sectors of 32 to 4,096 bytes of which any are missing, or hold garbage; and of the changes of names in a
directory a prefix (as journals keep them), any subset, none or all. All files of the tree are treated alike.
Source: "All file systems are not created equal" (OSDI'14), and tests/doubles/lossy_tree.py for the words.
"""

import enum
from random import Random
from typing import Final

import attrs

from tests.doubles.lossy_tree import LossyDirectory, LossyFile, LossyNode

SECTOR_BYTES: Final = (32, 128, 512, 4096)
TORN_SHARE: Final = 0.6  # of the writes that are kept, where writes are torn
SECTOR_KEPT: Final = 0.55
SECTOR_GARBAGE: Final = 0.10  # where there is garbage


class Names(enum.Enum):
    """Which changes of a directory's names are kept."""

    NONE = enum.auto()
    PREFIX = enum.auto()
    SUBSET = enum.auto()
    ALL = enum.auto()


@attrs.frozen(kw_only=True)
class CrashModel:
    """One way to lose what was not fsynced."""

    name: str
    is_kill: bool = False
    kept: float = 0.5  # the chance of each write
    names: Names = Names.PREFIX
    is_torn: bool = False
    has_garbage: bool = False
    weight: int = 1  # how often it is drawn


KILL: Final = CrashModel(name="kill", is_kill=True, weight=4)  # what it leaves is not durable: the next crash is harder
MODELS: Final = (
    KILL,
    CrashModel(name="nothing is kept", kept=0, names=Names.NONE),
    CrashModel(name="names alone", kept=0, names=Names.ALL),
    CrashModel(name="writes alone", kept=1, names=Names.NONE),
    CrashModel(name="half the writes", kept=0.5),
    CrashModel(name="half the writes, torn", kept=0.5, is_torn=True),
    CrashModel(name="most writes, torn", kept=0.8, is_torn=True),
    CrashModel(name="some names", kept=1, names=Names.SUBSET),
    CrashModel(name="some names, half the writes, torn", names=Names.SUBSET, is_torn=True),
    CrashModel(name="all names, garbage", names=Names.ALL, is_torn=True, has_garbage=True),
    CrashModel(name="few writes, garbage", kept=0.3, is_torn=True, has_garbage=True),
)
_WEIGHTS: Final = [model.weight for model in MODELS]


def drawn(random: Random) -> CrashModel:
    """One of the models."""
    return random.choices(MODELS, _WEIGHTS)[0]


def crashed(root: LossyDirectory, model: CrashModel, random: Random) -> LossyDirectory:
    """The tree that is left; `root` stays as it is."""
    tree = copied(root, with_data=model.is_kill)
    if not model.is_kill:
        _cut_directory(tree, model, random, random.choice(SECTOR_BYTES))
    return tree


def copied(root: LossyDirectory, *, with_data: bool = True) -> LossyDirectory:
    """A tree of its own; without `data`, which a power cut replaces, it costs half as much."""
    known: dict[int, LossyNode] = {}

    def copy(node: LossyNode) -> LossyNode:
        found = known.get(id(node))
        if found is None:
            found = _copied_file(node, with_data) if isinstance(node, LossyFile) else copy_directory(node)
            known[id(node)] = found
        return found

    def copy_directory(node: LossyDirectory) -> LossyDirectory:
        return LossyDirectory(
            names={name: copy(child) for name, child in node.names.items()},
            durable={name: copy(child) for name, child in node.durable.items()},
            pending=[(name, None if child is None else copy(child)) for name, child in node.pending],
        )

    return copy_directory(root)


def _copied_file(file: LossyFile, with_data: bool) -> LossyFile:  # noqa: FBT001  (private, see `copied`)
    data = bytearray(file.data) if with_data else bytearray()
    return LossyFile(data=data, durable=bytearray(file.durable), pending=list(file.pending))


def _cut_directory(directory: LossyDirectory, model: CrashModel, random: Random, sector_bytes: int) -> None:
    if model.names is Names.SUBSET:
        directory.pending = [change for change in directory.pending if random.random() < 0.5]
    kept = {Names.NONE: 0, Names.PREFIX: random.randint(0, len(directory.pending))}
    directory.sync(kept.get(model.names))
    directory.names = dict(directory.durable)
    for _, node in sorted(directory.names.items()):
        if isinstance(node, LossyDirectory):
            _cut_directory(node, model, random, sector_bytes)
        else:
            _cut_file(node, model, random, sector_bytes)


def _cut_file(file: LossyFile, model: CrashModel, random: Random, sector_bytes: int) -> None:
    for offset, piece in file.pending:
        if random.random() >= model.kept:
            continue
        if piece is not None and model.is_torn and random.random() < TORN_SHARE:
            _tear(file, offset, piece, model, random, sector_bytes)
        else:
            file.apply(file.durable, offset, piece)
    file.pending.clear()
    file.data = bytearray(file.durable)


def _tear(  # noqa: PLR0913, PLR0917  (a write, and how it is torn)
    file: LossyFile, offset: int, piece: bytes, model: CrashModel, random: Random, sector_bytes: int
) -> None:
    """Keep any of the sectors of a write; some of the others may hold garbage."""
    start, end = offset, offset + len(piece)
    while start < end:
        stop = min(end, (start // sector_bytes + 1) * sector_bytes)
        luck = random.random()
        if luck < SECTOR_KEPT:
            file.apply(file.durable, start, piece[start - offset : stop - offset])
        elif model.has_garbage and luck < SECTOR_KEPT + SECTOR_GARBAGE:
            file.apply(file.durable, start, random.randbytes(stop - start))
        start = stop
