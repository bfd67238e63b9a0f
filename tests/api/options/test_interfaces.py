"""Where a listener is reached, and what clients of a server are told of it."""

from importlib import import_module

import pytest

from jetraft.api.options import interfaces
from jetraft.api.options.interfaces import (
    advertised,
    client_ip,
    interface_addresses,
    local_addresses,
    payer_of,
    split_host_port,
)

FOUND = ["127.0.0.1", "::1", "127.0.1.1", "169.254.3.4", "192.0.2.2", "fd00::2", "fe80::1", "2001:db8::7"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one address of each class."""
    monkeypatch.setattr(interfaces, "interface_addresses", lambda: FOUND)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
@pytest.mark.usefixtures("machine")
def test_on_any_address_clients_are_told_of_those_that_others_reach(host: str) -> None:
    assert advertised(host, 4222, "") == ("192.0.2.2:4222", "[fd00::2]:4222", "[2001:db8::7]:4222")


@pytest.mark.usefixtures("machine")
def test_on_one_address_clients_are_told_of_that() -> None:
    assert advertised("127.0.0.1", 4222, "") == ("127.0.0.1:4222",)
    assert advertised("::1", 4222, "") == ("[::1]:4222",)
    assert local_addresses("::1") == ["::1"]
    assert local_addresses("0.0.0.0") == FOUND


def test_a_machine_without_a_network_advertises_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(interfaces, "interface_addresses", lambda: ["127.0.0.1", "::1"])
    assert advertised("0.0.0.0", 4222, "") == ()
    assert caplog.messages == ['Address "0.0.0.0" can not be resolved properly']


@pytest.mark.parametrize(
    ("advertise", "url"),
    [("foo", "foo:4222"), ("foo:99", "foo:99"), ("[::1]:99", "[::1]:99"), ("[fd00::1]", "[fd00::1]:4222")],
)
def test_a_configured_address_replaces_them(advertise: str, url: str) -> None:
    assert advertised("0.0.0.0", 4222, advertise) == (url,)


def test_what_is_left_out_of_an_address_is_the_listener_s() -> None:
    assert split_host_port("", "0.0.0.0", 4222) == ("0.0.0.0", 4222)
    assert split_host_port("foo", "0.0.0.0", 4222) == ("foo", 4222)


def test_this_machine_has_a_loopback_address() -> None:
    import_module("pysyncobj")  # replaces socket.inet_ntop by a function that fails outside of Windows
    assert "127.0.0.1" in interface_addresses()


def test_an_ipv4_client_of_an_ipv6_listener_has_its_own_address() -> None:
    assert client_ip("::ffff:192.0.2.2") == "192.0.2.2"
    assert client_ip("fd00::2") == "fd00::2"
    assert client_ip("192.0.2.2") == "192.0.2.2"


@pytest.mark.parametrize(
    ("ip", "payer"),
    [
        ("192.0.2.2", "192.0.2.2"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("2001:zz::", "2001:zz::"),
    ],
)
def test_the_ipv6_addresses_of_one_machine_share_what_an_address_may_take(ip: str, payer: str) -> None:
    assert payer_of(ip) == payer
