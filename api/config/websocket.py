"""The `websocket` block: keys in, one `WebSocketOptions` out. Texts are nats-server's where it says why."""

import re
from collections.abc import Mapping

from jetraft.api.config.blocks import Apply, apply_all, put, spelled
from jetraft.api.config.settings import PORT_MAX, OptionsError, Settings
from jetraft.api.config.values import boolean, duration_ns, host_port, integer, pairs, secret_text, text, texts
from jetraft.api.credentials.rules import AuthRules
from jetraft.api.credentials.secret import Secret
from jetraft.api.options.options import RANDOM_PORT
from jetraft.api.options.origins import OriginError, allowed_origin
from jetraft.api.options.websocket import Cookies, WebSocketOptions

RESERVED = frozenset({"host", "content-length", "connection", "upgrade", "nats-no-masking"})
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
PRINTED = re.compile(r"[ \t\x21-\x7e\x80-\U0010ffff]*")


def listen(settings: Settings, value: object) -> None:
    """`listen`: host and port, or a port alone."""
    host, settings["port"] = host_port(value)
    if host:
        settings["host"] = host


def authorization(settings: Settings, value: object) -> None:
    """A user or token of its own for WebSocket, and how long a client may take to name itself."""
    keys: Mapping[str, Apply] = {
        **spelled(put("username", text), "user", "username"),
        **spelled(put("password", secret_text), "pass", "password"),
        "token": put("token", secret_text),
        "timeout": put("auth_timeout_ns", duration_ns, "timeout"),
    }
    apply_all("websocket.authorization", value, keys, settings)


def tls(settings: Settings, value: object) -> None:
    """TLS for this listener, its files looked at."""
    from jetraft.api.config.tls import checked, tls_options  # noqa: PLC0415  only servers with TLS pay for it

    settings["tls"] = checked(tls_options(value))


def headers(settings: Settings, value: object) -> None:
    """The headers of an answer to an accepted request, beside WebSocket's own headers."""
    found = pairs("headers", value)
    for name, given in found:
        lowered = name.lower()
        if lowered in RESERVED:
            raise OptionsError(f'websocket: invalid header "{name}" not allowed')
        if lowered.startswith("sec-websocket-"):
            raise OptionsError(f'websocket: invalid header "{name}", "Sec-WebSocket-" prefix not allowed')
        if not TOKEN.fullmatch(name) or not PRINTED.fullmatch(given):
            raise OptionsError(f'websocket: invalid header "{name}"')
    settings["headers"] = found


KEYS: Mapping[str, Apply] = {
    "listen": listen,
    **spelled(put("host", text), "host", "net"),
    "port": put("port", integer),
    "advertise": put("advertise", text),
    "no_tls": put("no_tls", boolean),
    "tls": tls,
    "same_origin": put("same_origin", boolean),
    **spelled(
        put("allowed_origins", texts), "allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins",
        "origin",
    ),
    "handshake_timeout": put("handshake_timeout_ns", duration_ns, "handshake_timeout"),
    "ping_interval": put("ping_interval_ns", duration_ns, "ping_interval"),
    **spelled(put("compression", boolean), "compress", "compression"),
    **spelled(authorization, "authorization", "authentication"),
    "jwt_cookie": put("jwt_cookie", text),
    "user_cookie": put("user_cookie", text),
    "pass_cookie": put("pass_cookie", text),
    "token_cookie": put("token_cookie", text),
    "no_auth_user": put("no_auth_user", text),
    "headers": headers,
}  # fmt: skip


def websocket(settings: Settings, value: object) -> None:
    """The top-level block."""
    found: Settings = {}
    apply_all("websocket", value, KEYS, found)
    settings["websocket"] = found


def built(found: Settings, rules: AuthRules, *, has_operators: bool = False) -> WebSocketOptions | None:
    """The options of the block; None where it names no port. Raises OptionsError where it contradicts the rest."""
    port = found.get("port") or 0
    if not port:
        return None
    if not RANDOM_PORT <= port <= PORT_MAX:
        raise OptionsError(f"websocket port: expected a port from {RANDOM_PORT} to {PORT_MAX}, got {port}")
    if found.get("tls") is None and not found.get("no_tls"):
        raise OptionsError("websocket requires TLS configuration")
    try:
        origins = tuple(allowed_origin(text) for text in found.get("allowed_origins") or ())
    except OriginError as error:
        raise OptionsError(str(error)) from error
    check_users(found, rules, has_operators=has_operators)
    given = {key: value for key, value in found.items() if value not in (None, "") and not key.endswith("_cookie")}
    given |= {key: Secret(given.get(key, "")) for key in ("password", "token")}
    if not given.get("handshake_timeout_ns"):
        given.pop("handshake_timeout_ns", None)
    cookies = Cookies(
        jwt=found.get("jwt_cookie", ""),
        user=found.get("user_cookie", ""),
        password=found.get("pass_cookie", ""),
        token=found.get("token_cookie", ""),
    )
    return WebSocketOptions(**given, origins=origins, cookies=cookies)


def check_users(found: Settings, rules: AuthRules, *, has_operators: bool) -> None:
    """Whether users of this block and of the whole server go together. Raises OptionsError."""
    name, has_users = found.get("no_auth_user") or "", bool(rules.users or rules.nkeys)
    if name and not has_users:
        raise OptionsError(f'no_auth_user: "{name}" present, but users/nkeys are not defined')
    if name and name not in rules.by_name and name not in rules.by_nkey:
        where = "authorization block or account configuration"
        raise OptionsError(f'no_auth_user: "{name}" not present as user or nkey in {where}')
    for kind in ("username", "token"):
        if has_users and found.get(kind):
            raise OptionsError(f"websocket authentication {kind} not compatible with presence of users/nkeys")
    if (cookie := found.get("jwt_cookie")) and not has_operators:
        needed = "trusted operators or trusted keys configuration is required for JWT authentication via cookie"
        raise OptionsError(f'{needed} "{cookie}"')
