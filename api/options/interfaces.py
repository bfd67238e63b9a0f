"""The addresses at which a listener is reached: those of the interfaces where it listens on any of them.

The rules are nats-server's: clients are told of all addresses but loopback and link-local ones, the ports file has all
of them, in the order of the interfaces. They are read over netlink, as Go does: the resolver knows the host's name
only, which is 127.0.1.1 on many machines.
"""

import ipaddress
import logging
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

log = logging.getLogger(__name__)

WILDCARDS: Final = ("0.0.0.0", "::", "")  # noqa: S104  compared with
RTM_NEWADDR, RTM_GETADDR, NLMSG_ERROR, NLMSG_DONE = 20, 22, 2, 3  # linux/rtnetlink.h, linux/netlink.h
NLM_F_REQUEST_DUMP: Final = 0x301
IFA_ADDRESS, IFA_LOCAL = 1, 2  # linux/if_addr.h; the second is this end of a point-to-point link
HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
ADDRESS: Final = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, interface
ATTRIBUTE: Final = struct.Struct("=HH")  # rtattr: length, type
INTERFACE_BITS: Final = 64  # of an IPv6 address: the machine chooses them (RFC 4291, 2.5.1)
DATAGRAM_BYTES: Final = 64 * 1024


def join_host_port(host: str, port: int) -> str:
    """Return `host:port`, with the host in brackets if it is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str, host: str, port: int) -> tuple[str, int]:
    """Return the host and port that `text` names, with the given ones for what it leaves out."""
    named, _, number = text.rpartition(":")
    if not named or not number.isdecimal():
        named, number = text, ""
    return named.strip("[]") or host, int(number or port)


def client_ip(address: str) -> str:
    """Return the address of a peer; a listener for both versions sees an IPv4 one inside an IPv6 one."""
    return address.removeprefix("::ffff:") if "." in address else address


def payer_of(ip: str) -> str:
    """Whose share of a bound a connection of this address takes: of IPv6 the whole /64, which one machine has."""
    if ":" not in ip:
        return ip
    try:
        network = int(ipaddress.IPv6Address(ip.partition("%")[0])) >> INTERFACE_BITS << INTERFACE_BITS
    except ValueError:  # a proxy's word that is none
        return ip
    return f"{ipaddress.IPv6Address(network)}/{128 - INTERFACE_BITS}" if network else ip


def local_addresses(host: str) -> list[str]:
    """Return the addresses at which a listener on `host` is reached from this machine: for the ports file."""
    return (interface_addresses() if host in WILDCARDS else [host]) or ["127.0.0.1"]


def advertised(host: str, port: int, advertise: str) -> tuple[str, ...]:
    """Return host:port of each address at which other machines reach a listener; `advertise` replaces them."""
    if advertise:
        return (join_host_port(*split_host_port(advertise, host, port)),)
    if host not in WILDCARDS:
        return (join_host_port(host, port),)
    found = tuple(join_host_port(address, port) for address in interface_addresses() if is_global_unicast(address))
    if not found:
        log.error('Address "%s" can not be resolved properly', host)
    return found


def is_global_unicast(address: str) -> bool:
    """Whether this is neither loopback nor link-local, multicast, broadcast or unspecified; private ones count."""
    ip = ipaddress.ip_address(address)
    is_special = ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified
    return not is_special and address != "255.255.255.255"


def interface_addresses() -> list[str]:
    """Return the addresses of all interfaces of this machine, by interface; none where the system does not tell."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
            request = struct.pack("=Bxxxxxxx", socket.AF_UNSPEC)
            head = HEADER.pack(HEADER.size + len(request), RTM_GETADDR, NLM_F_REQUEST_DUMP, 1, 0)
            sock.sendto(head + request, (0, 0))
            found = list(_dumped(sock))
    except OSError as error:
        log.warning("Cannot list the addresses of the interfaces: %s", os.strerror(error.errno or 0))
        return []
    return [address for _, address in sorted(found, key=lambda row: row[0])]


def _dumped(sock: socket.socket) -> Iterator[tuple[int, str]]:
    """Yield interface and address of each row of a dump, to its end."""
    while True:
        datagram, at = sock.recv(DATAGRAM_BYTES), 0
        while at + HEADER.size <= len(datagram):
            length, kind, *_ = HEADER.unpack_from(datagram, at)
            if kind in (NLMSG_DONE, NLMSG_ERROR) or length < HEADER.size:
                return
            if kind == RTM_NEWADDR:
                yield from _row(datagram[at + HEADER.size : at + length])
            at += _aligned(length)


def _row(body: bytes) -> Iterator[tuple[int, str]]:
    """Yield interface and address of a row, if it has one."""
    family, *_, interface = ADDRESS.unpack_from(body)
    attributes: dict[int, bytes] = {}
    at = ADDRESS.size
    while at + ATTRIBUTE.size <= len(body):
        length, kind = ATTRIBUTE.unpack_from(body, at)
        attributes[kind] = body[at + ATTRIBUTE.size : at + length]
        at += max(_aligned(length), ATTRIBUTE.size)
    packed = attributes.get(IFA_LOCAL) or attributes.get(IFA_ADDRESS)
    if packed and family in (socket.AF_INET, socket.AF_INET6):
        yield interface, str(ipaddress.ip_address(packed))  # pysyncobj replaces socket.inet_ntop


def _aligned(length: int) -> int:
    return (length + 3) & ~3
