"""Whether a request is upgraded to WebSocket, and the answer: nats-server's order, status and texts. Pure."""

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final

import attrs

from jetraft.api.options.origins import OriginError, check_origin
from jetraft.api.options.websocket import Cookies, WebSocketOptions

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
KEY_BYTES: Final = 16
VERSION: Final = "13"
DEFLATE: Final = "permessage-deflate"
DEFLATE_ANSWER: Final = f"{DEFLATE}; server_no_context_takeover; client_no_context_takeover"
BROWSER: Final = "Mozilla/"
LEAF_PATH: Final = "/leafnode"  # the end of the path of a server's request
BAD_REQUEST, FORBIDDEN, NOT_FOUND, METHOD_NOT_ALLOWED = 400, 403, 404, 405


@attrs.frozen(kw_only=True)
class UpgradeRequest:
    """A request as HTTP has it. Names of headers are in small letters."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = attrs.field(repr=False)  # cookies are secrets
    is_tls: bool = False

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for given, value in self.headers if given == name]

    def first(self, name: str) -> str:
        """Its first value, or nothing."""
        return next(iter(self.values(name)), "")

    def has_token(self, name: str, token: str) -> bool:
        """Whether a header's comma-separated list contains a word."""
        words = (word.strip(" \t") for value in self.values(name) for word in value.split(","))
        return any(word.lower() == token.lower() for word in words)


@attrs.frozen(kw_only=True)
class Upgraded:
    """The request is accepted: the answer, and what it says of the client."""

    answer: bytes
    masked: bool
    deflates: bool
    browser: bool
    is_leaf: bool  # a server that connects as a leaf node
    forwarded_ip: str
    cookies: Cookies


@attrs.frozen
class UpgradeRefused:
    """It is not; `why` is for the log."""

    status: int
    why: str


def judge_upgrade(request: UpgradeRequest, options: WebSocketOptions) -> Upgraded | UpgradeRefused:
    """Answer a request."""
    refused = _refusal(request, options)
    if refused is not None:
        return refused
    deflates = options.compression and offers_deflate(request)
    masked = request.first("nats-no-masking") != "true"
    head = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": accept_of(request.first("sec-websocket-key")),
        **({"Sec-WebSocket-Extensions": DEFLATE_ANSWER} if deflates else {}),
        **({} if masked else {"Nats-No-Masking": "true"}),
    }
    lines = [f"{name}: {value}\r\n" for name, value in (*head.items(), *options.headers)]
    return Upgraded(
        answer=("HTTP/1.1 101 Switching Protocols\r\n" + "".join(lines) + "\r\n").encode(),
        masked=masked,
        deflates=deflates,
        browser=request.first("user-agent").startswith(BROWSER),
        is_leaf=request.target.partition("?")[0].endswith(LEAF_PATH),
        forwarded_ip=forwarded_ip(request.first("x-forwarded-for")),
        cookies=cookies_of(request.values("cookie"), options.cookies),
    )


def _refusal(request: UpgradeRequest, options: WebSocketOptions) -> UpgradeRefused | None:
    key = request.first("sec-websocket-key")
    path = request.target.partition("?")[0]
    checks = (
        (request.method == "GET", METHOD_NOT_ALLOWED, "request method must be GET"),
        (request.first("host"), BAD_REQUEST, "'Host' missing in request"),
        (request.has_token("upgrade", "websocket"), BAD_REQUEST, "invalid value for header 'Upgrade'"),
        (request.has_token("connection", "Upgrade"), BAD_REQUEST, "invalid value for header 'Connection'"),
        (key, BAD_REQUEST, "key missing"),
        (is_key(key), BAD_REQUEST, "invalid websocket key"),
        (request.has_token("sec-websocket-version", VERSION), BAD_REQUEST, "invalid version"),
        (not path.endswith("/mqtt"), NOT_FOUND, "mqtt websocket endpoint not enabled"),
    )
    for passed, status, why in checks:
        if not passed:
            return UpgradeRefused(status, why)
    stated = request.first("origin") or request.first("sec-websocket-origin")
    same, allowed = options.same_origin, options.origins
    try:
        check_origin(stated, request.first("host"), is_tls=request.is_tls, same=same, allowed=allowed)
    except OriginError as error:
        return UpgradeRefused(FORBIDDEN, f"origin not allowed: {error}")
    return None


def is_key(text: str) -> bool:
    """Whether this is a key: 16 bytes in base 64."""
    try:
        return len(base64.b64decode(text, validate=True)) == KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def accept_of(key: str) -> str:
    """The answer to a key, which shows that the server speaks WebSocket."""
    return base64.b64encode(hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()).decode()


def offers_deflate(request: UpgradeRequest) -> bool:
    """Whether the client can compress messages, with whatever parameters: the answer states those that hold."""
    offers = (offer for value in request.values("sec-websocket-extensions") for offer in value.split(","))
    return any(offer.partition(";")[0].strip(" \t").lower() == DEFLATE for offer in offers)


def forwarded_ip(text: str) -> str:
    """The client's address as a proxy states it, when it is one."""
    try:
        return text if ipaddress.ip_address(text) and "%" not in text else ""
    except ValueError:
        return ""


def cookies_of(values: Sequence[str], names: Cookies) -> Cookies:
    """The values of the cookies that have these names; of one that is there twice, the last."""
    found: dict[str, str] = {}
    for part in ";".join(values).split(";"):
        name, equals, value = part.strip(" \t").partition("=")
        if equals:
            found[name.strip(" \t")] = value.strip(" \t").removeprefix('"').removesuffix('"')
    wanted = attrs.asdict(names)
    return Cookies(**{field: found[name] for field, name in wanted.items() if name and name in found})
