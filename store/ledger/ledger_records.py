"""The records of the ledger, and the state that they add up to. Pure.

Each record states a fact that holds from the moment at which the record is durable: a vote was given, a block file
exists with this head, entries were dropped on purpose, the log reaches at least to an index. A file that a record names
is damaged if it is missing, too short or unreadable. A file that no record names is unfinished, and nothing in it was
acknowledged.

    term and vote     the promise of this member; before the first one there is nothing to lose
    born              a block exists, durably: serial, first index, term of the entry before it, length of its file.
                      Entries of earlier blocks from its first index on are void: they were cut.
    floor             the log reaches at least to this entry, durably
    dropped           ranges of entries whose blocks went on purpose
    checkpoint        a checkpoint file exists, durably; the two newest count
    founded           the members with which the log begins, in place of a checkpoint file before its first entry
    begun             the first entries of a log, whole, for as long as it has no block; the first block voids them
    replaced          the whole state: of a log copied from another member, or from a store of an older format
    noted             the group may rely on a log of this node that is gone
    removed           the group has left this node
    value             a small value of the node itself, by name; and one for each block of a group that has the subject
                      of something that was erased

Source of the idea: metadata kept apart from the entries that it describes (Protocol-Aware Recovery, FAST'18); a
journal of facts about files (RocksDB's and LevelDB's MANIFEST).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import attrs
import msgpack

from jetraft.store.frames.checkpoint import CHECKPOINTS_KEPT
from jetraft.store.model.files import index_ranges
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import HardState

GroupKey = tuple[GroupId, int]  # group and incarnation

_VOTED: Final = "t"
_BORN: Final = "b"
_FLOOR: Final = "f"
_DROPPED: Final = "d"
_CHECKPOINT: Final = "c"
_FOUNDED: Final = "m"
_BEGUN: Final = "e"
_REPLACED: Final = "g"
_NOTED: Final = "n"
_REMOVED: Final = "r"
_VALUE: Final = "v"
_ERASED: Final = "erased/"


class Born(NamedTuple):
    """A block that must exist."""

    serial: int
    first_index: int
    boundary_term: int  # of the entry before first_index
    reserved_bytes: int  # the length of its file while it is the newest; 0: any length
    tag: int = 0  # of its marks and skips, see store/frames/format.py


class Point(NamedTuple):
    """An entry by log index and term."""

    log_index: int
    term: int


NOWHERE: Final = Point(0, 0)


@attrs.frozen(kw_only=True, slots=True)
class GroupState:
    """The state of one group. `hard_state` is None before the first promise."""

    hard_state: HardState | None = None
    generation: int = 1  # the number of the log's directory
    births: tuple[Born, ...] = ()  # ascending by serial and by first index
    floor: Point = NOWHERE
    dropped: index_ranges.Ranges = ()
    checkpoints: tuple[Point, ...] = ()  # ascending, at most CHECKPOINTS_KEPT
    is_noted: bool = False  # the group may count on a self of this node that is gone
    memory_lost: bool = False  # records of it may be missing: its term and vote are not known
    founding: bytes | None = None  # the members at index 0, for as long as that is one of the two newest checkpoints
    begun: tuple[bytes, ...] = ()  # the frames of entries 1, 2, ... of a log that has no block yet

    @property
    def expects_files(self) -> bool:
        """Whether anything must exist in the group's directory."""
        return bool(self.births or self.checkpoints)

    def with_birth(self, born: Born) -> "GroupState":
        """Add a block: it voids entries of earlier blocks from its first index on, and proves earlier ones."""
        births = tuple(known for known in self.births if known.first_index < born.first_index)
        floor = Point(born.first_index - 1, born.boundary_term)
        return attrs.evolve(self, births=(*births, born), floor=floor, begun=())  # the block has what counts of them

    def with_floor(self, floor: Point) -> "GroupState":
        """The log reaches at least to there."""
        return attrs.evolve(self, floor=max(self.floor, floor))

    def with_dropped(self, ranges: index_ranges.Ranges) -> "GroupState":
        """Set all ranges that were ever dropped; their blocks are removed."""
        # Blocks go whole, and never the newest, which may hold nothing.
        births = tuple(b for b in self.births if not index_ranges.covers(ranges, b.first_index, b.first_index))
        return attrs.evolve(self, births=births, dropped=ranges)

    def with_checkpoint(self, point: Point) -> "GroupState":
        """Add a newer checkpoint; the log reaches at least to its index."""
        older = tuple(known for known in self.checkpoints if known.log_index < point.log_index)
        kept = (*older, point)[-CHECKPOINTS_KEPT:]
        founding = None if len(kept) == CHECKPOINTS_KEPT or point.log_index == 0 else self.founding
        return attrs.evolve(self, checkpoints=kept, founding=founding).with_floor(point)


@attrs.define(slots=True)
class NodeState:
    """The state of all records. `apply` takes them in order."""

    groups: dict[GroupKey, GroupState] = attrs.Factory(dict)
    values: dict[str, bytes] = attrs.Factory(dict)
    erased: dict[str, set[int]] = attrs.Factory(dict)  # `erased_name` -> serials of blocks

    def apply(self, record: bytes) -> None:
        """Apply one record. Raises ValueError when it is malformed."""
        try:
            kind, *fields = msgpack.unpackb(record)
            if kind == _VALUE:
                name, content = fields
                self._set_value(str(name), None if content is None else _bytes(content))
                return
            group_id, incarnation, *rest = fields
            key = GroupId(str(group_id)), int(incarnation)
            if kind == _REMOVED:
                self.groups.pop(key, None)
                self.values.pop(erased_name(key), None)
                self.erased.pop(erased_name(key), None)
            else:
                self.groups[key] = _applied(self.groups.get(key, GroupState()), kind, rest)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"malformed ledger record: {error}") from error

    def _set_value(self, name: str, content: bytes | None) -> None:
        group, _, serial = name.rpartition("/")
        if group.startswith(_ERASED) and serial.isascii() and serial.isdigit():
            serials = self.erased.setdefault(group, set())
            if content is None:
                serials.discard(int(serial))
            else:
                serials.add(int(serial))
            if not serials:
                del self.erased[group]
        elif content is None:
            self.values.pop(name, None)
        else:
            self.values[name] = content

    def records(self) -> Iterable[bytes]:
        """Records that add up to this state, without erasures in blocks that are gone."""
        for name, content in sorted(self.values.items()):
            yield value(name, content)
        for key, state in sorted(self.groups.items()):
            yield replaced(key, state)
            serials = self.erased.get(erased_name(key), ())
            if not serials:
                continue
            born_serials = {block.serial for block in state.births}
            newest = max(born_serials, default=0)  # one above it may be about to be born
            for serial in sorted(serials):
                if serial in born_serials or serial > newest:
                    yield erased(key, serial)


def _applied(state: GroupState, kind: str, fields: list[Any]) -> GroupState:
    if kind == _VOTED:
        term, vote = fields
        state = attrs.evolve(state, hard_state=_hard_state(term, vote), memory_lost=False)
    elif kind == _BORN:
        state = state.with_birth(Born(*map(int, fields)))
    elif kind == _FLOOR:
        state = state.with_floor(Point(*map(int, fields)))
    elif kind == _DROPPED:
        state = state.with_dropped(index_ranges.merged((int(first), int(last)) for first, last in fields))
    elif kind == _CHECKPOINT:
        state = state.with_checkpoint(Point(*map(int, fields)))
    elif kind == _FOUNDED:
        (members,) = fields
        state = attrs.evolve(state, founding=_bytes(members))
    elif kind == _BEGUN:
        (frames,) = fields
        state = attrs.evolve(state, begun=tuple(map(_bytes, frames)))
    elif kind == _REPLACED:
        state = _unpacked(fields)
    elif kind == _NOTED:
        state = attrs.evolve(state, is_noted=True)
    else:
        raise ValueError(f"unknown kind of ledger record: {kind!r}")
    return state


def _bytes(field: object) -> bytes:
    """A field that must be bytes. `bytes` would make that many zeros of a number."""
    if not isinstance(field, bytes):
        raise TypeError(f"{type(field).__name__} in the place of bytes")
    return field


def _hard_state(term: int, vote: str) -> HardState:
    return HardState(term=int(term), vote=NodeId(vote) if vote else None)


def _record(kind: str, *fields: object) -> bytes:
    packed: bytes = msgpack.packb((kind, *fields))
    return packed


def voted(key: GroupKey, hard_state: HardState) -> bytes:
    """Term and vote. Use neither before this is durable."""
    return _record(_VOTED, *key, hard_state.term, hard_state.vote or "")


def born(key: GroupKey, block: Born) -> bytes:
    """A block file exists, with its head, under its name, durably."""
    return _record(_BORN, *key, *block)


def floor(key: GroupKey, point: Point) -> bytes:
    """The log is durable up to there."""
    return _record(_FLOOR, *key, *point)


def dropped(key: GroupKey, ranges: index_ranges.Ranges) -> bytes:
    """All ranges that were ever dropped. Files go when this is durable."""
    return _record(_DROPPED, *key, *ranges)


def checkpointed(key: GroupKey, point: Point) -> bytes:
    """A checkpoint file exists, under its name, durably."""
    return _record(_CHECKPOINT, *key, *point)


def founded(key: GroupKey, members: bytes) -> bytes:
    """The members with which a log begins."""
    return _record(_FOUNDED, *key, members)


def begun(key: GroupKey, frames: Sequence[bytes]) -> bytes:
    """The entries of a log without a block, from the first one on, in place of those that were recorded before."""
    return _record(_BEGUN, *key, frames)


def noted(key: GroupKey) -> bytes:
    """The group may rely on promises of this node that are lost."""
    return _record(_NOTED, *key)


def removed(key: GroupKey) -> bytes:
    """The group has left this node, and its directory was moved to the trash."""
    return _record(_REMOVED, *key)


def forgotten(key: GroupKey) -> bytes:
    """The group has a log here of which nothing is known."""
    return replaced(key, GroupState(memory_lost=True))


def value(name: str, content: bytes | None) -> bytes:
    """A value of the node; None removes it."""
    return _record(_VALUE, name, content)


def erased_name(key: GroupKey) -> str:
    """Begins the names of the values of a group's blocks; alone, it is the one value that 0.1 wrote for all of them."""
    return f"{_ERASED}{key[0]}.{key[1]}"


def erased(key: GroupKey, serial: int, *, is_so: bool = True) -> bytes:
    """Something was erased in a block, and its subject is still there; or is not any more.

    A value for each block: one for all of them would be written whole for each. Earlier versions pass over it.
    """
    return value(f"{erased_name(key)}/{serial}", b"" if is_so else None)


def erased_serials(content: bytes | None) -> frozenset[int]:
    """The serials in the one value for all blocks; nothing where there is none, or what it has is not to be read."""
    try:
        found = msgpack.unpackb(content or b"\x90")
        return frozenset(serial for serial in found if isinstance(serial, int))
    except (ValueError, TypeError, msgpack.UnpackException):
        return frozenset()


def replaced(key: GroupKey, state: GroupState) -> bytes:
    """Everything about a group at once."""
    promised = state.hard_state
    return _record(
        _REPLACED,
        *key,
        None if promised is None else (promised.term, promised.vote or ""),
        state.generation,
        state.births,
        state.floor,
        state.dropped,
        state.checkpoints,
        state.is_noted,
        state.memory_lost,
        state.founding,
        *([state.begun] if state.begun else []),  # as before decision 116 where there are none
    )


def _unpacked(fields: list[Any]) -> GroupState:
    promised, generation, births, reached, ranges, points, is_noted, memory_lost, founding, *later = fields
    (frames,) = later or ((),)
    return GroupState(
        hard_state=None if promised is None else _hard_state(*promised),
        generation=int(generation),
        births=tuple(Born(*map(int, block)) for block in births),
        floor=Point(*map(int, reached)),
        dropped=index_ranges.merged((int(first), int(last)) for first, last in ranges),
        checkpoints=tuple(Point(*map(int, point)) for point in points),
        is_noted=bool(is_noted),
        memory_lost=bool(memory_lost),
        founding=None if founding is None else bytes(founding),
        begun=tuple(map(_bytes, frames)),
    )
