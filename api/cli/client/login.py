"""Which server, as which user: the command line before the environment before the context.

Credentials are taken from one of the three only: an environment with NATS_CREDS does not mix with `--user`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from jetraft.api.cli.client import contexts
from jetraft.api.cli.client.contexts import without_secrets
from jetraft.api.cli.client.errors import CommandError, UsageError

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
ENVIRONMENT: Final = {
    "server": "NATS_URL",
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "tlscert": "NATS_CERT",
    "tlskey": "NATS_KEY",
    "tlsca": "NATS_CA",
    "context": "NATS_CONTEXT",
}
CREDENTIALS: Final = ("user", "password", "token", "creds", "nkey")


@attrs.frozen(kw_only=True)
class ClientLogin:
    """How to connect. Its representation has no secret."""

    server: str = attrs.field(default=DEFAULT_URL, repr=False)  # a URL may have a password
    user: str = ""
    password: str = attrs.field(default="", repr=False)
    token: str = attrs.field(default="", repr=False)
    creds: str = ""
    nkey: str = ""
    tlscert: str = ""
    tlskey: str = ""
    tlsca: str = ""
    tls_first: bool = False
    js_domain: str = ""
    js_api_prefix: str = ""
    inbox_prefix: str = ""

    @property
    def urls(self) -> list[str]:
        """The servers to try, in order. Raises UsageError."""
        found = [_url(part.strip()) for part in self.server.split(",") if part.strip()]
        if not found:
            raise UsageError("--server is empty: give nats://HOST:PORT")
        return found

    @property
    def api(self) -> str:
        """The prefix of subjects of JetStream requests, without the last dot."""
        if self.js_api_prefix:
            return self.js_api_prefix.rstrip(".")
        return f"$JS.{self.js_domain}.API" if self.js_domain else "$JS.API"


def login_of(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> ClientLogin:
    """The options of command line, environment and context. Raises CommandError."""
    environ = os.environ if environment is None else environment
    from_env = {name: environ[variable] for name, variable in ENVIRONMENT.items() if environ.get(variable)}
    given = {name: value for name, value in flags.items() if value}
    name = given.pop("context", None) or from_env.pop("context", None) or contexts.selected()
    from_env.pop("context", None)
    layers = [given, from_env, contexts.named(name).options if name else {}]
    merged: dict[str, Any] = {}
    credentials = next((layer for layer in layers if any(each in layer for each in CREDENTIALS)), {})
    for layer in reversed(layers):
        merged |= {key: value for key, value in layer.items() if key not in CREDENTIALS}
    merged |= {key: credentials[key] for key in CREDENTIALS if key in credentials}
    if merged.get("creds") and merged.get("nkey"):
        raise UsageError("--creds and --nkey exclude each other")
    return ClientLogin(**merged)


def _url(text: str) -> str:
    url = text if "://" in text else f"nats://{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{without_secrets(url)} is no URL of a server: give nats://HOST:PORT") from None
    if parts.scheme not in ("nats", "tls", "ws", "wss") or not parts.hostname:
        raise UsageError(f"{without_secrets(url)} is no URL of a server: give nats://HOST:PORT")
    return url if port else f"{url}:4222"


def check_files(login: ClientLogin) -> None:
    """Every file that is named can be read. Raises CommandError."""
    for flag in ("creds", "nkey", "tlscert", "tlskey", "tlsca"):
        path = getattr(login, flag)
        if path:
            try:
                with Path(path).open("rb"):
                    pass
            except OSError as error:
                raise CommandError(f"--{flag} {path}: {error.strerror}") from None
