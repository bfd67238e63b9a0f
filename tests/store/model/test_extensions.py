"""The keys `jetraft.*`: what they may be, and what an old one that nobody has checked does."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from jetraft.store.model.config import (
    AckPolicy,
    ConsumerConfig,
    PriorityPolicy,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from jetraft.store.model.errors import ApiError
from jetraft.store.model.extensions import (
    NOTHING,
    ConsumerExtensions,
    KeyRule,
    StreamExtensions,
    check_consumer_extensions,
    check_extensions_update,
    check_stream_extensions,
    check_stream_extensions_update,
    consumer_extensions,
    stream_extensions,
)

STREAM = StreamConfig(name="S", subjects=("s.>",))


def consumer(metadata: dict[str, str], **fields: object) -> ConsumerConfig:
    defaults = {"durable_name": "c", "ack_policy": AckPolicy.EXPLICIT, "max_ack_pending": 1000, "backoff": (10**9,)}
    return ConsumerConfig(metadata=metadata, **{**defaults, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, NOTHING),
        ({"owner": "me", "_nats.req.level": "0", "jetraft": "x"}, NOTHING),
        ({"jetraft.dead_letter": "dlq.orders"}, ConsumerExtensions(dead_letter="dlq.orders")),
        ({"jetraft.nak_backoff": "true"}, ConsumerExtensions(nak_backoff=True)),
        ({"jetraft.nak_backoff": "false"}, ConsumerExtensions()),
        ({"jetraft.strict_acks": "true"}, ConsumerExtensions(strict_acks=True)),
        (
            {"jetraft.strict_acks": "true", "jetraft.ack_publish": "s.done.>"},
            ConsumerExtensions(strict_acks=True, ack_publish="s.done.>"),
        ),
        ({"jetraft.key_order": "token 12"}, ConsumerExtensions(key_order=KeyRule(token=12))),
        ({"jetraft.key_order": "header X-Key"}, ConsumerExtensions(key_order=KeyRule(header="X-Key"))),
    ],
)
def test_a_key_that_can_be_is_in_force(metadata: dict[str, str], expected: ConsumerExtensions) -> None:
    config = consumer(metadata)
    check_consumer_extensions(config, STREAM)
    assert consumer_extensions(config) == expected


@pytest.mark.parametrize(
    ("metadata", "fields", "text"),
    [
        ({"jetraft.dead_leter": "d"}, {}, "unknown key jetraft.dead_leter in the metadata of a consumer"),
        ({"jetraft.": ""}, {}, "unknown key jetraft. in the metadata of a consumer"),
        ({"jetraft.dead_letter": ""}, {}, "jetraft.dead_letter is the beginning of a subject, not ''"),
        ({"jetraft.dead_letter": "a b"}, {}, "jetraft.dead_letter is the beginning of a subject, not 'a b'"),
        ({"jetraft.dead_letter": "a.*"}, {}, "jetraft.dead_letter is the beginning of a subject, not 'a.*'"),
        (
            {"jetraft.dead_letter": "d" * 256},
            {},
            f"jetraft.dead_letter is the beginning of a subject, not '{'d' * 40}'",
        ),
        ({"jetraft.dead_letter": "$JS.API"}, {}, "jetraft.dead_letter can not be a subject of servers"),
        ({"jetraft.dead_letter": "d"}, {"ack_policy": AckPolicy.ALL}, "jetraft.dead_letter needs ack policy explicit"),
        ({"jetraft.dead_letter": "d"}, {"max_ack_pending": -1}, "jetraft.dead_letter needs a max ack pending"),
        (
            {"jetraft.dead_letter": "s.dead"},
            {},
            "jetraft.dead_letter: the consumer would be given its own dead letters",
        ),
        ({"jetraft.nak_backoff": "yes"}, {}, "jetraft.nak_backoff is true or false, not 'yes'"),
        ({"jetraft.nak_backoff": "true"}, {"backoff": ()}, "jetraft.nak_backoff needs a backoff"),
        ({"jetraft.ack_publish": "s.done"}, {}, "jetraft.ack_publish needs jetraft.strict_acks"),
        (
            {"jetraft.ack_publish": "t.>", "jetraft.strict_acks": "true"},
            {},
            "jetraft.ack_publish: stream S captures nothing of t.>, and two streams are not one step",
        ),
        (
            {"jetraft.ack_publish": "a..b", "jetraft.strict_acks": "true"},
            {},
            "jetraft.ack_publish is a subject, with wildcards or without, not 'a..b'",
        ),
        ({"jetraft.strict_acks": "1"}, {}, "jetraft.strict_acks is true or false, not '1'"),
        (
            {"jetraft.strict_acks": "true"},
            {"ack_policy": AckPolicy.NONE},
            "jetraft.strict_acks needs ack policy explicit",
        ),
    ],
)
def test_a_key_that_can_not_be_is_refused_by_name(
    metadata: dict[str, str], fields: dict[str, object], text: str
) -> None:
    with pytest.raises(ApiError) as refused:
        check_consumer_extensions(consumer(metadata, **fields), STREAM)
    assert (refused.value.err_code, refused.value.description) == (10012, text)


def test_dead_letters_may_go_to_subjects_of_the_stream_that_the_consumer_does_not_want() -> None:
    check_consumer_extensions(consumer({"jetraft.dead_letter": "s.dead"}, filter_subject="s.orders.>"), STREAM)


def test_a_key_of_a_stream_that_is_not_known_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        check_stream_extensions(StreamConfig(name="S", metadata={"jetraft.nak_backoff": "true"}))
    assert refused.value.err_code == 10052
    check_stream_extensions(StreamConfig(name="S", metadata={"owner": "me"}))


@pytest.mark.parametrize("metadata", [{"jetraft.of_a_newer_version": "1"}, {"jetraft.strict_acks": "perhaps"}])
def test_a_key_that_nobody_has_checked_does_nothing(metadata: dict[str, str]) -> None:
    assert consumer_extensions(consumer(metadata)) is NOTHING


def test_the_keys_of_a_stream() -> None:
    wanted: dict[str, Any] = {
        "max_subjects": 7,
        "max_bytes_per_subject": 6,
        "rate_msgs_per_s": 8,
        "rate_bytes_per_s": 9,
    }
    metadata = {"x": "y", **{f"jetraft.{name}": str(value) for name, value in wanted.items()}}
    config = StreamConfig(name="S", metadata=metadata)
    check_stream_extensions(config)
    assert stream_extensions(config) == StreamExtensions(**wanted)
    assert stream_extensions(StreamConfig(metadata={"jetraft.max_subjects": "-1"})) == StreamExtensions()


def test_acks_are_those_of_2020_where_a_stream_says_so() -> None:
    assert stream_extensions(StreamConfig(metadata={"jetraft.legacy_ack": "true"})).legacy_ack
    assert not stream_extensions(StreamConfig(metadata={"jetraft.legacy_ack": "false"})).legacy_ack
    with pytest.raises(ApiError, match=r"jetraft\.legacy_ack is true or false, not 'yes'"):
        check_stream_extensions(StreamConfig(name="S", metadata={"jetraft.legacy_ack": "yes"}))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"allow_msg_counter": True}, "is not for streams with counters"),
        (
            {"subject_transform": SubjectTransform(src="s.*", dest="t.{{wildcard(1)}}")},
            "is not for streams with a subject transform",
        ),
        ({"subject_delete_marker_ttl": 10**9}, "is not for streams with delete markers"),
        ({"subjects": ("$JETRAFT.>",)}, "is not for streams that capture $JETRAFT.DELAYED.>"),
        ({"subjects": ("s", "*.DELAYED.*.x")}, "is not for streams that capture $JETRAFT.DELAYED.>"),
    ],
)
def test_messages_wait_in_plain_streams(fields: dict[str, Any], text: str) -> None:
    config = StreamConfig(**{"name": "S", "subjects": ("s.>",), "metadata": {"jetraft.delayed": "true"}, **fields})
    with pytest.raises(ApiError) as refused:
        check_stream_extensions(config)
    assert (refused.value.err_code, refused.value.description) == (10052, f"jetraft.delayed {text}")
    check_stream_extensions(attrs.evolve(config, metadata={"jetraft.delayed": "false"}))


def test_a_stream_stays_one_whose_messages_may_wait() -> None:
    plain, delayed = STREAM, attrs.evolve(STREAM, metadata={"jetraft.delayed": "true"})
    check_stream_extensions_update(plain, delayed)
    check_stream_extensions_update(delayed, delayed)
    for metadata in ({}, {"jetraft.delayed": "false"}):
        with pytest.raises(ApiError) as refused:
            check_stream_extensions_update(delayed, attrs.evolve(STREAM, metadata=metadata))
        assert (refused.value.err_code, refused.value.description) == (10052, "jetraft.delayed can not be removed")


@pytest.mark.parametrize("value", ["", "0", "-1", "+1", "1.5", " 1", "1_0", "²", "1" * 13, "x" * 500])
def test_a_number_is_a_number(value: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_stream_extensions(StreamConfig(name="S", metadata={"jetraft.max_subjects": value}))
    text = f"jetraft.max_subjects is a number from 1 to 999999999999, not {value[:40]!r}"
    assert (refused.value.err_code, refused.value.description) == (10052, text)


@pytest.mark.parametrize("origin", [{"mirror": StreamSource(name="O")}, {"sources": (StreamSource(name="O"),)}])
def test_a_stream_with_origins_has_no_limits_of_publishes(origin: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        check_stream_extensions(StreamConfig(name="S", metadata={"jetraft.rate_msgs_per_s": "1"}, **origin))
    assert refused.value.description == "jetraft.rate_msgs_per_s is for streams without origins"


@pytest.mark.parametrize(
    "value", ["", "token", "token 0", "token 01", "token 100", "token ²", "header", "header a b", "header a:", "key 1"]
)
def test_a_rule_for_keys_is_a_token_or_a_header(value: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_consumer_extensions(consumer({"jetraft.key_order": value}), STREAM)
    assert refused.value.description == f"jetraft.key_order is 'token N' or 'header NAME', not {value!r}"


@pytest.mark.parametrize(
    "fields",
    [{"deliver_subject": "d"}, {"priority_policy": PriorityPolicy.OVERFLOW, "priority_groups": ("g",)}],
)
def test_the_order_of_keys_is_for_plain_pull_consumers(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="is for pull consumers without priority groups"):
        check_consumer_extensions(consumer({"jetraft.key_order": "token 1"}, **fields), STREAM)


def test_the_rule_for_keys_stays_as_it_is() -> None:
    old = consumer({"jetraft.key_order": "token 1"})
    check_extensions_update(old, consumer({"jetraft.key_order": "token 1", "jetraft.strict_acks": "true"}))
    for metadata in ({}, {"jetraft.key_order": "token 2"}):
        with pytest.raises(ApiError) as refused:
            check_extensions_update(old, consumer(metadata))
        assert refused.value.description == "jetraft.key_order can not be updated"
