"""The consumer that a server asks for to read an origin (`direct` and `sourcing`), as the origin's server makes it.

Pure.

A stream with limits keeps its messages, so it gets what was asked for, under a name of its own for each attempt. A work
queue or a stream with interest removes what is acknowledged: there the consumer becomes durable, and what was stored is
acknowledged by the answers to its flow control requests. It is asked for again under its name, and starts again behind
what was acknowledged. Source: ADR-60; consumer.go, observed.
"""

import attrs

from jetraft.store.model.config import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig


def asks_to_read(config: ConsumerConfig) -> bool:
    """Whether this is the request of a server that reads the stream."""
    return config.direct and config.sourcing and bool(config.name) and not config.durable_name


def is_upgraded(config: ConsumerConfig, stream: StreamConfig) -> bool:
    """Whether such a request leads to a durable consumer."""
    return asks_to_read(config) and stream.retention is not RetentionPolicy.LIMITS


def upgraded(config: ConsumerConfig, existing: ConsumerConfig | None) -> ConsumerConfig:
    """The durable consumer; one that exists keeps the position from which it was made."""
    config = attrs.evolve(
        config,
        durable_name=config.name,
        direct=False,
        ack_policy=AckPolicy.FLOW_CONTROL,
        ack_wait=0,
        max_deliver=-1,
        inactive_threshold=0,
    )
    if existing is None:
        return config
    return attrs.evolve(
        config,
        deliver_policy=existing.deliver_policy,
        opt_start_seq=existing.opt_start_seq,
        opt_start_time=existing.opt_start_time,
    )
