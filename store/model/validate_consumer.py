"""Consumer configurations: what is refused, what is filled in, what an update may not change.

As for streams, checks and order are nats-server's. `normalise_consumer` needs only the stream's configuration;
`check_consumer_fits` needs the stream's other consumers; `check_consumer_update` the one that exists already.
Source: consumer.go (setConsumerConfigDefaults, checkConsumerCfg, checkNewConsumerConfig, addConsumerWithAssignment),
jetstream_api.go (jsConsumerCreateRequest).
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NoReturn

import attrs

from jetraft.store.model import errors
from jetraft.store.model.config import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
    PriorityPolicy,
    RetentionPolicy,
    StreamConfig,
)
from jetraft.store.model.gojson import quote
from jetraft.store.model.gotime import format_duration
from jetraft.store.model.limits import (
    ACK_WAIT_DEFAULT_NS,
    DESCRIPTION_BYTES_MAX,
    HEARTBEAT_MIN_NS,
    INACTIVE_THRESHOLD_DEFAULT_NS,
    MAX_ACK_PENDING_DEFAULT,
    MAX_WAITING_DEFAULT,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    NO_LIMITS,
    PINNED_TTL_DEFAULT_NS,
    REQUEST_EXPIRES_MIN_NS,
    SOURCE_HEARTBEAT_NS,
    ServerLimits,
)
from jetraft.store.model.subject import (
    has_path_separator,
    is_literal,
    is_subset,
    overlaps,
    valid_asset_name,
    valid_subject,
)
from jetraft.store.model.versioning import stored_consumer

_BAD_SUBJECT: Final = "malformed subject"
_BAD_NAME_TAIL: Final = r"can not contain '.', '*', '>', '\', '/'"
_GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_SAMPLE_FREQ: Final = re.compile(r"[+-]?[0-9]+")
_INT64_MAX: Final = (1 << 63) - 1


class CreateForm(Enum):
    """Which of the three create subjects a request came on."""

    EPHEMERAL = "CONSUMER.CREATE.<stream>"
    DURABLE = "CONSUMER.DURABLE.CREATE.<stream>.<consumer>"
    NAMED = "CONSUMER.CREATE.<stream>.<consumer>[.<filter>]"


def check_consumer_create_request(
    request: CreateConsumerRequest, *, form: CreateForm, stream: str, consumer: str = "", filter_subject: str = ""
) -> ConsumerConfig:
    """The requested configuration, named as the subject says; an unnamed ephemeral keeps an empty name.

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


def normalise_consumer(
    config: ConsumerConfig,
    stream: StreamConfig,
    *,
    limits: ServerLimits = NO_LIMITS,
    pedantic: bool = False,
) -> ConsumerConfig:
    """The configuration as the server keeps it: checked, defaults filled in, required API level in its metadata.

    `stream` is normalised. `pedantic` refuses what would otherwise be corrected. Raises ApiError with nats-server's
    code and text.
    """
    config = _with_defaults(stored_consumer(config), stream, limits, pedantic=pedantic)
    _check_names(config)
    _check_replicas(config, stream)
    _check_acks(config)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise errors.CONSUMER_DESCRIPTION_TOO_LONG.with_values(max=DESCRIPTION_BYTES_MAX)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, limits)
    _check_limits(config, stream, limits)
    _check_filters(config)
    _check_start(config)
    _check_sampling(config)
    if config.flow_control and config.idle_heartbeat == 0:
        raise errors.CONSUMER_FLOW_CONTROL_NEEDS_HEARTBEATS.with_values()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH.with_values()
    if sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()) > METADATA_BYTES_MAX:
        raise errors.CONSUMER_METADATA_LENGTH.with_values(limit=f"{METADATA_BYTES_MAX // 1024}KB")
    _check_priority_groups(config)
    if not config.is_durable and config.inactive_threshold <= 0:
        config = attrs.evolve(config, inactive_threshold=INACTIVE_THRESHOLD_DEFAULT_NS)
    return config


def check_consumer_fits(
    name: str, config: ConsumerConfig, stream: StreamConfig, others: Mapping[str, ConsumerConfig]
) -> None:
    """The rules between the consumers of one stream; `others` may contain the one that is replaced. Raises ApiError.

    A work queue gives each message to one consumer: explicit acks, deliver all, and filters that do not touch.
    """
    rivals = {other: kept for other, kept in others.items() if other != name}
    if stream.retention is RetentionPolicy.WORK_QUEUE:
        if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
            raise errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK.with_values()
        if rivals and not config.filters:
            raise errors.CONSUMER_WQ_MULTIPLE_UNFILTERED.with_values()
        if any(_touch(config, rival) for rival in rivals.values()):
            raise errors.CONSUMER_WQ_NOT_UNIQUE.with_values()
        if config.deliver_policy is not DeliverPolicy.ALL:
            raise errors.CONSUMER_WQ_NOT_DELIVER_ALL.with_values()
    if name not in others and 0 < stream.max_consumers <= len(others):
        raise errors.MAXIMUM_CONSUMERS_LIMIT.with_values()


def check_consumer_action(existing: ConsumerConfig | None, config: ConsumerConfig, action: ConsumerAction) -> None:
    """The request may create, or update, as its action says; both configurations are normalised. Raises ApiError."""
    if existing is None:
        if action is ConsumerAction.UPDATE:
            raise errors.CONSUMER_DOES_NOT_EXIST.with_values()
        return
    if action is ConsumerAction.CREATE and existing != config:
        raise errors.CONSUMER_ALREADY_EXISTS.with_values()
    check_consumer_update(existing, config)


def check_consumer_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """The new configuration may replace the old one; both are normalised. Raises ApiError.

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

# Fields that are corrected when negative, in the order in which pedantic mode refuses them.
_NOT_NEGATIVE: Final = (
    ("max_batch", 0, "max_batch must not be negative"),
    ("max_expires", 0, "max_expires must not be negative"),
    ("max_bytes", 0, "max_bytes must not be negative"),
    ("idle_heartbeat", 0, "idle_heartbeat must not be negative"),
    ("inactive_threshold", 0, "inactive_threshold must not be negative"),
    ("priority_timeout", 0, "priority_timeout must not be negative"),
)


def _refuse(reason: str) -> NoReturn:
    raise errors.STREAM_INVALID_CONFIG.with_values(err=reason)


def _cannot(reason: str) -> NoReturn:
    raise errors.CONSUMER_CREATE_FAILED.with_values(err=reason)


def _pedantic(reason: str) -> NoReturn:
    raise errors.PEDANTIC.with_values(err=reason)


def _touch(one: ConsumerConfig, other: ConsumerConfig) -> bool:
    if not one.filters or not other.filters:
        return True
    return any(overlaps(mine, theirs) for mine in one.filters for theirs in other.filters)


def _check_filter_of_subject(config: ConsumerConfig, filter_subject: str) -> None:
    if config.filter_subjects:
        raise errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED.with_values()
    if config.filter_subject != filter_subject:
        raise errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH.with_values()


def _with_defaults(
    config: ConsumerConfig, stream: StreamConfig, limits: ServerLimits, *, pedantic: bool
) -> ConsumerConfig:
    config = _corrected(config, pedantic=pedantic)
    changes: dict[str, Any] = {}
    if not config.deliver_subject and config.max_waiting == 0:
        changes["max_waiting"] = MAX_WAITING_DEFAULT
    ack_wait_ns = config.ack_wait
    if ack_wait_ns == 0 and config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        ack_wait_ns = ACK_WAIT_DEFAULT_NS
    if config.backoff:
        if pedantic and ack_wait_ns != config.backoff[0]:
            _pedantic("first backoff value has to equal batch AckWait")
        ack_wait_ns = config.backoff[0]
    changes["ack_wait"] = ack_wait_ns
    changes.update(_inherited(config, stream, limits, pedantic=pedantic))
    if not config.deliver_subject and config.max_batch == 0 and limits.max_request_batch > 0:
        if pedantic:
            _pedantic("max_request_batch must be set if it's JetStream limits are set")
        changes["max_batch"] = limits.max_request_batch
    if config.priority_policy is PriorityPolicy.PINNED_CLIENT and config.priority_timeout == 0:
        changes["priority_timeout"] = PINNED_TTL_DEFAULT_NS
    if config.ack_policy is AckPolicy.FLOW_CONTROL and not pedantic:
        changes.update(flow_control=True, idle_heartbeat=SOURCE_HEARTBEAT_NS)
    return attrs.evolve(config, **changes)


def _corrected(config: ConsumerConfig, *, pedantic: bool) -> ConsumerConfig:
    """Values below their range become "no limit" or "not set"."""
    changes: dict[str, Any] = {}
    if config.max_deliver < -1 and pedantic:
        _pedantic("max_deliver must be set to -1")
    if config.max_deliver == 0 or config.max_deliver < -1:
        changes["max_deliver"] = -1
    rules = (
        ("max_waiting", 0, "max_waiting must not be negative"),
        ("max_ack_pending", -1, "max_ack_pending must be set to -1"),
        *_NOT_NEGATIVE,
    )
    for field, floor, reason in rules:
        if getattr(config, field) < floor:
            if pedantic:
                _pedantic(reason)
            changes[field] = floor
    return attrs.evolve(config, **changes)


def _inherited(config: ConsumerConfig, stream: StreamConfig, limits: ServerLimits, *, pedantic: bool) -> dict[str, Any]:
    """What the stream's consumer limits and the server's limits fill in."""
    changes: dict[str, Any] = {}
    max_ack_pending = config.max_ack_pending
    if max_ack_pending == 0:
        if pedantic and stream.consumer_limits.max_ack_pending > 0:
            _pedantic("max_ack_pending must be set if it's configured in stream limits")
        max_ack_pending = stream.consumer_limits.max_ack_pending
    if config.inactive_threshold == 0:
        if pedantic and stream.consumer_limits.inactive_threshold > 0:
            _pedantic("inactive_threshold must be set if it's configured in stream limits")
        changes["inactive_threshold"] = stream.consumer_limits.inactive_threshold
    if max_ack_pending == 0 and config.ack_policy is not AckPolicy.NONE:
        max_ack_pending = MAX_ACK_PENDING_DEFAULT
        if 0 < limits.max_ack_pending < max_ack_pending:
            max_ack_pending = limits.max_ack_pending
    changes["max_ack_pending"] = max_ack_pending
    return changes


def _check_names(config: ConsumerConfig) -> None:
    if config.name and not valid_asset_name(config.name.encode()):
        _refuse(f"consumer name {_BAD_NAME_TAIL}")
    if config.durable_name and not valid_asset_name(config.durable_name.encode()):
        _refuse(f"consumer durable name {_BAD_NAME_TAIL}")
    if max(len(config.name.encode()), len(config.durable_name.encode())) > NAME_BYTES_MAX:
        raise errors.CONSUMER_NAME_TOO_LONG.with_values(max=NAME_BYTES_MAX)


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > stream.num_replicas:
        raise errors.CONSUMER_REPLICAS_EXCEEDS_STREAM.with_values()
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_NEGATIVE.with_values()
    bound = stream.retention in (RetentionPolicy.INTEREST, RetentionPolicy.WORK_QUEUE)
    if bound and config.num_replicas not in (0, stream.num_replicas):
        raise errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM.with_values()


def _check_acks(config: ConsumerConfig) -> None:
    if any(wait_ns < 0 for wait_ns in config.backoff):
        raise errors.CONSUMER_BACKOFF_NEGATIVE.with_values()
    if config.ack_wait < 0:
        raise errors.CONSUMER_ACK_WAIT_NEGATIVE.with_values()
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        _check_flow_control_acks(config)
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF.with_values()


def _check_flow_control_acks(config: ConsumerConfig) -> None:
    if not config.deliver_subject:
        raise errors.CONSUMER_ACK_FC_REQUIRES_PUSH.with_values()
    if not config.flow_control:
        raise errors.CONSUMER_ACK_FC_REQUIRES_FC.with_values()
    if config.idle_heartbeat != SOURCE_HEARTBEAT_NS:
        _refuse("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING.with_values()
    if config.ack_wait != 0 or config.backoff:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT.with_values()
    if config.max_deliver > 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER.with_values()


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    to = config.deliver_subject.encode()
    if not is_literal(to):
        raise errors.CONSUMER_DELIVER_TO_WILDCARDS.with_values()
    if not valid_subject(to):
        raise errors.CONSUMER_INVALID_DELIVER_SUBJECT.with_values()
    if any(is_subset(to, subject) for subject in stream.subject_filters):
        raise errors.CONSUMER_DELIVER_CYCLE.with_values()
    if config.max_waiting != 0:
        raise errors.CONSUMER_PUSH_MAX_WAITING.with_values()
    if config.max_ack_pending > 0 and config.ack_policy is AckPolicy.NONE:
        raise errors.CONSUMER_MAX_ACK_PENDING_POLICY_REQUIRED.with_values()
    if 0 < config.idle_heartbeat < HEARTBEAT_MIN_NS:
        raise errors.CONSUMER_SMALL_HEARTBEAT.with_values()


def _check_pull(config: ConsumerConfig, stream: StreamConfig, limits: ServerLimits) -> None:
    if config.ack_policy is AckPolicy.NONE and stream.retention is RetentionPolicy.WORK_QUEUE:
        raise errors.CONSUMER_PULL_REQUIRES_ACK.with_values()
    if config.rate_limit_bps > 0:
        raise errors.CONSUMER_PULL_WITH_RATE_LIMIT.with_values()
    if config.idle_heartbeat > 0:
        raise errors.CONSUMER_HEARTBEAT_REQUIRES_PUSH.with_values()
    if config.flow_control:
        raise errors.CONSUMER_FLOW_CONTROL_REQUIRES_PUSH.with_values()
    if 0 < config.max_expires < REQUEST_EXPIRES_MIN_NS:
        raise errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL.with_values()
    if 0 < limits.max_request_batch < config.max_batch:
        raise errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED.with_values(limit=limits.max_request_batch)


def _check_limits(config: ConsumerConfig, stream: StreamConfig, limits: ServerLimits) -> None:
    for limit in (limits.max_ack_pending, stream.consumer_limits.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            raise errors.CONSUMER_MAX_ACK_PENDING_EXCESS.with_values(limit=limit)
    threshold_ns = stream.consumer_limits.inactive_threshold
    if 0 < threshold_ns < config.inactive_threshold:
        raise errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS.with_values(limit=format_duration(threshold_ns))
    if config.direct:
        if not config.deliver_subject:
            raise errors.CONSUMER_DIRECT_REQUIRES_PUSH.with_values()
        if config.is_durable:
            raise errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL.with_values()


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS.with_values()
    if config.filter_subject and not valid_subject(config.filter_subject.encode()):
        _refuse(_BAD_SUBJECT)
    if "" in config.filter_subjects:
        raise errors.CONSUMER_EMPTY_FILTER.with_values()
    for index, subject in enumerate(config.filters):
        if not valid_subject(subject):
            _refuse(_BAD_SUBJECT)
        for other_index, other in enumerate(config.filters):
            if other_index != index and is_subset(subject, other):
                raise errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS.with_values()


def _check_start(config: ConsumerConfig) -> None:
    """The start position is given exactly when the deliver policy wants one."""
    policy = config.deliver_policy
    shown = policy.value.replace("_", " ")
    has_seq, has_time = config.opt_start_seq > 0, config.opt_start_time is not None
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        if not has_seq:
            _bad_start(f"deliver {shown}, but optional start sequence is not set")
    elif policy is DeliverPolicy.BY_START_TIME:
        if not has_time:
            _bad_start(f"deliver {shown}, but optional start time is not set")
        if has_seq:
            _bad_start(f"deliver {shown}, but optional start start sequence is also set")
    elif has_seq:
        _bad_start(f"deliver {shown}, but optional start sequence is also set")
    if has_time and policy is not DeliverPolicy.BY_START_TIME:
        _bad_start(f"deliver {shown}, but optional start time is also set")
    if policy is DeliverPolicy.LAST_PER_SUBJECT and not config.filters:
        _bad_start(f"deliver {shown}, but optional filter subject is not set")


def _bad_start(reason: str) -> NoReturn:
    raise errors.CONSUMER_INVALID_POLICY.with_values(err=f"consumer delivery policy is {reason}")


def _check_sampling(config: ConsumerConfig) -> None:
    """`sample_freq` is a whole percentage as text, with or without the sign; faults are worded as strconv.Atoi does."""
    if not config.sample_freq:
        return
    digits = config.sample_freq.removesuffix("%")
    fault = None
    if not _SAMPLE_FREQ.fullmatch(digits):
        fault = f"strconv.Atoi: parsing {quote(digits)}: invalid syntax"
    elif not -_INT64_MAX <= _bounded_int(digits) <= _INT64_MAX:
        fault = f"strconv.Atoi: parsing {quote(digits)}: value out of range"
    elif int(digits) < 0:
        fault = "<nil>"
    if fault is not None:
        raise errors.CONSUMER_INVALID_SAMPLING.with_values(err=fault)


def _bounded_int(digits: str) -> int:
    """The number, or one beyond 64 bits when there are too many digits to convert cheaply."""
    return int(digits) if len(digits) <= len(str(_INT64_MAX)) + 1 else _INT64_MAX + 1


def _check_priority_groups(config: ConsumerConfig) -> None:
    if config.priority_policy is PriorityPolicy.NONE:
        if config.priority_groups:
            raise errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE.with_values()
        if config.priority_timeout > 0:
            raise errors.CONSUMER_PINNED_TTL_WITH_POLICY_NONE.with_values()
        return
    if config.deliver_subject:
        raise errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP.with_values()
    if not config.priority_groups:
        raise errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP.with_values()
    for group in config.priority_groups:
        if not group:
            raise errors.CONSUMER_EMPTY_GROUP_NAME.with_values()
        if not _GROUP_NAME.fullmatch(group):
            raise errors.CONSUMER_INVALID_GROUP_NAME.with_values()
