"""Infos of a consumer: CONSUMER.INFO by the leader of its stream, details of pages by every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.consumers.effects import CoreStatistics
from jetraft.cluster.consumers.selector import Selector
from jetraft.store.model import gotime
from jetraft.store.model.config import AckPolicy
from jetraft.store.model.state import ConsumerInfo, PriorityGroupState, SequencePair

if TYPE_CHECKING:
    from jetraft.cluster.consumers.selector import Messages
    from jetraft.store.model.state import ClusterInfo
    from jetraft.store.stream.consumer_state import ConsumerState


def applied_figures(state: ConsumerState) -> CoreStatistics:
    """A consumer by what is applied. Requests that wait and messages to come are zeros, as in nats-server."""
    return CoreStatistics(
        delivered_consumer=state.delivered_consumer,
        delivered_stream=state.delivered_stream,
        ack_floor=state.ack_floor,
        num_ack_pending=len(state.pending),
        num_redelivered=state.pending.num_redelivered,
        num_waiting=0,
        num_pending=0,
        last_delivered_ns=state.delivered_ns or None,
        last_ack_ns=state.acked_ns or None,
    )


def figures_at_rest(state: ConsumerState, messages: Messages) -> CoreStatistics:
    """A consumer without clients, as its leader sees it: what is applied, and the messages to come; without a core."""
    left = Selector(state, messages).num_pending(state.delivered_stream)
    return attrs.evolve(applied_figures(state), num_pending=left)


def info_of(  # noqa: PLR0913  (what an info is made of)
    stream: str,
    state: ConsumerState,
    figures: CoreStatistics,
    cluster: ClusterInfo,
    now_ns: int,
    *,
    is_bound: bool = False,
) -> ConsumerInfo:
    """A consumer at this Unix time; `is_bound` says that what it pushes has a subscriber."""
    config = state.config
    pause_left_ns = 0 if config.pause_until is None else gotime.until_ns(config.pause_until, now_ns)
    return ConsumerInfo(
        stream_name=stream,
        name=state.name,
        created_ns=state.created_ns,
        config=config,
        delivered=SequencePair(
            consumer_seq=figures.delivered_consumer,
            stream_seq=figures.delivered_stream,
            last_active_ns=figures.last_delivered_ns,
        ),
        ack_floor=SequencePair(
            consumer_seq=figures.ack_floor[0],
            stream_seq=figures.ack_floor[1],
            last_active_ns=None if config.ack_policy is AckPolicy.NONE else figures.last_ack_ns,
        ),
        num_ack_pending=figures.num_ack_pending,
        num_redelivered=figures.num_redelivered,
        num_waiting=figures.num_waiting,
        num_pending=figures.num_pending,
        cluster=cluster,
        push_bound=is_bound,
        paused=pause_left_ns > 0,
        pause_remaining_ns=max(0, pause_left_ns),
        ts_ns=now_ns,
        priority_groups=tuple(
            PriorityGroupState(group=group, pinned_client_id=figures.pin_id, pinned_ts_ns=figures.pinned_ns)
            for group in config.priority_groups[:1]  # the only one that is served, as in nats-server
        ),
    )
