"""Requests of a user who has signed in, sent as that user's client: `POST /ui/request`.

The body is `{"subject", "payload", "headers"}`. The payload is an object, sent as JSON, or a text. What the user may
publish to is decided by the server for this client as for others; nothing here looks at what is asked.
"""

import re
from typing import Final

import attrs
import orjson

from jetraft.api.http_gateway.requests import RefusedRequestError, check_subject
from jetraft.api.monitor.page import JSON_TYPE, Page
from jetraft.api.monitor.ui.answers import problem
from jetraft.api.monitor.ui.assets import with_headers
from jetraft.api.monitor.ui.guards import why_not_own
from jetraft.api.monitor.ui.sign_in import SignIns
from jetraft.api.monitor.web_request import WebRequest

ANSWER_S: Final = 10.0
HEADERS_MAX: Final = 64
NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")  # a token of HTTP
VALUE: Final = re.compile(r"[^\x00-\x1f\x7f]{0,4096}")
NO_RESPONDERS: Final = b"NATS/1.0 503"


@attrs.frozen(kw_only=True, slots=True)
class UserRequest:
    """One message."""

    subject: bytes
    hdr: bytes
    payload: bytes


def request_in(body: bytes, bytes_max: int) -> UserRequest:
    """The message in the body of a request. Raises RefusedRequestError."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("subject"), str):
        raise RefusedRequestError(400, "a request is an object with a subject")
    subject = found["subject"].encode("utf-8", "replace")
    check_subject(subject)
    payload, headers = found.get("payload", ""), found.get("headers") or {}
    if not isinstance(payload, dict | str):
        raise RefusedRequestError(400, "the payload is an object or a text")
    data = orjson.dumps(payload) if isinstance(payload, dict) else payload.encode("utf-8", "replace")
    hdr = header_block(headers)
    if len(hdr) + len(data) > bytes_max:  # the server would close the connection, and end the sign-in
        raise RefusedRequestError(413, f"a message has {bytes_max} bytes at most")
    return UserRequest(subject=subject, hdr=hdr, payload=data)


def header_block(headers: object) -> bytes:
    """The NATS/1.0 block of the headers of a message. Raises RefusedRequestError."""
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise RefusedRequestError(400, f"the headers are an object of texts, {HEADERS_MAX} at most")
    lines = []
    for name, value in headers.items():
        if not (isinstance(value, str) and NAME.fullmatch(name) and VALUE.fullmatch(value)):
            raise RefusedRequestError(400, "a header has a name of letters, digits and dashes, and one line")
        lines.append(f"{name}: {value}\r\n")
    return f"NATS/1.0\r\n{''.join(lines)}\r\n".encode("utf-8", "replace") if lines else b""


@attrs.frozen(eq=False)
class UserRequests:
    """Answers them."""

    sign_ins: SignIns

    async def ask(self, asked: WebRequest) -> Page:
        """The answer to a request as it came, or a refusal."""
        if why := why_not_own(asked):
            return problem(403, why)
        found = self.sign_ins.of(asked)
        if found is None:
            return problem(401, "there is no sign-in")
        try:
            request = request_in(asked.body, self.sign_ins.door.sessions.options.max_payload_bytes)
            reply = await found.client.request(request.subject, request.hdr, request.payload, ANSWER_S)
        except RefusedRequestError as refused:
            return problem(refused.status, refused.reason)
        if reply.hdr.startswith(NO_RESPONDERS) and not reply.payload:
            return problem(503, "no one answers this subject")
        return with_headers(Page(body=reply.payload, content_type=JSON_TYPE))
