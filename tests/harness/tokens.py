"""Operators, accounts and users of a test: keys, and the tokens that one signs for the other.

    operator = TokenOperator()
    system, account = operator.account("SYS"), operator.account("A")
    Server("jetraft", config=operator.config(system, account))
    user = account.user(pub={"allow": ["orders.>"]})

The tokens are those of github.com/nats-io/jwt, version 2, which both servers read; `token_1` makes those of version 1.
"""

import base64
import binascii
import hashlib
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PREFIXES: Final = {"operator": 14 << 3, "account": 0, "user": 20 << 3, "server": 13 << 3}
SEED_PREFIX: Final = 18 << 3
UNLIMITED: Final = {
    "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1,
}  # fmt: skip
JETSTREAM: Final = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
HEADER_1: Final = {"typ": "jwt", "alg": "ed25519"}
_numbers = itertools.count(1)


def checked_text(raw: bytes) -> str:
    """Base32 of bytes and their CRC."""
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def base64_text(raw: bytes) -> str:
    """Base64 of the URL alphabet without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@attrs.frozen
class Keys:
    """A pair of keys; the same in every run, so that two servers and two runs see the same names."""

    kind: str
    raw: bytes = attrs.field(repr=False)

    @classmethod
    def new(cls, kind: str) -> Self:
        """Keys that no other call of this process has made."""
        return cls(kind, hashlib.sha256(f"{kind} {next(_numbers)}".encode()).digest())

    @property
    def private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.raw)

    @property
    def public(self) -> str:
        """The public key as text."""
        raw = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return checked_text(bytes([PREFIXES[self.kind]]) + raw)

    @property
    def seed(self) -> str:
        """The secret as text, as in files of credentials."""
        prefix = PREFIXES[self.kind]
        return checked_text(bytes([SEED_PREFIX | prefix >> 5, (prefix & 31) << 3]) + self.raw)

    def sign(self, data: bytes) -> str:
        """A signature as CONNECT has it."""
        return base64_text(self.private.sign(data))

    def token(
        self, claims: Mapping[str, Any], *, header: Mapping[str, Any] = HEADER, signer: "Keys | None" = None
    ) -> str:
        """A token with these claims; `signer` signs in the place of the issuer that it names."""
        issued = {"iat": int(time.time()), "iss": self.public, **claims}
        body = {**issued, "jti": hashlib.sha256(json.dumps(issued).encode()).hexdigest()}
        signed = ".".join(base64_text(json.dumps(part).encode()) for part in (header, body))
        return f"{signed}.{(signer or self).sign(signed.encode())}"

    def token_1(
        self,
        kind: str,
        subject: str,
        /,
        *,
        claims: Mapping[str, Any] | None = None,
        header: Mapping[str, Any] = HEADER_1,
        signer: "Keys | None" = None,
        **nats: Any,
    ) -> str:
        """A token of version 1: its type is beside the claims, and its header is not signed."""
        body = {
            "iat": int(time.time()),
            "iss": self.public,
            "sub": subject,
            "type": kind,
            **(claims or {}),
            "nats": nats,
        }
        first, second = (base64_text(json.dumps(part).encode()) for part in (header, body))
        return f"{first}.{second}.{(signer or self).sign(second.encode())}"


def claims_of(kind: str, subject: str, nats: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
    """The whole of a token's claims."""
    return {"sub": subject, **claims, "nats": {**nats, "type": kind, "version": 2}}


@attrs.frozen
class TokenUser:
    """A user with its token and, unless it is a bearer, its keys."""

    keys: Keys
    token: str = attrs.field(repr=False)

    def login(self, nonce: str) -> dict[str, Any]:
        """The fields of a CONNECT."""
        return {"jwt": self.token, "sig": self.keys.sign(nonce.encode())}

    @property
    def creds(self) -> str:
        """A file of credentials."""
        line = "-" * 6
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.token}\n{line}END NATS USER JWT{line}\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.keys.seed}\n{line}END USER NKEY SEED{line}\n"
        )


@attrs.frozen(kw_only=True)
class TokenAccount:
    """An account and what signs its users."""

    operator: Keys
    keys: Keys
    name: str
    signers: Mapping[str, Keys] = attrs.field(factory=dict)  # by role
    nats: Mapping[str, Any] = attrs.field(factory=dict)
    claims: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def key(self) -> str:
        """Its public key."""
        return self.keys.public

    def token(self, *, claims: Mapping[str, Any] | None = None, **nats: Any) -> str:
        """The account's token, with these fields changed."""
        limits = {**UNLIMITED, **self.nats.get("limits", {}), **nats.pop("limits", {})}
        found = {**self.nats, **nats, "limits": limits}
        return self.operator.token(
            claims_of("account", self.key, found, {"name": self.name, **self.claims, **(claims or {})})
        )

    def user(
        self, *, role: str = "", keys: Keys | None = None, claims: Mapping[str, Any] | None = None, **nats: Any
    ) -> TokenUser:
        """A user without limits, unless they are given; of a signing key with `role`, with the rights of that one."""
        own = keys or Keys.new("user")
        signer = self.signers[role] if role else self.keys
        fields: dict[str, Any] = {"issuer_account": self.key} if role else {"subs": -1, "data": -1, "payload": -1}
        body = claims_of("user", own.public, {**fields, **nats}, {"name": "someone", **(claims or {})})
        return TokenUser(own, signer.token(body))


@attrs.frozen
class TokenOperator:
    """An operator."""

    keys: Keys = attrs.field(factory=lambda: Keys.new("operator"))
    signing: Keys = attrs.field(factory=lambda: Keys.new("operator"))

    def token(self, **nats: Any) -> str:
        """Its own token."""
        fields = {"signing_keys": [self.signing.public], **nats}
        return self.keys.token(claims_of("operator", self.keys.public, fields, {"name": "O"}))

    def account(
        self, name: str, *, by: Keys | None = None, claims: Mapping[str, Any] | None = None, **nats: Any
    ) -> TokenAccount:
        """An account that it has signed."""
        return TokenAccount(
            operator=by or self.keys, keys=Keys.new("account"), name=name, nats=nats, claims=claims or {}
        )

    def config(self, system: TokenAccount, *accounts: TokenAccount, resolver: str = "MEMORY", **nats: Any) -> str:
        """The configuration of a server with these accounts."""
        preload = "\n".join(f"  {account.key}: {account.token()}" for account in (system, *accounts))
        return (
            f"operator: {self.token(**nats)}\nsystem_account: {system.key}\nresolver: {resolver}\n"
            f"resolver_preload {{\n{preload}\n}}\n"
        )


def scope(keys: Keys, **template: Any) -> dict[str, Any]:
    """A scoped signing key, as an account's token has it."""
    return {"kind": "user_scope", "key": keys.public, "role": "", "template": template}
