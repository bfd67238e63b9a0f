import pytest

from jetraft.raft.mesh.addresses import Address, RouteUrl, parse_route


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("nats-route://10.0.0.1:6223", RouteUrl(address=Address("10.0.0.1", 6223))),
        ("nats://host", RouteUrl(address=Address("host", 6222))),
        ("host:1", RouteUrl(address=Address("host", 1))),
        ("nats://u:p%40x@host:2", RouteUrl(address=Address("host", 2), secret=b"u:p@x")),
        ("nats-route://[::1]:3", RouteUrl(address=Address("::1", 3))),
    ],
)
def test_routes_are_parsed(text: str, route: RouteUrl) -> None:
    assert parse_route(text) == route


@pytest.mark.parametrize("text", ["", "http://host:1", "nats://", "host:99999", "host:x"])
def test_what_is_no_route_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_route(text)


def test_addresses_read_as_they_are_written() -> None:
    assert [str(Address("::1", 3)), str(Address("host", 1))] == ["[::1]:3", "host:1"]


@pytest.mark.parametrize("password", ["pa/ss", "12/ss", "pa#ss", "pa?ss", "[pa", "p@a/s"])
def test_a_password_that_is_not_quoted_is_refused_and_not_told(password: str) -> None:
    with pytest.raises(ValueError, match=r"^not a route: 'nats://xxxxx@host:1'$") as told:
        parse_route(f"nats://user:{password}@host:1")
    assert told.value.__cause__ is None
