"""The features of configurations that this server does not support yet; requests for them are refused, not ignored.

The table is checked after the configuration was found valid, so that an invalid request gets nats-server's answer.
"""

from collections.abc import Callable
from typing import Final

import attrs

from jetraft.store.model import errors
from jetraft.store.model.api_error import ApiErrorSpec
from jetraft.store.model.config import (
    AckPolicy,
    ConsumerConfig,
    StreamConfig,
)


@attrs.frozen(slots=True)
class StreamFeature:
    """A feature of streams: its name in the answer, how to detect it in a configuration, and the error."""

    name: str
    is_used: Callable[[StreamConfig], bool]
    error: ApiErrorSpec = errors.STREAM_INVALID_CONFIG


@attrs.frozen(slots=True)
class ConsumerFeature:
    """The same for consumers."""

    name: str
    is_used: Callable[[ConsumerConfig], bool]
    error: ApiErrorSpec = errors.CONSUMER_CREATE_FAILED


STREAM_FEATURES: Final = (
    StreamFeature("mirror consumer", lambda config: config.mirror is not None and config.mirror.consumer is not None),
    StreamFeature("source consumer", lambda config: any(one and one.consumer is not None for one in config.sources)),
    StreamFeature("sources with allow_msg_counter", lambda config: bool(config.sources) and config.allow_msg_counter),
)

CONSUMER_FEATURES: Final = (
    ConsumerFeature("ack_policy flow_control", lambda config: config.ack_policy is AckPolicy.FLOW_CONTROL),
    # Unacknowledged, it is the mark of a server that reads an origin, and asks for nothing.
    ConsumerFeature("sourcing", lambda config: config.sourcing and config.ack_policy is not AckPolicy.NONE),
)


def check_stream_is_served(config: StreamConfig) -> None:
    """Raises ApiError when the stream uses an unsupported feature."""
    for feature in STREAM_FEATURES:
        if feature.is_used(config):
            raise feature.error.with_values(err=f"{feature.name} is not supported by this server yet")


def check_consumer_is_served(config: ConsumerConfig) -> None:
    """Raises ApiError when the consumer uses an unsupported feature."""
    for feature in CONSUMER_FEATURES:
        if feature.is_used(config):
            raise feature.error.with_values(err=f"{feature.name} is not supported by this server yet")
