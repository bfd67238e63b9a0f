"""The part of /accountz about an account that an operator has signed: its token, and what that says. Pure.

Names and order are nats-server's (monitor.go, AccountInfo). The token of an account is public; those of users are not.
"""

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final

import orjson

from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import format_time

CLAIMS: Final = ("aud", "exp", "jti", "iat", "iss", "name", "nbf", "sub")
ALWAYS: Final[Mapping[str, Any]] = {"default_permissions": {"pub": {}, "sub": {}}, "authorization": {}}


def claims_in(token: str) -> dict[str, Any]:
    """The claims of a token that was verified when it was taken in, in the layout of version 2."""
    from jetraft.api.credentials.version_1 import FIRST, as_version_2, version_and_kind  # noqa: PLC0415  of operators alone

    part = token.split(".")[1]
    found: dict[str, Any] = orjson.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    version, kind = version_and_kind(found)
    return {**found, "nats": as_version_2(kind, found)} if version == FIRST else found


def is_over(claims: Mapping[str, Any], now_s: int) -> bool:
    """Whether the time of a token is over."""
    ends_s: int = claims.get("exp", 0)
    return 0 < ends_s < now_s


def problem_at(claims: Mapping[str, Any], now_s: int) -> str:
    """Why a token does not hold at a time; empty when it does."""
    if is_over(claims, now_s):
        return "claim is expired"
    return "claim is not yet valid" if now_s < claims.get("nbf", 0) else ""


def signed_fields(token: str, claims: Mapping[str, Any], now_s: int) -> dict[str, Any]:
    """The fields behind `imports`, without empty ones."""
    nats = claims["nats"]
    problem = problem_at(claims, now_s)
    issue = {"description": problem, "blocking": False, "time_check": True}
    revoked = {key: format_time(at_s * NS_PER_S) for key, at_s in sorted((nats.get("revocations") or {}).items())}
    return {
        "jwt": token,
        "issuer_key": claims["iss"],
        "name_tag": claims.get("name") or claims["sub"],
        "decoded_jwt": {
            **{name: claims[name] for name in CLAIMS if claims.get(name)},
            "nats": {**nats, **{name: nats.get(name) or empty for name, empty in ALWAYS.items()}},
        },
        **({"validation_result_jwt": [issue]} if problem else {}),
        **({"revoked_user": revoked} if revoked else {}),
    }
