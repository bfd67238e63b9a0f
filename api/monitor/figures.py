"""Figures of JetStream on this node for /metrics: filled by api/jetstream/figures.py, shown by metrics.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from jetraft.raft.group_spec import GroupStatistics
    from jetraft.store.model.histogram import LatencyStatistics


@attrs.frozen(kw_only=True, slots=True)
class ReplicaFigures:
    """Another member of a stream, as its leader sees it."""

    name: str
    lag_entries: int
    is_current: bool


@attrs.frozen(kw_only=True, slots=True)
class ConsumerFigures:
    """A consumer of a stream that this node leads. `query` is the Spark query that it holds messages for."""

    name: str
    query: str
    delivered_consumer_seq: int
    delivered_stream_seq: int
    ack_floor_consumer_seq: int
    ack_floor_stream_seq: int
    num_pending: int
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    oldest_unacked_ns: int | None  # age: since the lowest unacknowledged message was delivered


@attrs.frozen(kw_only=True, slots=True)
class StreamFigures:
    """A stream with a replica here."""

    account: str
    name: str
    is_leader: bool
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    num_subjects: int
    num_consumers: int
    in_flight_messages: int
    group: GroupStatistics
    replicas: tuple[ReplicaFigures, ...]
    consumers: tuple[ConsumerFigures, ...]


@attrs.frozen(kw_only=True, slots=True)
class JetStreamMetrics:
    """JetStream of a node. `totals` are sums over everything, by name; `omitted` is what the limits left out."""

    totals: dict[str, int]
    latencies: dict[str, LatencyStatistics]  # by the name of their metric
    meta: GroupStatistics | None
    streams: tuple[StreamFigures, ...]
    streams_omitted: int
    consumers_omitted: int
