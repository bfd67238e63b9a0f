"""Validation of mirrors, sources, subject transforms and republishing.

Checks that need the origin itself (its message size, cycles through other streams) are not here.
Source: stream.go, checkStreamCfg.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

import attrs

from jetraft.store.model import errors
from jetraft.store.model.api_error import ApiErrorSpec
from jetraft.store.model.config import Republish, StreamConfig, StreamConsumerSource, StreamSource, SubjectTransform
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.mapping.subject_pairs import TooManyComparisonsError, find_pair
from jetraft.store.model.mapping.transforming import transform_between
from jetraft.store.model.mapping.transforms import TransformError, check_destination
from jetraft.store.model.subject import (
    one_covers_other,
    overlaps,
    valid_asset_name,
    valid_publish_subject,
    valid_subject,
)

_API_PREFIX = b"$JS.API"
_BAD_SUBJECT = "invalid subject"


def check_origins(config: StreamConfig) -> StreamConfig:
    """The configuration with its mirror and sources checked. Raises ApiError."""
    if config.mirror is not None:
        _check_mirror(config, config.mirror)
    if config.sources and config.allow_msg_schedules:
        raise errors.SOURCE_WITH_MSG_SCHEDULES.with_values()
    _check_sources(config)
    externals = [origin.external for origin in (config.mirror, *config.sources) if origin is not None]
    for external in externals:
        if external is not None and external.deliver and not valid_publish_subject(external.deliver.encode()):
            raise errors.STREAM_EXTERNAL_DELIVER_PREFIX_INVALID.with_values(prefix=external.deliver)
    for external in externals:
        if external is None or not external.api:
            continue
        if not valid_publish_subject(external.api.encode()):
            _refuse(f"stream external api prefix {go_quote(external.api)} must be a valid subject without wildcards")
        if overlaps(external.api.encode(), _API_PREFIX):
            raise errors.STREAM_EXTERNAL_API_OVERLAP.with_values(prefix=external.api, subject=_API_PREFIX.decode())
    return config


def check_subject_transform(config: StreamConfig) -> None:
    """Check that incoming subjects can be transformed. Raises ApiError."""
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not valid_subject(transform.src.encode()):
        raise errors.STREAM_TRANSFORM_INVALID_SOURCE.with_values(err=f"{_BAD_SUBJECT} {transform.src}")
    try:
        if transform.dest:
            check_destination(transform.dest.encode())
        transform_between(transform.src, transform.dest)
    except TransformError as error:
        raise errors.STREAM_TRANSFORM_INVALID_DESTINATION.with_values(err=str(error)) from None


def check_republish(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    """Check that the republish rule has a source and no cycle with the stream's own subjects. Raises ApiError."""
    rule = config.republish
    if rule is None:
        return config
    if not rule.src:
        if pedantic:
            raise errors.PEDANTIC.with_values(err="republish source can not be empty")
        rule = attrs.evolve(rule, src=">")
    rule = _implied_by_transform(config, rule, pedantic=pedantic)
    if any(overlaps(rule.dest.encode(), subject.encode()) for subject in config.subjects):
        _refuse("stream configuration for republish destination forms a cycle")
    try:
        transform_between(rule.src, rule.dest)
    except TransformError:
        _refuse(f"stream configuration for republish with transform from '{rule.src}' to '{rule.dest}' not valid")
    return attrs.evolve(config, republish=rule)


def _implied_by_transform(config: StreamConfig, rule: Republish, *, pedantic: bool) -> Republish:
    """The rule; if it republishes `>` as `>` and all subjects are transformed, with the transformed ones instead."""
    transform = config.subject_transform
    if transform is None or (rule.src, rule.dest) != (">", ">") or config.subjects != (transform.src,):
        return rule
    if pedantic:
        raise errors.PEDANTIC.with_values(err="implicit republish based on subject transform")
    return attrs.evolve(rule, src=transform.dest, dest=transform.dest)


def _refuse(reason: str) -> NoReturn:
    raise errors.STREAM_INVALID_CONFIG.with_values(err=reason)


def _check_mirror(config: StreamConfig, mirror: StreamSource) -> None:
    for used, spec in (
        (config.first_seq > 0, errors.MIRROR_WITH_FIRST_SEQ),
        (bool(config.subjects), errors.MIRROR_WITH_SUBJECTS),
        (bool(config.sources), errors.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, errors.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, errors.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, errors.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, errors.MIRROR_WITH_MSG_SCHEDULES),
    ):
        if used:
            raise spec.with_values()
    if mirror.consumer is not None:
        _check_durable(mirror, mirror.consumer, errors.MIRROR_DURABLE_CONSUMER_INVALID)
    if mirror.filter_subject and mirror.subject_transforms:
        raise errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED.with_values()
    if config.subject_delete_marker_ttl > 0:
        _refuse("subject delete markers forbidden on mirrors")
    for transform in mirror.subject_transforms:
        _check_transform_source(transform, errors.MIRROR_INVALID_SUBJECT_FILTER)
        _check_transform_destination(transform, errors.MIRROR_INVALID_TRANSFORM_DESTINATION)
    if _touch(mirror.subject_transforms, overlaps):
        raise errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS.with_values()
    if mirror.external is None and not valid_asset_name(mirror.name.encode()):
        raise errors.MIRROR_INVALID_STREAM_NAME.with_values()


def _check_sources(config: StreamConfig) -> None:
    seen: set[object] = set()
    consumers: set[object] = set()
    for source in config.sources:
        if source is None or not valid_asset_name(source.name.encode()):
            raise errors.SOURCE_INVALID_STREAM_NAME.with_values()
        external = "" if source.external is None else source.external.api
        identity = (source.name, external, source.filter_subject, source.subject_transforms)
        if identity in seen:
            raise errors.SOURCE_DUPLICATE_DETECTED.with_values()
        seen.add(identity)
        _check_source_filters(source)
        if source.consumer is not None:
            _check_durable(source, source.consumer, errors.SOURCE_DURABLE_CONSUMER_INVALID)
            durable = (source.name, external, source.consumer.name)
            if durable in consumers:
                raise errors.SOURCE_DURABLE_CONSUMER_DUPLICATE.with_values()
            consumers.add(durable)


def _check_source_filters(source: StreamSource) -> None:
    if source.filter_subject and source.subject_transforms:
        raise errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED.with_values()
    for transform in source.subject_transforms:
        _check_transform_source(transform, errors.SOURCE_INVALID_SUBJECT_FILTER)
        _check_transform_destination(transform, errors.SOURCE_INVALID_TRANSFORM_DESTINATION)
    if _touch(source.subject_transforms, one_covers_other):
        raise errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS.with_values()


def _touch(transforms: Sequence[SubjectTransform], touch: Callable[[bytes, bytes], bool]) -> bool:
    try:
        return find_pair([transform.src.encode() for transform in transforms], touch) is not None
    except TooManyComparisonsError:
        _refuse("too many wildcard subject transforms to compare with each other")


def _check_durable(origin: StreamSource, consumer: StreamConsumerSource, spec: ApiErrorSpec) -> None:
    fits = valid_asset_name(consumer.name.encode()) and valid_publish_subject(consumer.deliver_subject.encode())
    if not fits or origin.opt_start_seq or origin.opt_start_time is not None or origin.filter_subject:
        raise spec.with_values()


def _check_transform_source(transform: SubjectTransform, spec: ApiErrorSpec) -> None:
    if transform.src and not valid_subject(transform.src.encode()):
        raise spec.with_values(err=f"{_BAD_SUBJECT} {transform.src}")


def _check_transform_destination(transform: SubjectTransform, spec: ApiErrorSpec) -> None:
    try:
        if transform.dest:
            check_destination(transform.dest.encode())
        transform_between(transform.src, transform.dest)
    except TransformError as error:
        raise spec.with_values(err=str(error)) from None
