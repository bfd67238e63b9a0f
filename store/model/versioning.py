"""API levels: the level that an asset's configuration requires, and its metadata keys.

The required level is stored with the asset (`_nats.req.level`), so that an older server can refuse it. The version and
level of the server (`_nats.ver`, `_nats.level`) are added to answers and never stored; values that a client sends under
these two keys are dropped. Source: server/jetstream_versioning.go.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from jetraft.store.model.config import AckPolicy, ConsumerConfig, PersistMode, PriorityPolicy, StreamConfig
from jetraft.store.model.gotime import ZERO_TIME_NS

# The level and version in answers, on which clients enable features: those of nats-server 2.15.1, whose protocol this
# server implements.
API_LEVEL: Final = 5
SERVER_VERSION: Final = "2.15.1"

LEVEL_DIGITS_MAX: Final = 9  # longer numbers are no levels

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
VERSION_KEY: Final = "_nats.ver"
LEVEL_KEY: Final = "_nats.level"


def is_level_served(wanted: bytes | None) -> bool:
    """Whether this server has the API level that a `Nats-Required-Api-Level` asks for; an empty one asks nothing."""
    if not wanted:
        return True
    digits = wanted[1:] if wanted[:1] in (b"-", b"+") else wanted
    return digits.isdigit() and len(digits) <= LEVEL_DIGITS_MAX and int(wanted) <= API_LEVEL


def required_stream_level(config: StreamConfig) -> int:
    """The lowest API level that supports all features of this stream."""
    level = 0
    if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0:
        level = 1
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules:
        level = 2
    if config.persist_mode is PersistMode.ASYNC:
        level = 2
    if config.allow_batched:
        level = 4
    return level


def required_consumer_level(config: ConsumerConfig) -> int:
    """The lowest API level that supports all features of this consumer."""
    level = 0
    if config.pause_until not in (None, ZERO_TIME_NS):
        level = 1
    if config.priority_policy is not PriorityPolicy.NONE or config.priority_timeout or config.priority_groups:
        level = 1
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        level = 4
    return level


def stored_stream(config: StreamConfig) -> StreamConfig:
    """The configuration to be stored: with the required level, without the keys of the server's version."""
    return attrs.evolve(config, metadata=_stored(config.metadata, required_stream_level(config)))


def stored_consumer(config: ConsumerConfig) -> ConsumerConfig:
    """The same for a consumer."""
    return attrs.evolve(config, metadata=_stored(config.metadata, required_consumer_level(config)))


def shown_stream(config: StreamConfig) -> StreamConfig:
    """The configuration for answers to create, update and info (lists have the stored one)."""
    return attrs.evolve(config, metadata=_shown(config.metadata))


def shown_consumer(config: ConsumerConfig) -> ConsumerConfig:
    """The same for a consumer."""
    return attrs.evolve(config, metadata=_shown(config.metadata))


def _stored(metadata: Mapping[str, str], level: int) -> dict[str, str]:
    kept = {key: value for key, value in metadata.items() if key not in (VERSION_KEY, LEVEL_KEY)}
    return {**kept, REQUIRED_LEVEL_KEY: str(level)}


def _shown(metadata: Mapping[str, str]) -> dict[str, str]:
    return {**metadata, VERSION_KEY: SERVER_VERSION, LEVEL_KEY: str(API_LEVEL)}
