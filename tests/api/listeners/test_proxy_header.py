"""The first bytes of a connection behind a proxy, as nats-server reads them (the cases were compared with 2.15.1)."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.listeners.proxy_header import (
    BYTES_MAX,
    LINE_BEGINS,
    LINE_BYTES_MAX,
    NO_HEADER,
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    parse_header,
)

V4 = (
    ipaddress.ip_address("198.51.100.7").packed + ipaddress.ip_address("127.0.0.1").packed + struct.pack(">HH", 5678, 1)
)
V6 = ipaddress.ip_address("2001:db8::1").packed + ipaddress.ip_address("::1").packed + struct.pack(">HH", 5678, 1)


def binary(addresses: bytes = V4, *, command: int = 0x21, family: int = 0x11) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack(">H", len(addresses)) + addresses


GOOD = {
    b"PROXY TCP4 198.51.100.7 127.0.0.1 5678 1\r\n": ("198.51.100.7", 5678),
    b"PROXY TCP6 2001:db8::1 ::1 5678 1\r\n": ("2001:db8::1", 5678),
    b"PROXY TCP6 ::ffff:198.51.100.7 ::1 5678 1\r\n": ("198.51.100.7", 5678),
    b"PROXY UNKNOWN\r\n": ("", 0),
    b"PROXY UNKNOWN a b c d\r\n": ("", 0),
    binary(): ("198.51.100.7", 5678),
    binary(V4 + b"more, which is skipped"): ("198.51.100.7", 5678),
    binary(V6, family=0x21): ("2001:db8::1", 5678),
    binary(command=0x20): ("", 0),
    binary(b"", command=0x20, family=0): ("", 0),
    binary(family=0x01): ("", 0),
}
PORT = "invalid source port:"
BAD = {
    b"PROXY TCP4 ::1 ::1 1 2\r\n": "invalid PROXY protocol header: TCP4 with IPv6 address",
    b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n": "invalid PROXY protocol header: TCP6 with IPv4 address",
    b"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n": "invalid PROXY protocol header: invalid address",
    b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n": "invalid PROXY protocol header: invalid address",
    b"PROXY TCP4 1.1.1.1 ::1 70000 2\r\n": f'{PORT} strconv.ParseUint: parsing "70000": value out of range',
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 +2\r\n": 'invalid dest port: strconv.ParseUint: parsing "+2": invalid syntax',
    b"PROXY TCP4 1.2.3.4\r\n": "invalid PROXY protocol header: invalid v1 format",
    b"PROXY \r\n": "invalid PROXY protocol header: invalid v1 format",
    b"PROXY U\x1bP4 1.2.3.4 1.2.3.4 1 2\r\n": "invalid PROXY protocol header: invalid protocol U?P4",
    b"PROXY " + b"x" * LINE_BYTES_MAX: "invalid PROXY protocol header: v1 line too long",
    b"\r\n\r\n\0\rXXXXXX": "invalid PROXY protocol header: invalid signature",
    binary(command=0x31): "invalid PROXY protocol header: invalid version 0x30",
    binary(command=0x22): "unknown PROXY protocol command: 0x02",
    binary(family=0x12): "unsupported PROXY protocol feature: only STREAM protocol supported",
    binary(family=0x31): "unsupported PROXY protocol feature: unsupported address family 0x30",
    binary(b"abc"): "IPv4 address data too short: 3 bytes",
    binary(b"abc", family=0x21): "IPv6 address data too short: 3 bytes",
}


@pytest.mark.parametrize("data", GOOD)
def test_a_header_says_whom_a_proxy_speaks_for(data: bytes) -> None:
    ip, port = GOOD[data]
    assert parse_header(data) == parse_header(data + b"PING\r\n") == ProxyHeader(len(data), ip, port)
    assert {parse_header(data[:size]) for size in range(len(data))} == {None}


@pytest.mark.parametrize("data", BAD)
def test_a_wrong_header_is_refused_in_the_words_of_the_reference(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError) as error:
        parse_header(data)
    assert str(error.value) == BAD[data]


@pytest.mark.parametrize("data", [b"CONNECT {}\r\n", b"PING\r\n", b"PUB", b"\r\nPING", b"\x16\x03\x01"])
def test_what_is_no_header_is_left_alone(data: bytes) -> None:
    assert parse_header(data) is NO_HEADER


@given(st.sampled_from([b"", LINE_BEGINS, SIGNATURE, SIGNATURE + b"\x21\x11"]), st.binary(max_size=200))
def test_any_bytes_have_an_answer(begin: bytes, rest: bytes) -> None:
    data = begin + rest
    try:
        found = parse_header(data)
    except ProxyHeaderError:
        return
    assert found is None or 0 <= found.size <= min(len(data), BYTES_MAX)
