"""The voters: the configuration in force, and its history through appends, cuts and restarts.

The configuration is the last configuration entry of the log, committed or not. It is in force from the moment it is
appended. When the entry is cut the one before it returns, and below the first entry of the log stands the *base*: the
configuration stored with the checkpoint, or with the group's creation. Without the base two disjoint quorums were
found in the simulator (seeds member-chaos 1114 and 1279 of the prototype). Rules 27 to 32; thesis chapter 4.

A member that was admitted without memory (raft/recovery/joining.py) is filled with a log in which older configurations
stand, perhaps with itself as a voter. They are *settled*: its base is the configuration that admitted it, which is
committed, and no entry up to that one's index and term changes it. An entry of a later term at such an index is in a
log without the admission, which is gone: too few remembered it (raft/recovery/survivor.py), or an operator has given
up those that did (cluster/recovering.py). That log's configurations count.
"""

import sys
from collections.abc import Iterable

import attrs
import msgpack

from jetraft.store.model.ids import NodeId

_SETTLED = "settled"
MEMBERS_MAX = 64  # bounds what is decoded from a peer; real groups have 1, 3 or 5 members and a learner


class BadConfigurationError(ValueError):
    """Bytes that are no configuration: a peer's mistake, or a damaged log."""


def _in_order(nodes: Iterable[NodeId]) -> tuple[NodeId, ...]:
    return tuple(sorted(nodes))


def _interned(names: Iterable[str]) -> list[NodeId]:
    """One text for each node: a few names stand in thousands of groups."""
    return [NodeId(sys.intern(name)) for name in names]


@attrs.frozen(slots=True)
class SettledUpTo:
    """The entry that has admitted a member: its index, and a term in which it was committed."""

    index: int
    term: int

    def covers(self, index: int, term: int) -> bool:
        """Whether an entry changes nothing: a log that has the admission may have this one before it."""
        return index <= self.index and term <= self.term


@attrs.frozen(kw_only=True, slots=True)
class Configuration:
    """The members of a group: voters count in quorums, learners only receive."""

    voters: tuple[NodeId, ...] = attrs.field(converter=_in_order)
    learners: tuple[NodeId, ...] = attrs.field(default=(), converter=_in_order)
    members: tuple[NodeId, ...] = attrs.field(init=False, eq=False, repr=False)  # voters and learners, in a fixed order

    @members.default
    def _all(self) -> tuple[NodeId, ...]:
        return self.voters + self.learners

    def has_quorum(self, nodes: Iterable[NodeId]) -> bool:
        """Whether more than half of the voters are among `nodes`; nodes that do not vote are not counted."""
        return 2 * len(set(nodes).intersection(self.voters)) > len(self.voters)

    def others(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """All members but one."""
        return tuple(node for node in self.members if node != node_id)

    def differs_by_one_voter(self, other: "Configuration") -> bool:
        """Whether any quorum of one meets every quorum of the other: at most one voter was added or removed."""
        return len(set(self.voters).symmetric_difference(other.voters)) <= 1

    def encode(self, *, settled: SettledUpTo | None = None) -> bytes:
        """The body of a configuration entry and of a checkpoint's `members`; `settled`: see the module."""
        fields: dict[str, object] = {"voters": list(self.voters), "learners": list(self.learners)}
        return bytes(msgpack.packb(fields | ({} if settled is None else {_SETTLED: [settled.index, settled.term]})))

    @classmethod
    def decode(cls, data: bytes) -> "Configuration":
        """The reverse of `encode`. Raises BadConfigurationError."""
        try:
            fields = msgpack.unpackb(data, raw=False, strict_map_key=True, max_array_len=MEMBERS_MAX)
            voters, learners = fields["voters"], fields["learners"]
        except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
            raise BadConfigurationError(f"no configuration: {error}") from error
        names = [*voters, *learners] if isinstance(voters, list) and isinstance(learners, list) else [None]
        if not all(isinstance(name, str) for name in names) or not voters or len(set(names)) != len(names):
            raise BadConfigurationError("a configuration needs voters, and every member once")
        return cls(voters=_interned(voters), learners=_interned(learners))


def settled_of(data: bytes) -> SettledUpTo | None:
    """The admission with which a configuration was encoded; None without one. Raises BadConfigurationError.

    Servers of before there was one leave it out, and pass over it.
    """
    try:
        fields = msgpack.unpackb(data, raw=False, strict_map_key=True, max_array_len=MEMBERS_MAX)
        index, term = fields.get(_SETTLED, (0, 0))
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise BadConfigurationError(f"no configuration: {error}") from error
    if any(type(number) is not int or not 0 <= number < 1 << 63 for number in (index, term)):
        raise BadConfigurationError("a configuration is settled up to an index of the log, and a term")
    return SettledUpTo(index, term) if index else None


class ConfigurationHistory:
    """The base and the configuration entries above it.

    Invariants: the indexes of `_entries` ascend, all lie above the base's index, and none is `settled`; `current`, the
    configuration in force, is the last of them, or the base.
    """

    __slots__ = ("_base", "_base_index", "_entries", "current", "settled")

    def __init__(self, base: Configuration, base_index: int = 0, *, settled: SettledUpTo | None = None) -> None:
        self._base = base
        self._base_index = base_index
        self._entries: list[tuple[int, Configuration]] = []
        self.settled = settled if settled is not None and settled.index > base_index else None
        self.current = base

    @property
    def current_index(self) -> int:
        """The log index since which it is in force; at or below the commit index it cannot be rolled back."""
        return self._entries[-1][0] if self._entries else self._base_index

    def append(self, index: int, term: int, configuration: Configuration) -> None:
        """A configuration entry was appended at `index`; one that is settled changes nothing."""
        assert index > self.current_index
        if self.settled is None or not self.settled.covers(index, term):
            self._entries.append((index, configuration))
            self.current = configuration

    def is_filled(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so has come to the admission, or goes on without it."""
        return self.settled is None or last_index >= self.settled.index or last_term > self.settled.term

    def cut_from(self, index: int) -> bool:
        """Entries from `index` on were cut. Returns whether the configuration in force changed."""
        before = self.current_index
        while self._entries and self._entries[-1][0] >= index:
            self._entries.pop()
        self.current = self._entries[-1][1] if self._entries else self._base
        return self.current_index != before

    def at(self, index: int) -> Configuration:
        """The configuration in force after the entry at `index`."""
        found = self._base
        for entry_index, configuration in self._entries:
            if entry_index > index:
                break
            found = configuration
        return found

    def encode_at(self, index: int) -> bytes:
        """The part of it that a checkpoint at `index` keeps."""
        return self.at(index).encode(settled=self._settled_after(index))

    def members_at(self, index: int, term: int, members: bytes) -> bytes:
        """The members here at an entry at which they are these for another member.

        Not those, encoded, but those that have admitted this one, if that was at a later entry.
        """
        is_before = self.settled is not None and index < self.settled.index and self.settled.covers(index, term)
        return self.encode_at(index) if is_before else members

    def rebase(self, index: int) -> None:
        """The log up to `index` is covered by a checkpoint that keeps `at(index)`."""
        base = self.at(index)
        self._entries = [entry for entry in self._entries if entry[0] > index]
        self._base, self._base_index = base, max(index, self._base_index)
        self.settled = self._settled_after(index)

    def _settled_after(self, index: int) -> SettledUpTo | None:
        return self.settled if self.settled is not None and index < self.settled.index else None
