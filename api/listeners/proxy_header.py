"""The PROXY protocol, versions 1 and 2: the first bytes of a connection say which client a proxy speaks for. Pure.

Texts are nats-server's. Version 1 is a line of at most 107 bytes, version 2 has a length of its own.
"""

import ipaddress
import re
from typing import Final

import attrs

from jetraft.store.model.gosyntax import go_quote

LINE_BEGINS: Final = b"PROXY "
LINE_BYTES_MAX: Final = 107
SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
HEAD_BYTES: Final = 16  # of version 2, before the addresses
BYTES_MAX: Final = HEAD_BYTES + 0xFFFF
DETECTED_BYTES: Final = 6  # that tell one version from the other
LINE_WORDS: Final = 5
PORT_MAX: Final = 0xFFFF
DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
LOCAL, PROXY = 0, 1
STREAM: Final = 1
IPV6: Final = 0x20
ADDRESS_BYTES: Final = {0x10: 4, IPV6: 16}
UNSPECIFIED: Final = 0
VERSION_2: Final = 0x20


class ProxyHeaderError(Exception):
    """A header is wrong; the text is one line."""


@attrs.frozen
class ProxyHeader:
    """The finding: how many bytes it takes, and the client's address. Without one the proxy speaks for itself.

    No bytes: the connection begins without a header.
    """

    size: int
    ip: str = ""
    port: int = 0


NO_HEADER: Final = ProxyHeader(0)


def invalid(text: str) -> ProxyHeaderError:
    """The error of a header that is malformed."""
    return ProxyHeaderError(f"invalid PROXY protocol header: {text}")


def parse_header(data: bytes) -> ProxyHeader | None:
    """The header that the first bytes of a connection are; None: more have to come. Raises ProxyHeaderError."""
    begin = data[:DETECTED_BYTES]
    for known, parse in ((LINE_BEGINS, _line), (SIGNATURE[:DETECTED_BYTES], _binary)):
        if begin == known:
            return parse(data)
        if known.startswith(begin):
            return None
    return NO_HEADER


def missing(data: bytes) -> str:
    """The part that was being read when a connection ended, or its time did."""
    if len(data) < DETECTED_BYTES:
        return "protocol version"
    if data.startswith(LINE_BEGINS):
        return "v1 line"
    if len(data) < len(SIGNATURE):
        return "v2 signature"
    if len(data) < HEAD_BYTES:
        return "v2 header"
    return "IPv6 address data" if data[13] & 0xF0 == IPV6 else "IPv4 address data"


def _line(data: bytes) -> ProxyHeader | None:
    """Version 1."""
    end = data.find(b"\r\n", len(LINE_BEGINS), LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise invalid("v1 line too long")
        return None
    words = data[len(LINE_BEGINS) : end].decode("ascii", "replace").split()
    size = end + 2
    if not words:
        raise invalid("invalid v1 format")
    if words[0] == "UNKNOWN":
        return ProxyHeader(size)
    if len(words) != LINE_WORDS:
        raise invalid("invalid v1 format")
    protocol, source, target, *ports = words
    address = _address(source)
    _address(target)
    port = _port("source", ports[0])
    _port("dest", ports[1])
    has_v6 = ":" in source, ":" in target
    if protocol == "TCP4" and any(has_v6):
        raise invalid("TCP4 with IPv6 address")
    if protocol == "TCP6" and not all(has_v6):
        raise invalid("TCP6 with IPv4 address")
    if protocol not in ("TCP4", "TCP6"):
        raise invalid(f"invalid protocol {_printable(protocol)}")
    return ProxyHeader(size, address, port)


def _address(word: str) -> str:
    try:
        if "%" in word:
            raise invalid("invalid address")
        return _shown(ipaddress.ip_address(word))
    except ValueError:
        raise invalid("invalid address") from None


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An address of IPv4 within one of IPv6 is shown as what it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _port(which: str, word: str) -> int:
    wrong = f"invalid {which} port: strconv.ParseUint: parsing {go_quote(_printable(word))}"
    if not DIGITS.fullmatch(word):
        raise ProxyHeaderError(f"{wrong}: invalid syntax")
    if int(word) > PORT_MAX:
        raise ProxyHeaderError(f"{wrong}: value out of range")
    return int(word)


def _printable(word: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in word)


def _binary(data: bytes) -> ProxyHeader | None:
    """Version 2."""
    if len(data) < len(SIGNATURE):
        return None
    if not data.startswith(SIGNATURE):
        raise invalid("invalid signature")
    if len(data) < HEAD_BYTES:
        return None
    version, command = data[12] & 0xF0, data[12] & 0x0F
    family, protocol = data[13] & 0xF0, data[13] & 0x0F
    length = int.from_bytes(data[14:16], "big")
    size = HEAD_BYTES + length
    if version != VERSION_2:
        raise invalid(f"invalid version 0x{version:02x}")
    if command not in (LOCAL, PROXY):
        raise ProxyHeaderError(f"unknown PROXY protocol command: 0x{command:02x}")
    if command == PROXY:
        _check_kind(family, protocol, length)
    if len(data) < size:
        return None
    if command == LOCAL or family == UNSPECIFIED:
        return ProxyHeader(size)
    width = ADDRESS_BYTES[family]
    source = data[HEAD_BYTES : HEAD_BYTES + width]
    at = HEAD_BYTES + 2 * width
    return ProxyHeader(size, _shown(ipaddress.ip_address(source)), int.from_bytes(data[at : at + 2], "big"))


def _check_kind(family: int, protocol: int, length: int) -> None:
    """Raise ProxyHeaderError for what is no address of a TCP connection."""
    unsupported = "unsupported PROXY protocol feature"
    if protocol != STREAM:
        raise ProxyHeaderError(f"{unsupported}: only STREAM protocol supported")
    if family != UNSPECIFIED and family not in ADDRESS_BYTES:
        raise ProxyHeaderError(f"{unsupported}: unsupported address family 0x{family:02x}")
    if family in ADDRESS_BYTES and length < 2 * ADDRESS_BYTES[family] + 4:
        name = "IPv4" if ADDRESS_BYTES[family] == 4 else "IPv6"  # noqa: PLR2004
        raise ProxyHeaderError(f"{name} address data too short: {length} bytes")
