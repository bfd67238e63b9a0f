"""The addresses of other nodes: route URLs from the configuration, and addresses learned from peers."""

from urllib.parse import unquote, urlsplit

import attrs

from jetraft.store.model.url import redacted

DEFAULT_PORT = 6222  # nats-server's for routes
SCHEMES = frozenset({"nats-route", "nats", "tls"})


@attrs.frozen(slots=True, order=True)
class Address:
    """A host and port to dial."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen(kw_only=True, slots=True)
class RouteUrl:
    """A configured route. `secret` is `user:password` when the URL carries it, else empty."""

    address: Address
    secret: bytes = b""


def parse_route(text: str) -> RouteUrl:
    """Parse `nats-route://[user:password@]host[:port]`, `nats://...`, or plain `host:port`.

    `/`, `?` and `#` in a password are quoted. Raises ValueError, without the secret.
    """
    try:
        parts = urlsplit(text if "://" in text else f"nats-route://{text}")
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:  # its text quotes what it takes for the port: a piece of the password, where that has a slash
        raise ValueError(f"not a route: {redacted(text)!r}") from None
    if parts.scheme not in SCHEMES or not parts.hostname or "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(f"not a route: {redacted(text)!r}")
    secret = b""
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return RouteUrl(address=Address(parts.hostname, port), secret=secret)


def parse_address(text: str) -> Address:
    """`host:port`, as peers gossip it. Raises ValueError."""
    return parse_route(text).address
