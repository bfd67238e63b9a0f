"""The parts that a group is made from, and how it shows itself."""

import enum
from collections.abc import Iterable

import attrs

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.engine.core import create_engine
from jetraft.raft.engine.port import EngineFactory, Limits, PeerProgress, Rng, Sealer, Timing
from jetraft.raft.engine.tempo import Tempo
from jetraft.store.model.histogram import Histogram
from jetraft.store.model.ids import GroupId, NodeId


@attrs.frozen(kw_only=True, slots=True)
class GroupSpec:
    """The description that a group is created from. `members` counts only for a log that is new."""

    group_id: GroupId
    incarnation: int
    members: tuple[NodeId, ...]
    preferred_leader: NodeId | None = None


@attrs.frozen(kw_only=True, slots=True)
class GroupSetting:
    """The setting that all groups of a node share."""

    node_id: NodeId
    seal: Sealer
    rng: Rng
    timing: Timing = attrs.Factory(Timing)
    limits: Limits = attrs.Factory(Limits)
    checkpoints: CheckpointPolicy = attrs.Factory(CheckpointPolicy)
    engine: EngineFactory = create_engine
    tempo: Tempo = attrs.Factory(Tempo)
    commit_times: Histogram = attrs.Factory(Histogram)  # of what leaders propose in a turn, until it is committed


class StandsBack(enum.Flag):
    """Why other members should lead, if they can. One reason ends without the others."""

    NO_ROOM = enum.auto()  # on its disk
    NO_HUB = enum.auto()
    DRAINED = enum.auto()


@attrs.frozen(kw_only=True, slots=True)
class ReplicaLag:
    """One other member as the leader sees it."""

    node: NodeId
    current: bool
    offline: bool
    active_ns: int  # since the last answer
    lag_entries: int


@attrs.frozen(kw_only=True, slots=True)
class GroupStatistics:
    """A snapshot of a group's figures."""

    group_id: GroupId
    role: str
    term: int
    leader: NodeId | None
    members: tuple[NodeId, ...]
    voters: tuple[NodeId, ...]
    commit_index: int
    applied_index: int
    last_index: int
    durable_index: int
    proposals_queued: int
    proposals_waiting: int
    elections_won: int
    failed: str | None


def lags_of(peers: Iterable[PeerProgress], commit_index: int, last_index: int, now_ns: int) -> list[ReplicaLag]:
    """The lags of members, from what the leader knows of each."""
    return [
        ReplicaLag(
            node=peer.node,
            current=peer.up and peer.responded and peer.match_index >= commit_index,
            offline=not peer.up,
            active_ns=max(0, now_ns - peer.active_ns) if peer.active_ns >= 0 else 0,
            lag_entries=last_index - peer.match_index,
        )
        for peer in peers
    ]
