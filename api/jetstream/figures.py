"""JetStream of this node for /metrics: a snapshot of streams and consumers, as many as were asked for."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from jetraft.api.monitor.figures import ConsumerFigures, JetStreamMetrics, ReplicaFigures, StreamFigures
from jetraft.api.monitor.steps import ROWS_PER_STEP

if TYPE_CHECKING:
    from jetraft.api.jetstream.jsz import AccountSums, Jsz
    from jetraft.api.monitor.questions import MetricsQuestion
    from jetraft.api.monitor.steps import Steps
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.blocks.cache import CacheStatistics
    from jetraft.store.disk.io import WriterStatistics
    from jetraft.store.model.histogram import LatencyStatistics

SPARK_QUERY: Final = "spark.query"  # in the metadata of a consumer, written by src/pyspark_jetstream/durable.py


def collect(
    jsz: Jsz,
    question: MetricsQuestion,
    *,
    writer: WriterStatistics,
    cache: CacheStatistics,
    latencies: dict[str, LatencyStatistics],
) -> Steps[JetStreamMetrics]:
    """The rows of the page. Streams come by account and name, so that each look at a node shows the same ones."""
    replicas = [replica for _, replica in jsz.node.directory.replicas()]
    sums = yield from jsz.sums()
    totals = _totals(jsz, sums, writer, cache)
    yield 0
    wanted = [one for one in replicas if question.acc in ("", one.assignment.account)]
    wanted.sort(key=lambda replica: (replica.assignment.account, replica.config.name))
    left, shown, gone, led = question.consumers_max, list[StreamFigures](), 0, 0
    for replica in wanted[: question.streams_max]:
        consumers: list[ConsumerFigures] = []
        for name in islice(replica.consumer_names(), left) if replica.is_leader else ():
            if (found := _consumer(jsz, replica, name)) is not None:
                consumers.append(found)
            yield 0
        left -= len(consumers)
        if _is_here(jsz, replica):
            shown.append(_stream(jsz, replica, tuple(consumers)))
        else:
            gone += 1
        yield 0
    for number, replica in enumerate(wanted, 1):
        led += replica.consumer_count if replica.is_leader else 0
        if number % ROWS_PER_STEP == 0:
            yield 0
    return JetStreamMetrics(
        totals=totals,
        latencies=latencies,
        meta=None if jsz.node.meta_group is None else jsz.node.meta_group.statistics(),
        streams=tuple(shown),
        streams_omitted=len(wanted) - len(shown) - gone,
        consumers_omitted=max(0, led - sum(len(stream.consumers) for stream in shown)),
    )


def _totals(jsz: Jsz, sums: AccountSums, writer: WriterStatistics, cache: CacheStatistics) -> dict[str, int]:
    stats, raft = jsz.stats_of(sums), jsz.manager.statistics()
    scrub = jsz.node.supervisor.statistics().scrub
    quarantine = jsz.node.parts.quarantine.statistics()
    return {
        "memory": stats["memory"],
        "storage": stats["storage"],
        "reserved_memory": stats["reserved_memory"],
        "reserved_storage": stats["reserved_storage"],
        "capacity_memory": jsz.capacity["memory"],
        "capacity_storage": jsz.capacity["file"],
        "api_requests": stats["api"]["total"],
        "api_errors": stats["api"]["errors"],
        "api_waiting": jsz.gateway.statistics().waiting,
        "streams": len(sums.replicas),
        "streams_led": sums.streams_led,
        "consumers": sums.consumers,
        "feature_level": jsz.node.machine.table.feature_level,
        "groups": raft.groups,
        "groups_led": raft.groups_led,
        "groups_failed": raft.groups_failed,
        "raft_sent": raft.messages_sent,
        "raft_received": raft.messages_received,
        "raft_dropped": raft.messages_dropped,
        "raft_sent_bytes": raft.payload_bytes_sent,
        "disk_in_flight": writer.batches_in_flight,
        "disk_failed": writer.batches_failed,
        "cache_bytes": cache.bytes_held + cache.window_bytes,
        "cache_hits": cache.hits + cache.window_hits,
        "cache_misses": cache.misses,
        "blocks_damaged": scrub.blocks_damaged,
        "quarantine": quarantine.bytes,
    }


def _stream(jsz: Jsz, replica: StreamReplica, consumers: tuple[ConsumerFigures, ...]) -> StreamFigures:
    figures, state = replica.statistics(), replica.machine.store.state
    name_of = jsz.node.view.name_of
    return StreamFigures(
        account=replica.assignment.account,
        name=replica.config.name,
        is_leader=replica.is_leader,
        messages=state.messages,
        bytes=state.bytes,
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        num_subjects=state.num_subjects,
        num_consumers=figures.consumers,
        in_flight_messages=figures.in_flight_messages,
        group=figures.group,
        replicas=tuple(
            ReplicaFigures(name=name_of(lag.node), lag_entries=lag.lag_entries, is_current=lag.current)
            for lag in replica.group.replica_lag()
        ),
        consumers=consumers,
    )


def _is_here(jsz: Jsz, replica: StreamReplica) -> bool:
    """Whether a replica that was found in an earlier step still runs."""
    return jsz.node.directory.get(replica.assignment.key) is replica


def _consumer(jsz: Jsz, replica: StreamReplica, name: str) -> ConsumerFigures | None:
    """A consumer; None when it is gone, or this node leads its stream no more: elsewhere its counts are old."""
    if not _is_here(jsz, replica) or not replica.is_leader:
        return None
    info = replica.consumer_info(name)
    if info is None:
        return None
    state = replica.machine.consumers[name]
    since_ns = state.lowest_pending_ns
    return ConsumerFigures(
        name=name,
        query=state.config.metadata.get(SPARK_QUERY, ""),
        delivered_consumer_seq=info.delivered.consumer_seq,
        delivered_stream_seq=info.delivered.stream_seq,
        ack_floor_consumer_seq=info.ack_floor.consumer_seq,
        ack_floor_stream_seq=info.ack_floor.stream_seq,
        num_pending=info.num_pending,
        num_ack_pending=info.num_ack_pending,
        num_redelivered=info.num_redelivered,
        num_waiting=info.num_waiting,
        oldest_unacked_ns=None if since_ns is None else max(0, info.ts_ns - since_ns),
    )
