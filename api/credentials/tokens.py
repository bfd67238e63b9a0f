"""A JWT of NATS: its three parts, checked and verified. Pure.

There is one algorithm, Ed25519 with the issuer's key, so nothing that a token says chooses how it is verified. Version
1 signs the claims alone, version 2 the header as well; which of them it is stands in the claims, which both sign. What
was signed as one cannot be shown as the other, because only what version 2 signs has a dot. The meaning of a claim is
in `claims`. No text of an error shows a part of a token: a bearer token is a secret.
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

import attrs
import orjson

from jetraft.api.credentials.claim_fields import TokenError, integer, string, table
from jetraft.api.credentials.nkeys import (
    PREFIX_ACCOUNT,
    PREFIX_OPERATOR,
    public_key,
    verified,
)
from jetraft.api.credentials.version_1 import FIRST, as_version_2, version_and_kind

TOKEN_BYTES_MAX: Final = 1 << 20  # as much as a message may have by default; an account with many imports has 100 KiB
HEADER_BYTES_MAX: Final = 1024
ALGORITHM: Final = "ed25519-nkey"
ALGORITHMS: Final = (ALGORITHM, "ed25519")  # two names of one; tools that write version 1 use the second
VERSION: Final = 2  # of the claims that are written
PARTS: Final = 3
ISSUERS: Final[Mapping[str, tuple[int, ...]]] = {
    "operator": (PREFIX_OPERATOR,),
    "account": (PREFIX_OPERATOR, PREFIX_ACCOUNT),
    "user": (PREFIX_ACCOUNT,),
    "activation": (PREFIX_ACCOUNT, PREFIX_OPERATOR),
    "authorization_response": (PREFIX_ACCOUNT,),
    "generic": (PREFIX_OPERATOR, PREFIX_ACCOUNT),
}


@attrs.frozen(kw_only=True, slots=True)
class Token:
    """The claims of a verified token. `expires_s` and `not_before_s` are in Unix time; 0: not limited."""

    kind: str
    issuer: str
    subject: str
    name: str
    audience: str
    issued_at_s: int
    expires_s: int
    not_before_s: int
    nats: Mapping[str, Any] = attrs.field(repr=False)

    def time_problem(self, now_s: float) -> str:
        """Why the token does not hold at a time; empty when it does."""
        if 0 < self.expires_s < int(now_s):
            return "claim is expired"
        if self.not_before_s > 0 and int(now_s) < self.not_before_s:
            return "claim is not yet valid"
        return ""


class InvalidClaimsError(TokenError):
    """A token says what may not be said; the message is that of github.com/nats-io/jwt, around what is wrong."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"validation errors: [{problem}]")


def decode_token(text: str | bytes) -> Token:
    """Verify a token against the key that it names as its issuer. Raises TokenError.

    Whether that issuer is trusted is the caller's question.
    """
    raw = _ascii(text)
    parts = raw.split(b".")
    if len(parts) != PARTS:
        raise TokenError(f"expected {PARTS} chunks")
    _check_header(_document(_decoded(parts[0], HEADER_BYTES_MAX)))
    document = _document(_decoded(parts[1], TOKEN_BYTES_MAX))
    version, kind = version_and_kind(document)
    issuer, subject = string(document, "iss"), string(document, "sub")
    key = public_key(issuer, *ISSUERS.get(kind, ()))
    if key is None:
        raise TokenError("unable to validate expected prefixes of the issuer")
    if not subject:
        raise TokenError("the token has no subject")
    signed = parts[1] if version == FIRST else parts[0] + b"." + parts[1]
    if not verified(key, _decoded(parts[2], HEADER_BYTES_MAX), signed):
        raise TokenError(f"claim failed V{version} signature verification")
    return Token(
        kind=kind,
        issuer=issuer,
        subject=subject,
        name=string(document, "name"),
        audience=string(document, "aud"),
        issued_at_s=integer(document, "iat"),
        expires_s=integer(document, "exp"),
        not_before_s=integer(document, "nbf"),
        nats=as_version_2(kind, document) if version == FIRST else table(document, "nats"),
    )


def _ascii(text: str | bytes) -> bytes:
    if len(text) > TOKEN_BYTES_MAX:
        raise TokenError("the token is too long")
    try:
        return text.encode("ascii") if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise TokenError("the token has characters that are not base64") from None


def _check_header(header: Mapping[str, Any]) -> None:
    """The type and the one algorithm by either name, in any case of letters, as nats-server's library takes them."""
    if string(header, "typ").upper() != "JWT":
        raise TokenError("not supported type")
    if string(header, "alg").lower() not in ALGORITHMS:
        raise TokenError("unexpected algorithm")


def _decoded(part: bytes, bytes_max: int) -> bytes:
    """Base64 of the URL alphabet without padding."""
    if len(part) > bytes_max * 4 // 3 + 4 or b"=" in part:
        raise TokenError("a part of the token is no base64")
    try:
        return b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenError("a part of the token is no base64") from None


def _document(raw: bytes) -> dict[str, Any]:
    """A JSON object; the decoder bounds its depth."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise TokenError("a part of the token is no JSON") from None
    if not isinstance(found, dict):
        raise TokenError("a part of the token is no JSON object")
    return found
