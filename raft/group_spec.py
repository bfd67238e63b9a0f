"""What a group is made from, and how it shows itself."""

import attrs

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.core import Core
from jetraft.raft.engine import EngineFactory, Limits, Rng, Sealer, Timing
from jetraft.store.model.ids import GroupId, NodeId


@attrs.frozen(kw_only=True, slots=True)
class GroupSpec:
    """What a group is created from. `members` counts only for a log that is new."""

    group_id: GroupId
    incarnation: int
    members: tuple[NodeId, ...]
    preferred_leader: NodeId | None = None


@attrs.frozen(kw_only=True, slots=True)
class GroupSetting:
    """What all groups of a node share."""

    node_id: NodeId
    seal: Sealer
    rng: Rng
    timing: Timing = attrs.Factory(Timing)
    limits: Limits = attrs.Factory(Limits)
    checkpoints: CheckpointPolicy = attrs.Factory(CheckpointPolicy)
    engine: EngineFactory = Core


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
