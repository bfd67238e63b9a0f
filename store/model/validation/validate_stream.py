"""Validation and defaults of stream configurations, and the changes that an update may make.

The checks and their order are nats-server's, so that a request with two errors gets the same answer.
`normalise_stream` considers a single configuration; overlap with other streams, account limits and placement are
checked in cluster/meta. Source: stream.go (checkStreamCfg, configUpdateCheck), jetstream_api.go
(jsStreamCreateRequest).
"""

from typing import Any, NoReturn

import attrs

from jetraft.store.model import errors
from jetraft.store.model.config import (
    DiscardPolicy,
    PersistMode,
    Placement,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from jetraft.store.model.extensions import stream_extensions
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import format_duration
from jetraft.store.model.limits import (
    AGE_MIN_NS,
    DESCRIPTION_BYTES_MAX,
    DUPLICATE_WINDOW_DEFAULT_NS,
    MARKER_TTL_MIN_NS,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    NO_LIMITS,
    REPLICAS_MAX,
    ServerLimits,
)
from jetraft.store.model.mapping.subject_pairs import TooManyComparisonsError, find_pair
from jetraft.store.model.subject import (
    EVERYTHING,
    captures_jetstream_space,
    captures_system_space,
    has_path_separator,
    overlaps,
    valid_asset_name,
    valid_subject,
)
from jetraft.store.model.validation.validate_origins import check_origins, check_republish, check_subject_transform
from jetraft.store.model.versioning import stored_stream

_UNLIMITED_WHEN_UNSET = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def check_stream_create_request(name_in_subject: str, config: StreamConfig) -> None:
    """Check a create request before its configuration. Raises ApiError."""
    check_stream_update_request(name_in_subject, config)
    if config.sealed:
        _refuse("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        _refuse("stream has no mirror but does have mirror direct")


def check_stream_update_request(name_in_subject: str, config: StreamConfig) -> None:
    """Check an update request before its configuration. Raises ApiError."""
    if name_in_subject != config.name:
        raise errors.STREAM_MISMATCH.with_values()
    if has_path_separator(config.name.encode()):
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS.with_values()


def normalise_stream(
    config: StreamConfig,
    *,
    limits: ServerLimits = NO_LIMITS,
    clustered: bool = True,
    pedantic: bool = False,
) -> StreamConfig:
    """The configuration to be stored: checked, defaults filled in, required API level in its metadata.

    With `pedantic`, values that would be corrected are refused. Raises ApiError with nats-server's code and text.
    """
    config = stored_stream(config)
    _check_texts(config)
    config = _with_counts(config, pedantic=pedantic)
    config = _with_times(config, limits, pedantic=pedantic)
    config = _with_features(config, pedantic=pedantic)
    config = check_origins(config)
    config = _with_subjects(config)
    check_subject_transform(config)
    config = check_republish(config, pedantic=pedantic)
    if config.placement == Placement():
        config = attrs.evolve(config, placement=None)
    if config.placement is not None and config.placement.preferred:
        _refuse("preferred server not permitted in placement")
    if config.num_replicas > 1 and not clustered:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED.with_values()
    return config


def check_stream_update(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """The configuration that replaces `old`; both are normalised. Raises ApiError for changes that are not allowed.

    Sealing a stream implies further changes (no age limit, discard new, no deletes), which are in the result.
    `first_seq` is that of `old`, because replicas count from it when they replay the log, whose messages already have
    sequences. nats-server uses the new one, and loses the messages when it restarts after a crash.
    """
    if new.name != old.name:
        _refuse("stream configuration name must match original")
    if new.storage is not old.storage:
        _refuse("stream configuration update can not change storage type")
    if new.retention is not old.retention and RetentionPolicy.WORK_QUEUE in (old.retention, new.retention):
        _refuse("stream configuration update can not change retention policy to/from workqueue")
    _check_one_way_switches(old, new)
    if new.mirror is not None and new.mirror != old.mirror:
        raise errors.STREAM_MIRROR_NOT_UPDATABLE.with_values()
    _check_feature_switches(old, new)
    new = attrs.evolve(new, first_seq=old.first_seq)
    if not new.sealed:
        return new
    return attrs.evolve(
        new, max_age=0, discard=DiscardPolicy.NEW, deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
    )


def same_stream(one: StreamConfig, other: StreamConfig) -> bool:
    """Whether a repeated create of a stream is the same request: equal except for the keys of API levels."""
    return stored_stream(one) == stored_stream(other)


def _refuse(reason: str) -> NoReturn:
    raise errors.STREAM_INVALID_CONFIG.with_values(err=reason)


def _pedantic(reason: str) -> NoReturn:
    raise errors.PEDANTIC.with_values(err=reason)


def _check_texts(config: StreamConfig) -> None:
    name = config.name.encode()
    if not valid_asset_name(name):
        _refuse(r"stream name is required and can not contain '.', '*', '>', '\', '/'")
    if len(name) > NAME_BYTES_MAX:
        _refuse(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        _refuse(f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}")
    if sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()) > METADATA_BYTES_MAX:
        _refuse(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")


def _with_counts(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    if config.num_replicas == 0:
        config = attrs.evolve(config, num_replicas=1)
    if config.num_replicas > REPLICAS_MAX:
        _refuse(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_NEGATIVE.with_values()
    unlimited: dict[str, Any] = {}
    for field in _UNLIMITED_WHEN_UNSET:
        value = getattr(config, field)
        if value < -1 and pedantic:
            _pedantic(f"{field} must be set to -1")
        if value == 0 or value < -1:
            unlimited[field] = -1
    return attrs.evolve(config, **unlimited)


def _with_times(config: StreamConfig, limits: ServerLimits, *, pedantic: bool) -> StreamConfig:
    if config.max_age < 0:
        _refuse("max age can not be negative")
    if config.max_age != 0 and config.max_age < AGE_MIN_NS:
        _refuse("max age needs to be >= 100ms")
    if config.duplicate_window == 0 and config.mirror is None and not config.sources:
        config = attrs.evolve(config, duplicate_window=_default_window_ns(config, limits, pedantic=pedantic))
    window_ns = config.duplicate_window
    if window_ns < 0:
        _refuse("duplicates window can not be negative")
    if config.max_age != 0 and window_ns > config.max_age:
        _refuse("duplicates window can not be larger then max age")
    if 0 < limits.duplicate_window_ns < window_ns:
        shown = format_duration(limits.duplicate_window_ns)
        _refuse(f"duplicates window can not be larger then server limit of {shown}")
    if 0 < window_ns < AGE_MIN_NS:
        _refuse("duplicates window needs to be >= 100ms")
    return config


def _default_window_ns(config: StreamConfig, limits: ServerLimits, *, pedantic: bool) -> int:
    window_ns = DUPLICATE_WINDOW_DEFAULT_NS
    if 0 < limits.duplicate_window_ns < window_ns:
        if pedantic:
            _pedantic("duplicate window limits are higher than current limits")
        window_ns = limits.duplicate_window_ns
    if config.max_age != 0 and config.max_age < window_ns:
        if pedantic:
            _pedantic("duplicate window cannot be bigger than max age")
        return config.max_age
    return window_ns


def _with_features(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    if config.deny_purge and config.allow_rollup_hdrs:
        _refuse("roll-ups require the purge permission")
    if config.allow_msg_counter:
        _check_counter(config)
    if config.discard_new_per_subject:
        _check_discard_new_per_subject(config)
    config = _with_delete_markers(config, pedantic=pedantic)
    if config.allow_msg_schedules:
        if config.discard is DiscardPolicy.NEW:
            _refuse("message scheduling cannot use discard new")
        if not config.allow_rollup_hdrs:
            if pedantic:
                _refuse("message scheduling cannot be set if roll-ups are disabled")
            config = attrs.evolve(config, allow_rollup_hdrs=True, deny_purge=False)
    if config.persist_mode is PersistMode.ASYNC:
        _check_async_persistence(config)
    return config


def _check_counter(config: StreamConfig) -> None:
    if config.discard is DiscardPolicy.NEW:
        _refuse("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        _refuse("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        _refuse("counter stream cannot use message schedules")
    if config.retention is not RetentionPolicy.LIMITS:
        _refuse("counter stream can only use limits retention")


def _check_discard_new_per_subject(config: StreamConfig) -> None:
    if config.discard is not DiscardPolicy.NEW:
        _refuse("discard new per subject requires discard new policy to be set")
    if config.max_msgs_per_subject <= 0 and not stream_extensions(config).max_bytes_per_subject:
        _refuse("discard new per subject requires max msgs per subject > 0")


def _with_delete_markers(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    if config.subject_delete_marker_ttl < 0:
        _refuse("subject delete marker TTL must not be negative")
    if config.subject_delete_marker_ttl == 0:
        return config
    if config.subject_delete_marker_ttl < MARKER_TTL_MIN_NS:
        _refuse("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            _refuse("subject delete marker cannot be set if message TTLs are disabled")
        config = attrs.evolve(config, allow_msg_ttl=True)
    if not config.allow_rollup_hdrs:
        if pedantic:
            _refuse("subject delete marker cannot be set if roll-ups are disabled")
        config = attrs.evolve(config, allow_rollup_hdrs=True, deny_purge=False)
    return config


def _check_async_persistence(config: StreamConfig) -> None:
    if config.storage is not StorageType.FILE:
        _refuse("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        _refuse("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        _refuse("async persist mode is not supported with atomic batch publish")


def _with_subjects(config: StreamConfig) -> StreamConfig:
    """Check the subjects: valid, disjoint, and not the servers' own. Without subjects, the stream's name is used."""
    if not config.subjects:
        if config.mirror is None and not config.sources:
            return attrs.evolve(config, subjects=(config.name,))
        return config
    encoded = config.subject_filters
    try:
        pair = find_pair(encoded, overlaps)
    except TooManyComparisonsError:
        _refuse("too many wildcard subjects to compare with each other")
    for index, subject in enumerate(encoded):
        if not valid_subject(subject):
            _refuse("invalid subject")
        _check_reserved(config, subject)
        if pair is not None and index == pair[0]:
            one, other = (go_quote(config.subjects[place]) for place in pair)
            _refuse(f"subject {one} overlaps with {other}")
    return config


def _check_reserved(config: StreamConfig, subject: bytes) -> None:
    if subject == EVERYTHING:
        if not config.no_ack:
            _refuse("capturing all subjects requires no-ack to be true")
        if config.num_replicas != 1:
            _refuse("capturing all subjects requires replicas of 1")
    if config.no_ack:
        return
    if captures_jetstream_space(subject):
        _refuse("subjects that overlap with jetstream api require no-ack to be true")
    if captures_system_space(subject):
        _refuse("subjects that overlap with system api require no-ack to be true")


def _check_one_way_switches(old: StreamConfig, new: StreamConfig) -> None:
    if old.sealed and not new.sealed:
        _refuse("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        _refuse("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        _refuse("stream configuration update can not cancel deny purge")


def _check_feature_switches(old: StreamConfig, new: StreamConfig) -> None:
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        _refuse("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        _refuse("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        _refuse("message schedules can not be disabled")
    if old.persist_mode is not new.persist_mode:
        _refuse("stream configuration update can not change persist mode")
