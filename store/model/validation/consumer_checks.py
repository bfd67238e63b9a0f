"""The rules for one consumer's configuration, given its stream's, in nats-server's order.

Source: consumer.go, checkConsumerCfg.
"""

import re
from typing import Final, NoReturn

from jetraft.store.model import errors
from jetraft.store.model.config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
    RetentionPolicy,
    StreamConfig,
)
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import format_duration
from jetraft.store.model.limits import (
    DESCRIPTION_BYTES_MAX,
    HEARTBEAT_MIN_NS,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    REQUEST_EXPIRES_MIN_NS,
    SOURCE_HEARTBEAT_NS,
    ServerLimits,
)
from jetraft.store.model.mapping.subject_pairs import TooManyComparisonsError, find_pair
from jetraft.store.model.subject import (
    is_literal,
    is_subset,
    one_covers_other,
    valid_asset_name,
    valid_subject,
)

_BAD_SUBJECT: Final = "invalid subject"
_BAD_NAME_TAIL: Final = r"can not contain '.', '*', '>', '\', '/'"
GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_SAMPLE_FREQ: Final = re.compile(r"[+-]?[0-9]+")
_INT64_MAX: Final = (1 << 63) - 1


def check_consumer(config: ConsumerConfig, stream: StreamConfig, limits: ServerLimits) -> None:
    """Check a configuration, with defaults filled in, against every rule. Raises ApiError."""
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
    if not all(valid_subject(subject) for subject in config.filters):
        _refuse(_BAD_SUBJECT)
    try:
        pair = find_pair(config.filters, one_covers_other)
    except TooManyComparisonsError:
        _refuse("too many wildcard filter subjects to compare with each other")
    if pair is not None:
        raise errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS.with_values()


def _check_start(config: ConsumerConfig) -> None:
    """Check that a start position is given exactly when the deliver policy needs one."""
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
        fault = f"strconv.Atoi: parsing {go_quote(digits)}: invalid syntax"
    elif not -_INT64_MAX <= _bounded_int(digits) <= _INT64_MAX:
        fault = f"strconv.Atoi: parsing {go_quote(digits)}: value out of range"
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
        if not GROUP_NAME.fullmatch(group):
            raise errors.CONSUMER_INVALID_GROUP_NAME.with_values()


def _refuse(reason: str) -> NoReturn:
    raise errors.STREAM_INVALID_CONFIG.with_values(err=reason)
