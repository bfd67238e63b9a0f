"""The server's defaults for a consumer's configuration, for values that are not set or out of range.

Source: consumer.go, setConsumerConfigDefaults.
"""

from typing import Any, Final, NoReturn

import attrs

from jetraft.store.model import errors
from jetraft.store.model.config import (
    AckPolicy,
    ConsumerConfig,
    PriorityPolicy,
    StreamConfig,
)
from jetraft.store.model.limits import (
    ACK_WAIT_DEFAULT_NS,
    MAX_ACK_PENDING_DEFAULT,
    MAX_WAITING_DEFAULT,
    PINNED_TTL_DEFAULT_NS,
    SOURCE_HEARTBEAT_NS,
    ServerLimits,
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


def with_defaults(
    config: ConsumerConfig, stream: StreamConfig, limits: ServerLimits, *, pedantic: bool
) -> ConsumerConfig:
    """The configuration with every default; raises ApiError in pedantic mode where a value had to be corrected."""
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
    """Defaults from the stream's consumer limits and the server's limits."""
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


def _pedantic(reason: str) -> NoReturn:
    raise errors.PEDANTIC.with_values(err=reason)
