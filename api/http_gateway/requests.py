"""Which message a request of HTTP is, and which response an answer is. Pure.

    POST /pub/<subject>                 publish the body, wait for the ack of the stream
    GET  /stream/<s>/msg/<sequence>     one message
    GET  /stream/<s>/last/<subject>     the last message of a subject

Headers of the message are those that begin with `Nats-`, as they are written, and `X-Header-<name>`, as `<name>`. The
status of an error is the `code` of the server's error.
"""

from __future__ import annotations

import base64
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

import attrs
import orjson

from jetraft.store.model.subject import valid_asset_name, valid_publish_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

JSON_TYPE: Final = "application/json"
BYTES_TYPE: Final = "application/octet-stream"
NATS: Final = b"nats-"
OTHERS: Final = b"x-header-"
PORT: Final = re.compile(r":\d+$")  # behind a host; an IPv6 address has brackets
SEQUENCE: Final = re.compile(r"[1-9][0-9]{0,18}")
SUBJECT_BYTES_MAX: Final = 1024
JWT: Final = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]+", re.ASCII)  # the first part is an object
JWT_HINT: Final = "; over HTTP a JWT is that of a user with bearer_token, and is in force"  # a request signs no nonce
OLD_REFUSAL: Final = b"-ERR "  # of a stream that answers as in 2020 (metadata `jetraft.legacy_ack`)
NO_RESPONDERS: Final = b"NATS/1.0 503"
DELETE: Final = 0x7F
UNQUOTED: Final = "".join(chr(byte) for byte in range(ord("!"), DELETE) if byte != ord("%"))  # in a response's header


class RefusedRequestError(Exception):
    """A request is answered with this status and this reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@attrs.frozen(kw_only=True, slots=True)
class AskedMessage:
    """The message that a request is."""

    subject: bytes
    payload: bytes = b""
    hdr: bytes = b""
    takes_body: bool = False
    is_raw: bool = False  # the payload of a message instead of JSON


@attrs.frozen(kw_only=True, slots=True)
class Reply:
    """A response."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True, slots=True)
class Login:
    """The sender of a request, as fields of CONNECT."""

    fields: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)

    @property
    def has_bearer(self) -> bool:
        """Whether it is the token of a user without a signature."""
        names = {name for name, _ in self.fields}
        return "jwt" in names and "sig" not in names


def login_of(authorization: str, *, has_operators: bool = False) -> Login:
    """The login of an Authorization header: `Basic`, or `Bearer` with a token. Raises RefusedRequestError.

    Where operators sign accounts, a token that is a JWT is a user's: one with `bearer_token`, which needs no signature.
    """
    if not authorization:
        return Login()
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer" and value.strip():
        is_jwt = has_operators and JWT.fullmatch(value.strip()) is not None
        return Login(fields=(("jwt" if is_jwt else "auth_token", value.strip()),))
    if kind.lower() == "basic":
        try:
            user, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except ValueError:  # not base64, or not UTF-8, or a header that is not ASCII
            colon = ""
        if colon:
            return Login(fields=(("user", user), ("pass", password)))
    raise RefusedRequestError(401, "Authorization is neither Basic nor Bearer")


def is_framed_twice(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether two headers say how long a body is: a proxy may have believed the other one (RFC 9112, 6.1)."""
    return {b"content-length", b"transfer-encoding"} <= {name.lower() for name, _ in headers}


def _check_page(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise RefusedRequestError for what a browser sends for a page of another site.

    A page whose own name leads to this address (DNS rebinding) sends no Origin with a GET, but its name as Host. It
    knows no login, so a request with one is not its.
    """
    given = {name.lower(): value for name, value in headers}
    if b"origin" in given or given.get(b"sec-fetch-site", b"none") != b"none":
        raise RefusedRequestError(403, "requests of web pages are not served")
    if b"authorization" not in given and not is_own_host(given.get(b"host", b"").decode("latin-1")):
        raise RefusedRequestError(403, "without a login the Host is an address or localhost")


def is_own_host(host: str) -> bool:
    """Whether a Host names a machine by its address, or this one, and no page can have it as the name of its site."""
    name = host.rpartition(":")[0] if PORT.search(host) else host
    if name.lower() in {"", "localhost"}:
        return True
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def asked_by(method: str, target: str, headers: Sequence[tuple[bytes, bytes]]) -> AskedMessage:
    """The message that a request is, without its body. Raises RefusedRequestError."""
    _check_page(headers)
    parts = [unquote_to_bytes(part) for part in target.partition("?")[0].split("/")][1:]
    match parts:
        case [b"pub", subject]:
            _require(method, "POST")
            check_subject(subject)
            return AskedMessage(subject=subject, hdr=_header_block(headers), takes_body=True)
        case [b"stream", stream, b"msg", text]:
            _require(method, "GET")
            if not SEQUENCE.fullmatch(text.decode("latin-1")):
                raise RefusedRequestError(400, "the sequence is a number from 1 on")
            return _message_of(stream, {"seq": int(text)}, headers)
        case [b"stream", stream, b"last", subject]:
            _require(method, "GET")
            check_subject(subject)
            return _message_of(stream, {"last_by_subj": subject.decode("utf-8", "replace")}, headers)
    raise RefusedRequestError(
        404, "there is /pub/<subject>, /stream/<name>/msg/<seq> and /stream/<name>/last/<subject>"
    )


def _require(method: str, wanted: str) -> None:
    if method != wanted:
        raise RefusedRequestError(405, f"it is {wanted}")


def check_subject(subject: bytes) -> None:
    """Raise RefusedRequestError for what is no subject of a message."""
    has_control = any(byte <= ord(" ") or byte == DELETE for byte in subject)
    if has_control or len(subject) > SUBJECT_BYTES_MAX or not valid_publish_subject(subject):
        raise RefusedRequestError(400, "it is no subject that one can publish to")


def _message_of(stream: bytes, question: dict[str, Any], headers: Sequence[tuple[bytes, bytes]]) -> AskedMessage:
    if not valid_asset_name(stream):
        raise RefusedRequestError(400, "it is no name of a stream")
    accepted = b",".join(value for name, value in headers if name.lower() == b"accept")
    return AskedMessage(
        subject=b"$JS.API.STREAM.MSG.GET." + stream,
        payload=orjson.dumps(question),
        is_raw=BYTES_TYPE.encode() in accepted,
    )


def _header_block(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The NATS/1.0 block of the fields that are the message's."""
    lines = []
    for name, value in headers:
        if name.lower().startswith(NATS):
            lines.append(b"%b: %b\r\n" % (name, value))
        elif name.lower().startswith(OTHERS) and len(name) > len(OTHERS):
            lines.append(b"%b: %b\r\n" % (name[len(OTHERS) :], value))
    return b"NATS/1.0\r\n%b\r\n" % b"".join(lines) if lines else b""


def reply_of(asking: AskedMessage, hdr: bytes, payload: bytes) -> Reply:
    """The response that an answer is."""
    if hdr.startswith(NO_RESPONDERS) and not payload:
        return problem(404, "no stream takes this subject" if asking.takes_body else "JetStream is not enabled")
    try:
        found = orjson.loads(payload)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        if asking.takes_body and payload.startswith(OLD_REFUSAL):
            found = {"error": {"code": 400, "description": _old_reason(payload)}}
            payload = orjson.dumps(found)
        else:
            return Reply(status=200, body=payload, content_type=BYTES_TYPE)  # somebody else answers this subject
    error = found.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        return Reply(status=code if isinstance(code, int) and 400 <= code < 600 else 500, body=payload)  # noqa: PLR2004
    if asking.takes_body:
        return Reply(status=200, body=payload)
    try:
        return _shown(found["message"], is_raw=asking.is_raw)
    except (KeyError, TypeError, ValueError, AttributeError):
        return problem(502, "an answer that cannot be read")  # not of a server: who else is asked may say anything


def _old_reason(payload: bytes) -> str:
    return payload[len(OLD_REFUSAL) :].strip().strip(b"'").decode("utf-8", "replace")


def _shown(message: dict[str, Any], *, is_raw: bool) -> Reply:
    headers: dict[str, list[str]] = {}
    block = base64.b64decode(message.get("hdrs") or "")
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name, []).append(value.strip())
    if is_raw:
        told = (
            ("Nats-Subject", quote(message["subject"], safe=UNQUOTED)),
            ("Nats-Sequence", str(int(message["seq"]))),
            ("Nats-Time-Stamp", quote(message["time"], safe=UNQUOTED)),
        )
        body = base64.b64decode(message.get("data") or "")
        return Reply(status=200, body=body, content_type=BYTES_TYPE, headers=told)
    shown = {name: message[name] for name in ("subject", "seq", "time")}
    return Reply(status=200, body=orjson.dumps({**shown, "headers": headers, "data": message.get("data") or ""}))


def problem(status: int, reason: str) -> Reply:
    """An error in the form of the server's."""
    headers = (("WWW-Authenticate", 'Basic realm="jetraft"'),) if status == 401 else ()  # noqa: PLR2004
    body = orjson.dumps({"error": {"code": status, "description": reason}})
    return Reply(status=status, body=body, headers=headers)
