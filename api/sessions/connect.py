"""The CONNECT line: read as nats-server reads it, and what the data plane is told about the connection then."""

from typing import Any, Final

import attrs
import orjson

from jetraft.api.credentials.verdicts import Credentials
from jetraft.api.plane._permissions import UserPermissions
from jetraft.store.model.ids import GLOBAL_ACCOUNT

BOOL_FIELDS: Final = ("verbose", "pedantic", "echo", "tls_required", "headers", "no_responders", "new_account")
TEXT_FIELDS: Final = (
    "user", "pass", "auth_token", "jwt", "nkey", "sig", "name", "lang", "version", "account", "proxy_sig",
)  # fmt: skip
FIELDS: Final = frozenset({*BOOL_FIELDS, *TEXT_FIELDS, "protocol"})


@attrs.frozen(kw_only=True, slots=True)
class ConnectOptions:
    """The wishes of a CONNECT. `error` is said and `close_reason` closes when the server does not accept it.

    While `is_pending`, the connection is not read; the handler that answered so calls the plane's `release` later.
    """

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: UserPermissions | None = attrs.field(default=None, repr=False)  # None: everything
    max_payload: int = -1  # beside the server's limit; -1: no other
    max_subs: int = -1
    is_pending: bool = False
    error: bytes | None = None
    close_reason: int = 0


def parse_connect(text: bytes, before: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The fields of a CONNECT, or None where nats-server would close the connection without a word.

    A later CONNECT of the same connection changes what it names of the one `before`. Names of fields may be written in
    capitals, as Go's decoder allows.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    document = dict(before or {})
    for given, value in found.items():
        key = given if given in FIELDS else given.lower()
        if key in FIELDS and value is not None:
            document[key] = value
    if not all(isinstance(document.get(field, False), bool) for field in BOOL_FIELDS):
        return None
    if not all(isinstance(document.get(field, ""), str) for field in TEXT_FIELDS):
        return None
    protocol = document.get("protocol", 0)
    return document if isinstance(protocol, int) and not isinstance(protocol, bool) else None


def options_of(document: dict[str, Any]) -> ConnectOptions:
    """The facts of a CONNECT for the plane and the pages."""
    return ConnectOptions(
        verbose=document.get("verbose", True),
        pedantic=document.get("pedantic", True),
        echo=document.get("echo", True),
        headers=document.get("headers", False),
        no_responders=document.get("no_responders", False),
        protocol=document.get("protocol", 0),
        name=document.get("name", ""),
        lang=document.get("lang", ""),
        version=document.get("version", ""),
    )


def credentials_of(document: dict[str, Any]) -> Credentials:
    """Whom a CONNECT names, and with what secret."""
    return Credentials(
        user=document.get("user", ""),
        password=document.get("pass", ""),
        token=document.get("auth_token", ""),
        nkey=document.get("nkey", ""),
        signature=document.get("sig", ""),
        jwt=document.get("jwt", ""),
    )
