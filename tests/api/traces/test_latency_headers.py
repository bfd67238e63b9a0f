"""Which headers ask for a sample of a latency, and what is read of bad ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.traces.latency_headers import asked_by


def block(*lines: str) -> bytes:
    return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Uber-Trace-Id: a:b:c:0",),
        ("Uber-Trace-Id: a:b:c:101",),
        ("Uber-Trace-Id: a:b:c:x",),
        ("Uber-Trace-Id: a:b:1",),
        ("X-B3-Sampled: 0", "X-B3-TraceId: 1"),
        ("B3: 0",),
        ("B3: a-b-0",),
        ("Traceparent: 0-1-2-00",),
        ("Traceparent: 0-1-2-1",),
        ("Traceparent: 0-1-2-+1",),
    ],
)
def test_these_ask_for_none(lines: tuple[str, ...]) -> None:
    assert asked_by(block(*lines)) is None


def test_what_asks_is_shown_and_nothing_else() -> None:
    assert asked_by(block("uber-trace-id: a:b:c:3", "UBERCTX-k: v", "Other: x")) == {
        "Uber-Trace-Id": ["a:b:c:3"],
        "Uberctx-K": ["v"],
    }
    assert asked_by(block("b3:1", "b3: 2")) == {"B3": ["1", "2"]}


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    for hdr in (data, b"NATS/1.0\r\n" + data):
        found = asked_by(hdr)
        assert found is None or all(found.values())
