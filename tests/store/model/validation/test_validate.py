"""What the comparison with the reference cannot show: server limits, clusters, features that are not served yet."""

import itertools

import attrs
import pytest

from jetraft.store.model import errors
from jetraft.store.model.config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    RetentionPolicy,
    StreamConfig,
)
from jetraft.store.model.errors import ApiError
from jetraft.store.model.validation.consumer_filters import rivals_in
from jetraft.store.model.validation.validate import (
    ServerLimits,
    check_consumer_fits,
    normalise_consumer,
    normalise_stream,
    same_stream,
)
from jetraft.store.model.versioning import (
    API_LEVEL,
    LEVEL_KEY,
    REQUIRED_LEVEL_KEY,
    SERVER_VERSION,
    VERSION_KEY,
    shown_stream,
)

S = 1_000_000_000
STREAM = normalise_stream(StreamConfig(name="S"))
PULL = ConsumerConfig(name="c", ack_policy=AckPolicy.EXPLICIT)


def refused(error: ApiError) -> pytest.RaisesExc[ApiError]:
    return pytest.RaisesExc(ApiError, check=lambda raised: raised == error)


def test_replicas_need_a_cluster() -> None:
    config = StreamConfig(name="S", num_replicas=3)

    assert normalise_stream(config, clustered=True).num_replicas == 3
    with refused(errors.STREAM_REPLICAS_NOT_SUPPORTED.with_values()):
        normalise_stream(config, clustered=False)


def test_the_servers_duplicate_window_is_a_ceiling() -> None:
    limits = ServerLimits(duplicate_window_ns=30 * S)

    assert normalise_stream(StreamConfig(name="S"), limits=limits).duplicate_window == 30 * S
    text = "duplicates window can not be larger then server limit of 30s"
    with refused(errors.STREAM_INVALID_CONFIG.with_values(err=text)):
        normalise_stream(StreamConfig(name="S", duplicate_window=31 * S), limits=limits)
    with refused(errors.PEDANTIC.with_values(err="duplicate window limits are higher than current limits")):
        normalise_stream(StreamConfig(name="S"), limits=limits, pedantic=True)


def test_the_servers_consumer_limits_are_defaults_and_ceilings() -> None:
    limits = ServerLimits(max_ack_pending=10, max_request_batch=5)

    config = normalise_consumer(PULL, STREAM, limits=limits)

    assert (config.max_ack_pending, config.max_batch) == (10, 5)
    with refused(errors.CONSUMER_MAX_ACK_PENDING_EXCESS.with_values(limit=10)):
        normalise_consumer(attrs.evolve(PULL, max_ack_pending=11), STREAM, limits=limits)
    with refused(errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED.with_values(limit=5)):
        normalise_consumer(attrs.evolve(PULL, max_batch=6), STREAM, limits=limits)


def test_consumer_replicas_follow_the_stream() -> None:
    replicated = normalise_stream(StreamConfig(name="S", num_replicas=3))

    assert normalise_consumer(attrs.evolve(PULL, num_replicas=3), replicated).num_replicas == 3
    with refused(errors.CONSUMER_REPLICAS_EXCEEDS_STREAM.with_values()):
        normalise_consumer(attrs.evolve(PULL, num_replicas=5), replicated)


def test_normalising_twice_changes_nothing() -> None:
    stream = normalise_stream(StreamConfig(name="S", max_age=60 * S, metadata={VERSION_KEY: "x"}))
    consumer = normalise_consumer(PULL, stream)

    assert normalise_stream(stream) == stream
    assert normalise_consumer(consumer, stream) == consumer


def test_a_repeated_create_is_recognised_by_what_a_client_sees() -> None:
    assert same_stream(STREAM, shown_stream(STREAM))
    assert not same_stream(STREAM, attrs.evolve(STREAM, max_msgs=5))


def test_shown_metadata_tells_the_level_that_is_served() -> None:
    assert shown_stream(STREAM).metadata == {
        REQUIRED_LEVEL_KEY: "0",
        VERSION_KEY: SERVER_VERSION,
        LEVEL_KEY: str(API_LEVEL),
    }


def test_too_many_wildcards_are_refused_and_many_literals_are_not() -> None:
    literals = tuple(f"s.{number}" for number in range(10_000))
    assert normalise_stream(StreamConfig(name="S", subjects=literals)).subjects == literals

    wildcards = tuple(f"{number}.*.x" for number in range(1_000)) + tuple(f"*.{number}.y" for number in range(1_000))
    with pytest.raises(ApiError, match="too many wildcard subjects"):
        normalise_stream(StreamConfig(name="S", subjects=wildcards, no_ack=True))
    with pytest.raises(ApiError, match="too many wildcard filter subjects"):
        normalise_consumer(attrs.evolve(PULL, filter_subjects=wildcards), STREAM)


def test_a_consumer_may_be_replaced_where_no_further_one_fits() -> None:
    full = attrs.evolve(STREAM, max_consumers=1)

    check_consumer_fits("c", PULL, full, {"c": PULL}, filters=rivals_in({"c": PULL}))
    with refused(errors.MAXIMUM_CONSUMERS_LIMIT.with_values()):
        check_consumer_fits("d", PULL, full, {"c": PULL}, filters=rivals_in({"c": PULL}))


def test_where_a_work_queue_consumer_starts_is_checked_before_its_rivals() -> None:
    queue = attrs.evolve(STREAM, retention=RetentionPolicy.WORK_QUEUE)
    late = attrs.evolve(PULL, deliver_policy=DeliverPolicy.NEW)

    with refused(errors.CONSUMER_WQ_NOT_DELIVER_ALL.with_values()):
        check_consumer_fits("d", late, queue, {"c": PULL}, filters=rivals_in({"c": PULL}))


def test_those_who_read_a_work_queue_for_a_server_are_no_rivals() -> None:
    queue = attrs.evolve(STREAM, retention=RetentionPolicy.WORK_QUEUE)
    reader = attrs.evolve(PULL, sourcing=True, ack_policy=AckPolicy.FLOW_CONTROL)

    check_consumer_fits("r", reader, queue, {"c": PULL}, filters=rivals_in({"c": PULL}))
    check_consumer_fits("c", PULL, queue, {"r": reader}, filters=rivals_in({"r": reader}))
    with refused(errors.CONSUMER_WQ_MULTIPLE_UNFILTERED.with_values()):
        check_consumer_fits("d", PULL, queue, {"c": PULL, "r": reader}, filters=rivals_in({"c": PULL, "r": reader}))


def test_corrections_do_not_depend_on_each_other() -> None:
    """Every combination of unset and out-of-range counts ends at "no limit"."""
    for values in itertools.product((0, -1, -9), repeat=3):
        max_msgs, max_bytes, max_consumers = values
        config = StreamConfig(name="S", max_msgs=max_msgs, max_bytes=max_bytes, max_consumers=max_consumers)
        assert normalise_stream(config) == STREAM
