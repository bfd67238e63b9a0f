"""The server's knowledge of a WebSocket connection, and what INFO and the monitoring pages say of the listener.

Names and conditions are nats-server's.
"""

from typing import Any

import attrs

from jetraft.api.options.websocket import Cookies, WebSocketOptions
from jetraft.store.model.clock import NS_PER_S


@attrs.frozen(kw_only=True)
class WebSocketFacts:
    """The facts of a request for an upgrade."""

    forwarded_ip: str = ""  # the client's, as a proxy states it
    cookies: Cookies = attrs.field(factory=Cookies, repr=False)


def with_cookies(document: dict[str, Any], cookies: Cookies) -> dict[str, Any]:
    """A CONNECT with what cookies say where it says nothing."""
    given = {"jwt": cookies.jwt, "user": cookies.user, "pass": cookies.password, "auth_token": cookies.token}
    added = {field: value for field, value in given.items() if value and not document.get(field)}
    return document | added


def varz_fields(options: WebSocketOptions | None, port: int, not_after: str) -> dict[str, Any]:
    """The section of /varz."""
    if options is None:
        return {}
    auth_timeout_s = options.auth_timeout_ns / NS_PER_S
    fields = {
        "host": options.host,
        "port": port,
        "advertise": options.advertise,
        "no_auth_user": options.no_auth_user,
        "jwt_cookie": options.cookies.jwt,
        "handshake_timeout": options.handshake_timeout_ns,
        "auth_timeout": int(auth_timeout_s) if auth_timeout_s.is_integer() else auth_timeout_s,
        "no_tls": options.no_tls,
        "tls_map": options.tls is not None and options.tls.verify_and_map,
        "same_origin": options.same_origin,
        "allowed_origins": list(options.allowed_origins),
        "compression": options.compression,
        "tls_cert_not_after": not_after,
    }
    return {"websocket": {name: value for name, value in fields.items() if value}}
