"""Validation and defaults of consumer configurations, and the changes that an update may make.

Checks and their order are nats-server's. `normalise_consumer` needs only the stream's configuration,
`check_consumer_fits` the stream's other consumers, `check_consumer_update` the existing consumer.
Source: consumer.go (setConsumerConfigDefaults, checkConsumerCfg, checkNewConsumerConfig, addConsumerWithAssignment),
jetstream_api.go (jsConsumerCreateRequest).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NoReturn

import attrs

from jetraft.store.model import errors
from jetraft.store.model._patterns import PatternTree, TooManyCombinationsError
from jetraft.store.model.config import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
    RetentionPolicy,
    StreamConfig,
)
from jetraft.store.model.limits import (
    INACTIVE_THRESHOLD_DEFAULT_NS,
    NAME_BYTES_MAX,
    NO_LIMITS,
    ServerLimits,
)
from jetraft.store.model.subject import EVERYTHING, has_path_separator
from jetraft.store.model.validation.consumer_checks import check_consumer
from jetraft.store.model.validation.consumer_defaults import with_defaults
from jetraft.store.model.validation.consumer_filters import WIDTH_MAX, ConsumerFilters, takes_messages
from jetraft.store.model.versioning import stored_consumer


class CreateForm(Enum):
    """The three subjects for create requests."""

    EPHEMERAL = "CONSUMER.CREATE.<stream>"
    DURABLE = "CONSUMER.DURABLE.CREATE.<stream>.<consumer>"
    NAMED = "CONSUMER.CREATE.<stream>.<consumer>[.<filter>]"


def check_consumer_create_request(
    request: CreateConsumerRequest, *, form: CreateForm, stream: str, consumer: str = "", filter_subject: str = ""
) -> ConsumerConfig:
    """The requested configuration, with the name from the subject; the name of an unnamed ephemeral is empty.

    `stream`, `consumer` and `filter_subject` are the tokens of the request subject. Raises ApiError.
    """
    if stream != request.stream_name:
        raise errors.STREAM_MISMATCH.with_values()
    if has_path_separator(consumer.encode()):
        raise errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS.with_values()
    config = request.config
    if form is CreateForm.EPHEMERAL:
        if config.durable_name:
            raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME.with_values()
        return config
    if form is CreateForm.DURABLE and not config.durable_name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_SET.with_values()
    if config.durable_name not in ("", consumer):
        raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT.with_values()
    if filter_subject:
        _check_filter_of_subject(config, filter_subject)
    if len(consumer.encode()) > NAME_BYTES_MAX:
        raise errors.CONSUMER_NAME_TOO_LONG.with_values(max=NAME_BYTES_MAX)
    return attrs.evolve(config, name=consumer)


def normalise_consumer(  # noqa: PLR0913  (what the answer depends on, by name)
    config: ConsumerConfig,
    stream: StreamConfig,
    *,
    limits: ServerLimits = NO_LIMITS,
    clustered: bool = True,
    pedantic: bool = False,
    is_new: bool = True,
) -> ConsumerConfig:
    """The configuration to be stored: checked, defaults filled in, required API level in its metadata.

    `stream` is normalised. With `pedantic`, values that would be corrected are refused. The default of
    `inactive_threshold` is for new consumers: see `with_kept_threshold`. Raises ApiError with nats-server's code and
    text.
    """
    config = with_defaults(stored_consumer(config), stream, limits, pedantic=pedantic)
    if config.num_replicas > 1 and not clustered:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED.with_values()
    check_consumer(config, stream, limits)
    if is_new and not config.is_durable and config.inactive_threshold <= 0:
        config = attrs.evolve(config, inactive_threshold=INACTIVE_THRESHOLD_DEFAULT_NS)
    return config


def with_kept_threshold(config: ConsumerConfig, kept: ConsumerConfig) -> ConsumerConfig:
    """The configuration of an update, with its `inactive_threshold`.

    Whether a consumer without users is deleted was decided at its creation: an update without `durable_name`
    gives a durable consumer no threshold. Source: consumer.go, updateInactiveThreshold.
    """
    if kept.is_durable or config.inactive_threshold > 0 or config.inactive_threshold == kept.inactive_threshold:
        return config
    return attrs.evolve(config, inactive_threshold=INACTIVE_THRESHOLD_DEFAULT_NS)


def check_consumer_fits(
    name: str,
    config: ConsumerConfig,
    stream: StreamConfig,
    others: Mapping[str, ConsumerConfig],
    *,
    filters: ConsumerFilters,
) -> None:
    """Check the rules between the consumers of a stream; `others` may include the replaced one. Raises ApiError.

    `filters` are those of the others where retention is by acks: of a work queue only of those that take messages.

    A work queue delivers each message to one consumer: explicit acks, deliver all, and disjoint filters.
    """
    if stream.retention is RetentionPolicy.WORK_QUEUE and takes_messages(config):
        if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
            raise errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK.with_values()
        if config.deliver_policy is not DeliverPolicy.ALL:
            raise errors.CONSUMER_WQ_NOT_DELIVER_ALL.with_values()
        if not config.filters and len(filters) > (name in filters):
            raise errors.CONSUMER_WQ_MULTIPLE_UNFILTERED.with_values()
        try:
            is_taken = filters.tree.meets(PatternTree(config.filters or (EVERYTHING,)), but=name)
        except TooManyCombinationsError:
            _cannot("too many wildcard filter subjects to compare with those of other consumers")
        if is_taken:
            raise errors.CONSUMER_WQ_NOT_UNIQUE.with_values()
    if stream.retention is RetentionPolicy.INTEREST and filters.tree.is_wider_than(WIDTH_MAX):
        _cannot("the wildcards of the filters of all consumers meet in too many ways")
    if config.direct or name in others or stream.max_consumers <= 0:
        return
    if stream.max_consumers <= sum(not kept.direct for kept in others.values()):
        raise errors.MAXIMUM_CONSUMERS_LIMIT.with_values()


def check_consumer_action(existing: ConsumerConfig | None, config: ConsumerConfig, action: ConsumerAction) -> None:
    """Check that the action allows to create or update; both configurations are normalised. Raises ApiError."""
    if existing is None:
        if action is ConsumerAction.UPDATE:
            raise errors.CONSUMER_DOES_NOT_EXIST.with_values()
        return
    if action is ConsumerAction.CREATE and existing != config:
        raise errors.CONSUMER_ALREADY_EXISTS.with_values()
    check_consumer_update(existing, config)


def check_consumer_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Check that the new configuration may replace the old one; both are normalised. Raises ApiError.

    Whether the old deliver subject still has interest (10013) is for the caller to check.
    """
    for field, shown in _FIXED_BEFORE_DELIVERY:
        if getattr(old, field) != getattr(new, field):
            _cannot(f"{shown} can not be updated")
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            _cannot("can not update pull consumer to push based")
        if not new.deliver_subject:
            _cannot("can not update push consumer to pull based")
    if old.max_waiting != new.max_waiting:
        _cannot("max waiting can not be updated")
    if new.backoff and new.max_deliver != -1 and len(new.backoff) > new.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF.with_values()


_FIXED_BEFORE_DELIVERY: Final = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)


def _cannot(reason: str) -> NoReturn:
    raise errors.CONSUMER_CREATE_FAILED.with_values(err=reason)


def _check_filter_of_subject(config: ConsumerConfig, filter_subject: str) -> None:
    if config.filter_subjects:
        raise errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED.with_values()
    if config.filter_subject != filter_subject:
        raise errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH.with_values()
