"""The founders of the meta group, decided so that no two nodes can found different ones. Pure.

The first members of the meta group are not in any log, so they must be agreed on before there is one. Each node asks
all the others, round after round. A node *vouches* for the set of nodes it sees once all of them have answered that
they belong to no group yet, and the set is large enough: it writes the set to disk, then tells who asks. A node founds
the group when every node it sees vouches for exactly the set it vouches for itself, and nothing changed for a settle
time. All compute the same incarnation from the set, so members that start a moment apart meet in the same group, and
two groups of different sets could never exchange a vote.

A node that finds a peer with a founded group joins it under one condition: it once vouched for that very set. Then it
belongs to the founders and has never voted. If the set counts on it but it did not vouch, its disk was lost: the old
self may have voted and acknowledged entries, so it must not come back with an empty memory and the old vote
(rule 30). If the set does not count on it, it came late. In both cases it stays outside: it routes messages and
forwards requests, and holds no replicas until the group's leader has admitted it as a learner
(raft/recovery/joining.py).
"""

from __future__ import annotations

import enum
import hashlib
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.store.model.ids import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT_VERSION: Final = 1
INCARNATION_BYTES: Final = 8
VOUCHED_MAX: Final = 64  # sets seen while a cluster comes up; each is a few names
SETTLE_NS: Final = 300_000_000  # longer than it takes three nodes started together to see each other


class BadRecordError(Exception):
    """The founding record does not decode or belongs to another node or cluster: refuse to start with this store."""


@attrs.frozen(kw_only=True, slots=True)
class Founders:
    """The first members of the meta group and its identity."""

    cluster: str
    members: tuple[NodeId, ...]
    incarnation: int


@attrs.frozen(kw_only=True, slots=True)
class Record:
    """The memory of this node on disk: the sets it vouched for and, before the group is started, the one it founded."""

    node_id: NodeId
    cluster: str
    vouched: tuple[Founders, ...] = ()
    founded: Founders | None = None
    joined_index: int = 0  # of the meta log when this store joined it with an empty memory; 0 for a founder's

    def vouching_for(self, founders: Founders) -> Record:
        """The record with one more set; the oldest is forgotten beyond VOUCHED_MAX."""
        if founders in self.vouched:
            return self
        return attrs.evolve(self, vouched=(*self.vouched, founders)[-VOUCHED_MAX:])


@attrs.frozen(kw_only=True, slots=True)
class View:
    """The answer of a node: the founders it started with, if any, and the set it vouches for now, empty for none."""

    founders: Founders | None
    vouches: tuple[NodeId, ...]


class FoundingStep(enum.Enum):
    """The next step."""

    WAIT = "wait"
    FOUND = "found"
    STAY_OUTSIDE = "stay outside"


@attrs.frozen(kw_only=True, slots=True)
class Decision:
    """A step and, unless it is WAIT, the group that it is about."""

    step: FoundingStep
    founders: Founders | None = None


WAIT: Final = Decision(step=FoundingStep.WAIT)


def founders_of(cluster: str, members: Iterable[NodeId]) -> Founders:
    """Return the group that this set of nodes founds; every node computes the same one."""
    ordered = tuple(sorted(members))
    digest = hashlib.sha256("\n".join([cluster, *ordered]).encode()).digest()
    incarnation = int.from_bytes(digest[:INCARNATION_BYTES], "little") | 1  # never 0, which stands for none
    return Founders(cluster=cluster, members=ordered, incarnation=incarnation)


def decide(*, record: Record, sees: Founders, expected: int, settled: bool, views: Mapping[NodeId, View]) -> Decision:
    """Say what to do, given what the visible peers answered; `sees` is the set that this node sees now."""
    for _, view in sorted(views.items()):
        if view.founders is not None:
            joins = view.founders in record.vouched
            return Decision(step=FoundingStep.FOUND if joins else FoundingStep.STAY_OUTSIDE, founders=view.founders)
    if len(sees.members) < expected or not settled:
        return WAIT
    agreed = sees in record.vouched and all(view.vouches == sees.members for view in views.values())
    return Decision(step=FoundingStep.FOUND, founders=sees) if agreed and _is_everybody(record, sees, views) else WAIT


def may_vouch(*, record: Record, sees: Founders, expected: int, views: Mapping[NodeId, View]) -> bool:
    """Say whether this node may vouch for the set it sees: it is large enough, all answered, none is in a group.

    Without the last two a member with a lost disk could vouch for the very group that counts on its old self.
    """
    nobody_founded = all(view.founders is None for view in views.values())
    return len(sees.members) >= expected and nobody_founded and _is_everybody(record, sees, views)


def _is_everybody(record: Record, sees: Founders, views: Mapping[NodeId, View]) -> bool:
    return {record.node_id, *views} == set(sees.members)


def pack_record(record: Record) -> bytes:
    """Return the founding record as JSON, which an operator can read."""
    return orjson.dumps(
        {
            "version": FORMAT_VERSION,
            "node": record.node_id,
            "cluster": record.cluster,
            "vouched": [list(founders.members) for founders in record.vouched],
            "founded": list(record.founded.members) if record.founded else None,
            "joined_index": record.joined_index,
        },
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
    )


def unpack_record(packed: bytes, *, node_id: NodeId, cluster: str) -> Record:
    """Return the record of `pack_record`. Raises BadRecordError with one line that says what is wrong."""
    try:
        fields: dict[str, Any] = orjson.loads(packed)
        version, owner, owner_cluster = fields["version"], fields["node"], fields["cluster"]
        vouched = tuple(founders_of(cluster, map(NodeId, members)) for members in fields["vouched"])
        founded = fields["founded"] and founders_of(cluster, map(NodeId, fields["founded"]))
        joined_index = int(fields["joined_index"])
    except (ValueError, TypeError, KeyError) as error:
        raise BadRecordError(f"meta group record is damaged: {error}") from error
    if version != FORMAT_VERSION:
        raise BadRecordError(f"meta group record has format version {version}, this server writes {FORMAT_VERSION}")
    if owner != node_id:
        raise BadRecordError(f"meta group record belongs to node {owner}, this is node {node_id}")
    if owner_cluster != cluster:
        raise BadRecordError(f"meta group record belongs to cluster {owner_cluster!r}, this is {cluster!r}")
    return Record(node_id=node_id, cluster=cluster, vouched=vouched, founded=founded or None, joined_index=joined_index)
