"""Ack metrics: `$JS.EVENT.METRIC.CONSUMER.ACK.<stream>.<consumer>` says how long a share of the acks took.

The share is `sample_freq`, a percentage; chance decides, as in nats-server, about each ack. Source: consumer.go
(sampleAck, shouldSample), jetstream_events.go (JSConsumerAckMetric).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from jetraft.cluster.capture.reach import MessageOrigin
from jetraft.cluster.consumers.effects import AckSample
from jetraft.store.model.config import AckPolicy
from jetraft.store.model.encoding.jsoncodec import encode
from jetraft.store.model.gotime import format_time
from jetraft.store.model.ids import ALPHABET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jetraft.cluster.consumers.pending import PendingTable
    from jetraft.cluster.site import Site
    from jetraft.store.model.config import ConsumerConfig

METRIC_TYPE: Final = "io.nats.jetstream.metric.v1.consumer_ack"
EVENT_ID_CHARS: Final = 22  # of nats-server's event ids
EVERYTHING: Final = 100


class SampledConsumer(Protocol):
    """A consumer as its metrics show it."""

    @property
    def config(self) -> ConsumerConfig:
        """Which share of the acks is measured."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def metric_subject(self) -> bytes:
        """The subject of the metrics."""


def publish_samples(site: Site, stream: str, consumer: SampledConsumer, samples: Sequence[AckSample]) -> None:
    """Publish the samples that chance picks."""
    share = int(consumer.config.sample_freq.removesuffix("%"))
    for sample in samples if share > 0 else ():
        if share < EVERYTHING and site.rng.randrange(EVERYTHING) > share:
            continue
        event = {
            "type": METRIC_TYPE,
            "id": "".join(site.rng.choices(ALPHABET, k=EVENT_ID_CHARS)),
            "timestamp": format_time(site.clock.unix_ns()),
            "stream": stream,
            "consumer": consumer.name,
            "consumer_seq": sample.consumer_seq,
            "stream_seq": sample.stream_seq,
            "ack_time": sample.ack_ns,
            "deliveries": sample.deliveries,
        }
        site.outbox.send(consumer.metric_subject, payload=encode(event), origin=MessageOrigin.ADVISORY)


def is_sampled(config: ConsumerConfig) -> bool:
    """Whether acks are measured; as in nats-server, only explicit ones are."""
    return bool(config.sample_freq) and config.ack_policy is AckPolicy.EXPLICIT


def samples_of(seqs: Iterable[int], pending: PendingTable, now_ns: int, named: Mapping[int, int]) -> list[AckSample]:
    """How long the acks of these messages took.

    `named` are the consumer sequences that acks named. A missing one has the first delivery's.
    """
    found = ((seq, pending.last_delivery(seq, now_ns)) for seq in seqs)
    return [AckSample(named.get(seq, row[0]), seq, row[1], row[2]) for seq, row in found if row is not None]
