"""/metrics: the figures of this server for Prometheus, made only when the page is asked for.

The page is bounded: STREAMS_MAX streams, CONSUMERS_SHOWN consumers (`consumers=n`, up to CONSUMERS_MAX) and QUERIES_MAX
Spark queries; what is left out is counted. The meaning of each family is its `about`; docs/operations.md has an
overview.
"""

import resource
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from jetraft import __version__
from jetraft.api.monitor.exposition import CONTENT_TYPE, Family, histogram, page_text
from jetraft.api.monitor.figures import ConsumerFigures, JetStreamMetrics, StreamFigures
from jetraft.api.monitor.page import Page
from jetraft.api.monitor.questions import MetricsQuestion
from jetraft.api.monitor.steps import ROWS_PER_STEP, Steps
from jetraft.api.monitor.values import resident_bytes
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.session import ServerIdentity, Sessions
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.histogram import LatencyStatistics

QUERIES_MAX: Final = 100
SPARK_PREFIX: Final = "spark "  # of the name of a connection, given by src/pyspark_jetstream/client.py
Source = Callable[[MetricsQuestion], Steps[JetStreamMetrics]]

PLANE: Final = (  # of the reactor's statistics: their name there, of the metric, its kind, what it is about
    ("connections", "jetraft_connections", "gauge", "Open client connections."),
    ("total_connections", "jetraft_connections_opened_total", "counter", "Client connections since the start."),
    ("subscriptions", "jetraft_subscriptions", "gauge", "Subscriptions."),
    ("in_msgs", "jetraft_received_messages_total", "counter", "Messages from clients."),
    ("in_bytes", "jetraft_received_bytes_total", "counter", "Payload bytes from clients."),
    ("out_msgs", "jetraft_sent_messages_total", "counter", "Messages to clients."),
    ("out_bytes", "jetraft_sent_bytes_total", "counter", "Payload bytes to clients."),
    ("routed_in_msgs", "jetraft_routed_received_messages_total", "counter", "Messages from other nodes."),
    ("routed_in_bytes", "jetraft_routed_received_bytes_total", "counter", "Payload bytes from other nodes."),
    ("routed_out_msgs", "jetraft_routed_sent_messages_total", "counter", "Messages to other nodes."),
    ("routed_out_bytes", "jetraft_routed_sent_bytes_total", "counter", "Payload bytes to other nodes."),
    (
        "slow_consumers",
        "jetraft_slow_consumers_total",
        "counter",
        "Connections that were cut because they read slowly.",
    ),
    ("stalls", "jetraft_stalled_clients_total", "counter", "Times that a publisher was held up for a slow receiver."),
    ("routes", "jetraft_routes", "gauge", "Nodes that this one is connected to."),
    ("leafnodes", "jetraft_leafnodes", "gauge", "Leaf node connections."),
)
ARRIVALS: Final = (
    ("unauthenticated", "jetraft_unauthenticated_connections", "gauge", "Connections that are not logged in."),
    ("waiting", "jetraft_waiting_connections", "gauge", "Connections that wait for others of their address."),
    ("waited", "jetraft_waited_connections_total", "counter", "Connections that have waited so."),
    ("refused", "jetraft_refused_connections_total", "counter", "Connections that waited too long, or of too many."),
)
TURNS: Final = "jetraft_turn_seconds"
LATENCIES: Final = {
    TURNS: "How long the turns of the server take, from what was received to what is sent.",
    "jetraft_disk_batch_seconds": "How long batches of writes with their fsync take, that acknowledgements wait for.",
    "jetraft_publish_ack_seconds": "How long messages take from admission by the leader to acknowledgement.",
    "jetraft_raft_commit_seconds": "How long what a leader proposes in a turn takes until a majority has it on disk.",
    "jetraft_raft_apply_seconds": "How long the groups of this node take to apply and append, by round of a turn.",
}
TOTALS: Final = (
    ("memory", "jetraft_jetstream_memory_bytes", "gauge", "Bytes of streams in memory."),
    ("storage", "jetraft_jetstream_storage_bytes", "gauge", "Bytes of streams in files."),
    ("reserved_memory", "jetraft_jetstream_reserved_memory_bytes", "gauge", "Bytes promised to streams in memory."),
    ("reserved_storage", "jetraft_jetstream_reserved_storage_bytes", "gauge", "Bytes promised to streams in files."),
    ("capacity_memory", "jetraft_jetstream_max_memory_bytes", "gauge", "Bytes that streams in memory may take."),
    ("capacity_storage", "jetraft_jetstream_max_storage_bytes", "gauge", "Bytes that streams in files may take."),
    ("api_requests", "jetraft_api_requests_total", "counter", "Requests to the JetStream API."),
    ("api_errors", "jetraft_api_errors_total", "counter", "Requests to the JetStream API that were refused."),
    ("api_waiting", "jetraft_api_waiting", "gauge", "Requests to the JetStream API that wait."),
    ("streams", "jetraft_streams", "gauge", "Streams with a replica here."),
    ("streams_led", "jetraft_streams_led", "gauge", "Streams that this node leads."),
    ("consumers", "jetraft_consumers", "gauge", "Consumers of streams with a replica here."),
    ("feature_level", "jetraft_feature_level", "gauge", "Feature level that the cluster uses."),
    ("groups", "jetraft_raft_groups", "gauge", "Raft groups with a member here."),
    ("groups_led", "jetraft_raft_groups_led", "gauge", "Raft groups that this node leads."),
    ("groups_failed", "jetraft_raft_groups_failed", "gauge", "Raft groups whose log has failed here."),
    ("raft_sent", "jetraft_raft_sent_messages_total", "counter", "Messages of Raft to other nodes."),
    ("raft_received", "jetraft_raft_received_messages_total", "counter", "Messages of Raft from other nodes."),
    ("raft_dropped", "jetraft_raft_dropped_messages_total", "counter", "Messages of Raft that found no link."),
    ("raft_sent_bytes", "jetraft_raft_sent_bytes_total", "counter", "Bytes of Raft to other nodes."),
    ("disk_in_flight", "jetraft_disk_batches_in_flight", "gauge", "Batches of writes that wait for the disk."),
    ("disk_failed", "jetraft_disk_batches_failed_total", "counter", "Batches of writes that failed."),
    ("cache_bytes", "jetraft_cache_bytes", "gauge", "Bytes in the block cache."),
    ("cache_hits", "jetraft_cache_hits_total", "counter", "Reads that the block cache answered."),
    ("cache_misses", "jetraft_cache_misses_total", "counter", "Reads that went to a file."),
    ("quarantine", "jetraft_quarantine_bytes", "gauge", "Bytes that are kept of what could not be used."),
    ("blocks_damaged", "jetraft_scrub_damaged_blocks_total", "counter", "Blocks that a scrub has found damaged."),
)  # fmt: skip


@attrs.frozen(kw_only=True, eq=False)
class Metrics:
    """Makes the page."""

    identity: ServerIdentity
    sessions: Sessions
    reactor: Reactor
    jetstream: Source | None
    started_unix_ns: int
    events: Mapping[str, int]  # of the log, since the start

    def page(self, question: MetricsQuestion) -> Steps[Page]:
        """The whole page, a part for each family."""
        parts = [page_text([*self._server(), *self._spark_connections()])]
        yield len(parts[0])
        if self.jetstream is not None:
            for family in of_jetstream((yield from self.jetstream(question))):
                if family is None:
                    yield 0
                else:
                    parts.append(page_text([family]))
                    yield len(parts[-1])
        return Page(body=parts[0], rest=[part for part in parts[1:] if part], content_type=CONTENT_TYPE)

    def _server(self) -> Iterator[Family]:
        about = Family(name="jetraft_info", kind="gauge", about="Who this server is; always 1.")
        who = {"server_id": self.identity.server_id, "server_name": self.identity.server_name, "version": __version__}
        about.add(1, who | {"cluster": self.identity.cluster_name})
        yield about
        usage = resource.getrusage(resource.RUSAGE_SELF)
        own = (
            ("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes()),
            ("process_cpu_seconds_total", "counter", "Processor time.", usage.ru_utime + usage.ru_stime),
            ("process_start_time_seconds", "gauge", "Unix time of the start.", self.started_unix_ns / NS_PER_S),
            (
                "jetraft_stale_connections_total",
                "counter",
                "Connections that did not answer pings.",
                self.sessions.ended[Reason.STALE_CONNECTION],
            ),
        )
        for name, kind, text, value in own:
            yield single(name, kind, text, value)
        events = Family(
            name="jetraft_log_events_total", kind="counter", about="Events of the log, with those left out."
        )
        for kind, count in self.events.items():
            events.add(count, {"event": kind})
        yield events
        yield of_latency(TURNS, self.reactor.times.statistics())
        counters = self.reactor.statistics() | self.sessions.arrivals.statistics()
        for key, name, kind, text in (*PLANE, *ARRIVALS):
            yield single(name, kind, text, counters[key])

    def _spark_connections(self) -> Iterator[Family]:
        """The connections of Spark queries, which have the name of their query."""
        found: dict[tuple[str, str], list[int]] = {}
        for cid, session in self.sessions.by_cid.items():
            name = session.options.name
            if not name.startswith(SPARK_PREFIX):
                continue
            key = (session.account, name.removeprefix(SPARK_PREFIX))
            counters = self.reactor.plane.connection(cid)
            if counters is None or (key not in found and len(found) == QUERIES_MAX):
                continue
            sums = found.setdefault(key, [0, 0, 0])
            for place, value in enumerate((1, counters["out_bytes"], counters["in_bytes"])):
                sums[place] += value
        texts = (
            ("jetraft_spark_connections", "Open connections of a Spark query."),
            ("jetraft_spark_sent_bytes", "Bytes that the open connections of a Spark query have received."),
            ("jetraft_spark_received_bytes", "Bytes that came from the open connections of a Spark query."),
        )
        for place, (name, text) in enumerate(texts):
            family = Family(name=name, kind="gauge", about=text)
            for (account, query), sums in found.items():
                family.add(sums[place], {"account": account, "query": query})
            yield family


def single(name: str, kind: Any, about: str, value: float) -> Family:
    """A family with one sample without labels."""
    family = Family(name=name, kind=kind, about=about)
    family.add(value)
    return family


def of_latency(name: str, found: LatencyStatistics) -> Family:
    """A histogram in seconds."""
    bounds = [bound / NS_PER_S for bound in found.bounds_ns]
    return histogram(name, LATENCIES[name], bounds=bounds, counts=found.counts, total=found.sum_ns / NS_PER_S)


def of_jetstream(found: JetStreamMetrics) -> Iterator[Family | None]:
    """Everything about JetStream. None is where other work may come between two samples of a family."""
    for key, name, kind, text in TOTALS:
        yield single(name, kind, text, found.totals[key])
    for name, latency in found.latencies.items():
        yield of_latency(name, latency)
    omitted = Family(name="jetraft_omitted", kind="gauge", about="What this page leaves out, by kind.")
    omitted.add(found.streams_omitted, {"kind": "streams"})
    omitted.add(found.consumers_omitted, {"kind": "consumers"})
    yield omitted
    yield from of_streams(found.streams)
    yield from of_groups(found)
    yield from of_consumers([(stream, consumer) for stream in found.streams for consumer in stream.consumers])


def of_streams(streams: tuple[StreamFigures, ...]) -> Iterator[Family | None]:
    """One sample for each stream in each family, and one for each other replica in those of its leader."""
    shown: tuple[tuple[str, str, Callable[[StreamFigures], int]], ...] = (
        ("messages", "Messages in the stream.", lambda stream: stream.messages),
        ("bytes", "Bytes in the stream.", lambda stream: stream.bytes),
        ("first_seq", "The first sequence.", lambda stream: stream.first_seq),
        ("last_seq", "The last sequence.", lambda stream: stream.last_seq),
        ("subjects", "Subjects with messages.", lambda stream: stream.num_subjects),
        ("consumers", "Consumers.", lambda stream: stream.num_consumers),
        ("in_flight_messages", "Publishes that wait for their commit.", lambda stream: stream.in_flight_messages),
    )
    for name, text, value in shown:
        family = Family(name=f"jetraft_stream_{name}", kind="gauge", about=text)
        for number, stream in enumerate(streams, 1):
            family.add(value(stream), of(stream))
            if number % ROWS_PER_STEP == 0:
                yield None
        yield family
    lag = Family(name="jetraft_stream_replica_lag", kind="gauge", about="Entries that a replica lacks, by its leader.")
    current = Family(name="jetraft_stream_replica_current", kind="gauge", about="1: the replica has what is committed.")
    for number, stream in enumerate(streams, 1):
        for replica in stream.replicas:
            labels = of(stream) | {"replica": replica.name}
            lag.add(replica.lag_entries, labels)
            current.add(int(replica.is_current), labels)
        if number % ROWS_PER_STEP == 0:
            yield None
    yield from (lag, current)


def of_groups(found: JetStreamMetrics) -> Iterator[Family | None]:
    """The Raft groups of the streams shown, and the meta group, which has empty labels for account and stream."""
    groups = [({"group": str(one.group.group_id), **of(one)}, one.group) for one in found.streams]
    if found.meta is not None:
        groups.insert(0, ({"group": str(found.meta.group_id), "account": "", "stream": ""}, found.meta))
    shown: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
        ("term", "The present term: it grows with each change of the leader.", lambda group: group.term),
        ("leads", "1: this node leads the group.", lambda group: int(group.role == "leader")),
        ("has_leader", "1: this node knows a leader.", lambda group: int(group.leader is not None)),
        ("elections_won_total", "Times that this node became the leader.", lambda group: group.elections_won),
        ("last_index", "The last entry in the log.", lambda group: group.last_index),
        ("commit_lag", "Entries that are not committed.", lambda group: group.last_index - group.commit_index),
        ("apply_lag", "Entries that are not applied.", lambda group: group.commit_index - group.applied_index),
        ("failed", "1: the log has failed on this node.", lambda group: int(group.failed is not None)),
    )  # fmt: skip
    for name, text, value in shown:
        kind: Any = "counter" if name.endswith("_total") else "gauge"
        family = Family(name=f"jetraft_raft_{name}", kind=kind, about=text)
        for number, (labels, group) in enumerate(groups, 1):
            family.add(value(group), labels)
            if number % ROWS_PER_STEP == 0:
                yield None
        yield family


def of_consumers(consumers: list[tuple[StreamFigures, ConsumerFigures]]) -> Iterator[Family | None]:
    """One sample for each consumer in each family; those of Spark queries have families of their own too."""
    shown: tuple[tuple[str, str, Callable[[ConsumerFigures], int]], ...] = (
        ("num_pending", "Messages that are still to be delivered.", lambda one: one.num_pending),
        ("num_ack_pending", "Deliveries that wait for an ack.", lambda one: one.num_ack_pending),
        ("num_redelivered", "Of these, those that were delivered again.", lambda one: one.num_redelivered),
        ("num_waiting", "Pulls that wait for messages.", lambda one: one.num_waiting),
        ("delivered_seq", "Stream sequence of the last delivery.", lambda one: one.delivered_stream_seq),
        ("ack_floor_seq", "Stream sequence up to which all is acknowledged.", lambda one: one.ack_floor_stream_seq),
    )
    for name, text, value in shown:
        family = Family(name=f"jetraft_consumer_{name}", kind="gauge", about=text)
        for number, (stream, consumer) in enumerate(consumers, 1):
            family.add(value(consumer), of(stream) | {"consumer": consumer.name})
            if number % ROWS_PER_STEP == 0:
                yield None
        yield family
    oldest = Family(
        name="jetraft_consumer_oldest_unacked_seconds",
        kind="gauge",
        about="Since the lowest unacknowledged message was last delivered; absent where nothing waits for an ack.",
    )
    lag = Family(
        name="jetraft_spark_lag_messages", kind="gauge", about="Messages that a Spark query has not committed."
    )
    rows = Family(name="jetraft_spark_rows", kind="gauge", about="Messages that a Spark query has committed.")
    for number, (stream, consumer) in enumerate(consumers, 1):
        if number % ROWS_PER_STEP == 0:
            yield None
        labels = of(stream) | {"consumer": consumer.name}
        if consumer.oldest_unacked_ns is not None:
            oldest.add(consumer.oldest_unacked_ns / NS_PER_S, labels)
        if consumer.query:
            lag.add(consumer.num_pending + consumer.num_ack_pending, labels | {"query": consumer.query})
            rows.add(consumer.ack_floor_consumer_seq, labels | {"query": consumer.query})
    yield from (oldest, lag, rows)


def of(stream: StreamFigures) -> dict[str, str]:
    """The labels of a stream."""
    return {"account": stream.account, "stream": stream.name}
