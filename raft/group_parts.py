"""The parts of one group on one node, put together over a log that was recovered. Nothing has begun yet."""

from collections.abc import Callable

import attrs

from jetraft.raft.checkpointing import Checkpointer
from jetraft.raft.engine.port import CoreSetup, Engine
from jetraft.raft.freshness import Freshness
from jetraft.raft.group_spec import GroupSetting, GroupSpec
from jetraft.raft.machine import StateMachine
from jetraft.raft.replay import Replayed
from jetraft.raft.turns import Turns
from jetraft.store.port import GroupLog


@attrs.frozen(kw_only=True, slots=True)
class GroupParts:
    """The parts, from the bottom up: who keeps checkpoints, who decides, and who carries that out turn by turn."""

    checkpointer: Checkpointer
    core: Engine
    turns: Turns


def make_parts(  # noqa: PLR0913  (what a group is made of)
    spec: GroupSpec,
    setting: GroupSetting,
    recovered: Replayed,
    *,
    log: GroupLog,
    machine: StateMachine,
    mark_dirty: Callable[[], None],
    now_ns: int,
    freshness: Freshness,
) -> GroupParts:
    """Make the parts of a member. `recovered` is what its log said, and what the machine was restored with."""
    checkpointer = Checkpointer(
        setting.checkpoints,
        log=log,
        machine=machine,
        configurations=recovered.configurations,
        index=recovered.applied_index,
        state_bytes=recovered.state_bytes,
        term=recovered.checkpoint_term,
    )
    core = setting.engine(
        _setup_of(spec, setting),
        log=log,
        configurations=recovered.configurations,
        commit_index=recovered.applied_index,
        snapshot_offer=checkpointer.offer,
    )
    turns = Turns(
        spec.group_id,
        core=core,
        log=log,
        machine=machine,
        checkpointer=checkpointer,
        applied_index=recovered.applied_index,
        now_ns=now_ns,
        mark_dirty=mark_dirty,
        freshness=freshness,
        commit_times=setting.commit_times,
    )
    return GroupParts(checkpointer=checkpointer, core=core, turns=turns)


def _setup_of(spec: GroupSpec, setting: GroupSetting) -> CoreSetup:
    return CoreSetup(
        node_id=setting.node_id,
        incarnation=spec.incarnation,
        seal=setting.seal,
        rng=setting.rng,
        timing=setting.timing,
        limits=setting.limits,
        eager=spec.preferred_leader == setting.node_id,
        tempo=setting.tempo,
    )
