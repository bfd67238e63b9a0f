"""Questions about a client, and the answers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.credentials.permissions import NO_LIMIT, Permissions
from jetraft.api.credentials.rules import STANDARD
from jetraft.store.model.events import CLIENT_REFUSED
from jetraft.store.model.ids import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from jetraft.api.credentials.claims import UserClaims

USER_EXPIRED: Final = b"-ERR 'User Authentication Expired'\r\n"
REDACTED: Final = "[REDACTED]"
CREDENTIAL_FIELDS: Final = ("user", "pass", "auth_token", "nkey", "sig", "jwt")


@attrs.frozen(kw_only=True, slots=True)
class Credentials:
    """The offer of a CONNECT. Secrets are not in the `repr`."""

    user: str = ""
    password: str = attrs.field(default="", repr=False)
    token: str = attrs.field(default="", repr=False)
    nkey: str = ""
    signature: str = attrs.field(default="", repr=False)
    jwt: str = attrs.field(default="", repr=False)  # of a bearer it is a secret

    @property
    def names_nobody(self) -> bool:
        """True when neither a user nor a secret is offered."""
        return not (self.user or self.password or self.token)

    @property
    def is_blank(self) -> bool:
        """True when nothing is offered at all."""
        return self.names_nobody and not (self.nkey or self.signature or self.jwt)

    @property
    def named(self) -> str:
        """Whom the log line of a refusal names, behind a dash; nothing when none was named."""
        from jetraft.store.model.gosyntax import go_quote  # noqa: PLC0415  only a refusal needs it

        for kind, name in (("Nkey", self.nkey), ("User", self.user), ("Token", self.token and REDACTED)):
            if name:
                return f" - {kind} {go_quote(name)}"
        return ""


def log_refusal(client: str, address: str, offered: Credentials, reason: str) -> None:
    """Write that a client, or a server as a leaf node, is refused."""
    user = offered.nkey or offered.user
    CLIENT_REFUSED.log(client=client, named=offered.named, reason=reason, user=user, address=address)


@attrs.frozen(kw_only=True, slots=True)
class ConnectionFacts:
    """The server's knowledge of a connection without being told by the client."""

    kind: str = STANDARD  # one of CONNECTION_TYPES
    nonce: bytes = b""
    maps_certificates: bool = False  # `verify_and_map`: the certificate names the user, whatever CONNECT does
    certificate_user: str | None = None  # whom a verified certificate names
    ip: str = ""
    unix_ns: int = 0
    is_proxied: bool = False  # a trusted proxy speaks for the client


@attrs.frozen(kw_only=True, slots=True)
class Verdict:
    """The client may connect: as whom, to which account, with what permissions and until when.

    `user` is what pages show, `label` what log lines do. `expires_unix_ns` is None for a user that does not expire, and
    `last_words` are what it is told when it does. Limits: -1 is none beside the server's.
    """

    user: str = ""
    label: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    expires_unix_ns: int | None = None
    last_words: bytes = USER_EXPIRED
    max_subs: int = NO_LIMIT
    max_payload: int = NO_LIMIT
    max_leafnodes: int = NO_LIMIT  # of the account
    claims: UserClaims | None = None  # of a user with a token


@attrs.frozen(slots=True)
class LoginRefusal:
    """The client may not connect; `why` is for debug lines and names no secret.

    `account`: whose token is not known here or has expired; where another place may have it, it is looked up.
    """

    why: str
    needs_proxy: bool = False
    account: str = ""


@attrs.frozen(kw_only=True, slots=True)
class SlowCheck:
    """Hash `offered` and compare: `outcome` is what holds when it matches `hashed`, and a refusal when it does not."""

    hashed: bytes = attrs.field(repr=False)
    offered: bytes = attrs.field(repr=False)
    outcome: Verdict | LoginRefusal


Outcome = Verdict | LoginRefusal | SlowCheck
# (public key, signature as CONNECT has it, nonce) -> whether the owner of the key signed the nonce
VerifySignature = Callable[[str, str, bytes], bool]
