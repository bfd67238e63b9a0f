"""Which web pages may open a connection: the origin that a browser states, compared as nats-server does. Pure."""

from urllib.parse import urlsplit

import attrs


class OriginError(ValueError):
    """An origin cannot be read, or is not allowed; the text is one line in nats-server's words."""


@attrs.frozen
class Origin:
    """Scheme, host and port, the latter by the scheme where it is not stated."""

    scheme: str
    host: str
    port: str


def host_and_port(text: str, *, is_tls: bool) -> tuple[str, str]:
    """Split `host:port`, with the scheme's port where there is none. Raises OriginError."""
    missing = (text.lower(), "443" if is_tls else "80")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise OriginError(f"address {text}: missing ']' in address")
        if not rest:
            return missing
        if not rest.startswith(":") or ":" in rest[1:]:
            raise OriginError(f"address {text}: too many colons in address")
        return host.lower(), rest[1:]
    host, colon, port = text.partition(":")
    if not colon:
        return missing
    if ":" in port:
        raise OriginError(f"address {text}: too many colons in address")
    return host.lower(), port


def parse_origin(text: str) -> Origin:
    """Read an origin. Raises OriginError."""
    if text.startswith("/"):
        return Origin("", "", "80")
    if "://" not in text:
        raise OriginError(f'parse "{text}": invalid URI for request')
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise OriginError(f'parse "{text}": {error}') from error
    host, port = host_and_port(parts.netloc.rpartition("@")[2], is_tls=parts.scheme == "https")
    return Origin(parts.scheme, host, port)


def allowed_origin(text: str) -> Origin:
    """Read one of `allowed_origins`. Raises OriginError."""
    try:
        origin = parse_origin(text)
    except OriginError as error:
        raise OriginError(f"unable to parse allowed origin: {error}") from error
    if origin.scheme not in ("http", "https"):
        why = "allowed origins must be absolute URLs with http or https scheme"
        raise OriginError(f'unable to parse allowed origin "{text}": {why}')
    if not origin.host:
        raise OriginError(f'unable to parse allowed origin "{text}": host is required')
    return origin


def check_origin(stated: str, host: str, *, is_tls: bool, same: bool, allowed: tuple[Origin, ...]) -> None:
    """Compare what a request states with its own host and with the list. Raises OriginError.

    Clients that are no browsers state none, or any, and are let in.
    """
    if not stated or not (same or allowed):
        return
    origin = parse_origin(stated)
    scheme = "https" if is_tls else "http"
    if same and origin != Origin(scheme, *host_and_port(host, is_tls=is_tls)):
        raise OriginError("not same origin")
    if allowed and origin not in allowed:
        raise OriginError("not in the allowed list")
