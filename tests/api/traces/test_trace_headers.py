"""The headers by which a message asks for a trace."""

import pytest

from jetraft.api.traces.trace_headers import disabled, is_sampled, read_trace, with_header

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


@pytest.mark.parametrize(
    ("lines", "only"),
    [
        ((b"Nats-Trace-Dest: a",), False),
        ((b"Nats-Trace-Dest:a", b"Nats-Trace-Only:\ttrue "), True),
        ((b"Nats-Trace-Only: 1", b"Nats-Trace-Dest: a"), True),
        ((b"Nats-Trace-Dest: a", b"Nats-Trace-Only: yes"), False),
        ((b"Nats-Trace-Dest: a", b"Nats-Trace-Only: no", b"Nats-Trace-Only: on"), False),
        ((b"TRACEPARENT: " + PARENT, b"Nats-Trace-Only: 1"), False),
    ],
)
def test_who_asks_is_traced(lines: tuple[bytes, ...], *, only: bool) -> None:
    asked = read_trace(block(*lines))
    assert asked is not None
    assert asked.is_only == only


@pytest.mark.parametrize(
    "hdr",
    [
        b"",
        block(),
        block(b"Nats-Trace-Only: true"),
        block(b"Nats-Trace-Dest:", b"Nats-Trace-Only: true"),
        block(b"nats-trace-dest: a"),
        block(b"X-Nats-Trace-Dest: a"),
        block(b"Nats-Trace-Dest: trace disabled", b"traceparent: " + PARENT),
        b"NATS/1.1\r\nNats-Trace-Dest: a\r\n\r\n",
    ],
)
def test_who_does_not_ask_is_not_traced(hdr: bytes) -> None:
    assert read_trace(hdr) is None


@pytest.mark.parametrize("flags", [b"00", b"02", b"x1", b"1", b"001", b"81", b""])
def test_a_parent_that_is_not_sampled_asks_for_nothing(flags: bytes) -> None:
    assert not is_sampled(PARENT[:-2] + flags)
    assert is_sampled(PARENT)


def test_a_header_is_replaced_at_the_end() -> None:
    assert with_header(block(b"A: 1", b"B: 2", b"A: 3"), b"A", b"4") == block(b"B: 2", b"A: 4")
    assert with_header(block(), b"A", b"4") == block(b"A: 4")


def test_a_disabled_header_block_asks_for_nothing() -> None:
    hdr = disabled(block(b"Nats-Trace-Dest: a", b"B: 2"))
    assert hdr == block(b"Nats-Trace-Dest: trace disabled", b"B: 2")
    assert read_trace(hdr) is None
    parent = disabled(block(b"traceparent: " + PARENT))
    assert read_trace(parent) is None
