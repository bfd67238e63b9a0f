"""A node's description of itself: its server's id, its tags, the bytes that it may hold, and those it holds.

It travels with what the mesh tells of a server, and is believed only as far as its types go: a node that says nothing,
or nonsense, has no tags and takes anything. Its holdings are told again when they have changed enough to matter, so
placement sees it some seconds late; what it has promised (`promised_load`) is known exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.store.model.config import StorageType
from jetraft.store.model.feature_level import FIRST, LEVEL_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY: Final = "jetstream"  # in the mesh's metadata
TAGS_MAX: Final = 64
TAG_CHARS_MAX: Final = 256
BYTES_MAX: Final = 1 << 62
SERVER_ID_CHARS_MAX: Final = 64  # an nkey has 56
LOST_MAX: Final = 256  # accounts
ACCOUNT_CHARS_MAX: Final = 255
# Reasons against a leader, the gravest first: it refuses publishes, followers by way of the hub lose it, it ends.
NOT_SHORT, NOT_LOST, NOT_DRAINED = 4, 2, 1
TOLD_STEP_BYTES: Final = 1 << 20  # a smaller change of what is held is not told


@attrs.frozen(kw_only=True, slots=True)
class NodeProfile:
    """One node. Tags are in lower case, as nats-server compares them; a kind without a capacity has no limit."""

    tags: frozenset[str] = frozenset()
    capacity: Mapping[StorageType, int] = attrs.field(factory=dict)
    held: Mapping[StorageType, int] = attrs.field(factory=dict)
    is_short: bool = False  # of room on its disk: it takes no messages as a leader
    level: int = FIRST  # the highest feature level that it takes part in
    server_id: str = ""  # as clients see it; empty: not told
    lost: frozenset[str] = frozenset()  # accounts whose hub it does not reach, and that others should lead
    drained: bool = False  # others should lead everything: it is to be stopped soon, or does so

    def unfitness(self, account: str) -> int:
        """How little it should lead streams of an account: 0 where nothing speaks against it.

        A node hands over for one reason only to a node that has neither this nor a graver one (NOT_DRAINED and the
        others), so no two nodes hand a group to each other, each for a reason of its own.
        """
        return NOT_SHORT * self.is_short + NOT_LOST * (account in self.lost) + NOT_DRAINED * self.drained

    def room(self, kind: StorageType, promised_bytes: int) -> int | None:
        """Bytes that may still be promised, above what is promised or held already; None for any number."""
        capacity = self.capacity.get(kind)
        return None if capacity is None else max(0, capacity - max(promised_bytes, self.held.get(kind, 0)))

    def differs_from(self, told: NodeProfile) -> bool:
        """Whether the others should hear of it."""
        if (self.tags, self.capacity, self.is_short) != (told.tags, told.capacity, told.is_short):
            return True
        if (self.lost, self.drained) != (told.lost, told.drained):
            return True
        return any(abs(self.held.get(kind, 0) - told.held.get(kind, 0)) >= TOLD_STEP_BYTES for kind in StorageType)

    def pack(self) -> dict[str, object]:
        """For the mesh's metadata."""
        return {
            "tags": sorted(self.tags),
            "capacity": {kind.value: count for kind, count in self.capacity.items()},
            "held": {kind.value: count for kind, count in self.held.items()},
            "short": self.is_short,
            "level": self.level,
            "server_id": self.server_id,
            **({"lost": sorted(self.lost)[:LOST_MAX]} if self.lost else {}),
            **({"drained": True} if self.drained else {}),
        }


UNKNOWN: Final = NodeProfile()


def lower(tags: Iterable[str]) -> frozenset[str]:
    """Tags as they are compared."""
    return frozenset(tag.lower() for tag in tags)


def unpack_profile(metadata: Mapping[str, Any]) -> NodeProfile:
    """The profile of a peer's metadata; `UNKNOWN` when there is none that makes sense."""
    told = metadata.get(KEY)
    if not isinstance(told, dict):
        return UNKNOWN
    tags = told.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) and len(tag) <= TAG_CHARS_MAX for tag in tags):
        return UNKNOWN
    capacity, held = _counts(told.get("capacity")), _counts(told.get("held"))
    if capacity is None or held is None or len(tags) > TAGS_MAX:
        return UNKNOWN
    server_id = told.get("server_id", "")
    if not isinstance(server_id, str) or len(server_id) > SERVER_ID_CHARS_MAX:
        return UNKNOWN
    return NodeProfile(
        tags=lower(tags),
        capacity=capacity,
        held=held,
        is_short=told.get("short") is True,
        level=_level(told.get("level")),
        server_id=server_id,
        lost=_names(told.get("lost")),
        drained=told.get("drained") is True,
    )


def _names(told: object) -> frozenset[str]:
    """Accounts; none where these are no names."""
    if not isinstance(told, list) or len(told) > LOST_MAX:
        return frozenset()
    return frozenset(name for name in told if isinstance(name, str) and len(name) <= ACCOUNT_CHARS_MAX)


def _level(told: object) -> int:
    return told if type(told) is int and FIRST <= told <= LEVEL_MAX else FIRST


def _counts(told: object) -> dict[StorageType, int] | None:
    if not isinstance(told, dict) or len(told) > len(StorageType):
        return None
    counts: dict[StorageType, int] = {}
    for name, count in told.items():
        if name not in {kind.value for kind in StorageType} or type(count) is not int or not 0 <= count <= BYTES_MAX:
            return None
        counts[StorageType(name)] = count
    return counts
