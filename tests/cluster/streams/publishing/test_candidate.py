"""What is said of one message by itself; the answers are nats-server 2.15.1's (test_admit.py has the order)."""

from collections.abc import Callable
from typing import Any

import pytest

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.state.headers import nats_headers, parse_seq
from jetraft.cluster.streams.publishing.candidate import (
    HDR_BYTES_MAX,
    Candidate,
    PublishRefused,
    check_rollup,
    check_shape,
    check_supported,
    check_unsupported_origin,
)
from tests.cluster.lab import stream_config


@pytest.mark.parametrize(("text", "seq"), [(b"12", 12), (b"+1", -1), (b"1_0", -1), (b" 1", -1), (b"9" * 20, -1)])
def test_only_plain_digits_are_a_sequence(text: bytes, seq: int) -> None:
    assert parse_seq(text) == seq


def test_the_first_header_of_a_name_counts() -> None:
    assert nats_headers(b"NATS/1.0\r\nNats-Msg-Id:  a \r\nX: y\r\nNats-Msg-Id: b\r\n\r\n") == {b"Nats-Msg-Id": b"a"}


def test_a_message_is_read_where_it_stands_in_its_batch() -> None:
    first = encode_capture(b"s.a", b"R", b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n", b"one")
    batch = first + encode_capture(b"s.b", payload=b"three")
    one = Candidate.at(batch, 0)
    assert (one.subject, one.reply, one.payload_len, one.msg_id, one.end) == (b"s.a", b"R", 3, b"7", len(first))
    two = Candidate.at(batch, one.end)
    assert (two.subject, two.hdr, two.payload_len, two.msg_id, two.end) == (b"s.b", b"", 5, b"", len(batch))


def refusal(check: Callable[[], None]) -> int | None:
    """The error code of a check, None when it lets the message through."""
    try:
        check()
    except PublishRefused as refused:
        return refused.error.err_code
    return None


@pytest.mark.parametrize(("hdr_bytes", "code"), [(HDR_BYTES_MAX, None), (HDR_BYTES_MAX + 1, 10097)])
def test_a_header_block_may_have_16_bits_of_length(hdr_bytes: int, code: int | None) -> None:
    message = Candidate(end=0, subject=b"s.a", reply=b"", hdr=b"h" * hdr_bytes, payload_len=0, headers={})
    assert refusal(lambda: check_shape(message, stream_config())) == code


@pytest.mark.parametrize(
    ("value", "fields", "code"),
    [
        (b"5", {"allow_msg_ttl": True}, None),
        (b"never", {"allow_msg_ttl": True}, None),
        (b"0.5s", {"allow_msg_ttl": True}, 10165),
        (b"soon", {"allow_msg_ttl": True}, 10165),
        (b"5", {}, 10166),
        (b"soon", {}, 10166),
    ],
)
def test_a_ttl_is_allowed_first_and_then_understood(value: bytes, fields: dict[str, Any], code: int | None) -> None:
    assert refusal(lambda: check_supported({b"Nats-TTL": value}, b"S", stream_config(**fields))) == code


@pytest.mark.parametrize(
    ("value", "fields", "code"),
    [
        (b"sub", {"allow_rollup_hdrs": True}, None),
        (b"ALL", {"allow_rollup_hdrs": True}, None),
        (b"", {}, None),
        (b"some", {"allow_rollup_hdrs": True}, 10111),
        (b"sub", {}, 10111),
        (b"sub", {"allow_rollup_hdrs": True, "deny_purge": True}, 10111),
    ],
)
def test_a_rollup_is_a_purge_and_has_two_values(value: bytes, fields: dict[str, Any], code: int | None) -> None:
    assert refusal(lambda: check_rollup({b"Nats-Rollup": value}, stream_config(**fields))) == code


@pytest.mark.parametrize(("name", "code"), [(b"Nats-Stream-Source", 10227), (b"Nats-Msg-Id", None)])
def test_messages_with_an_origin_that_is_not_served_are_refused(name: bytes, code: int | None) -> None:
    assert refusal(lambda: check_unsupported_origin({name: b"x"})) == code
