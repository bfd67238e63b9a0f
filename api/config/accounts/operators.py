"""Operators and the accounts that they have signed: `operator`, `resolver_preload` and the like.

Texts of errors are nats-server's where it has them. Tokens stand in the file or in files of their own. Where accounts
are looked up is in `resolvers.py`.
"""

import re
from pathlib import Path
from typing import Final

import attrs

from jetraft.api.config.accounts.resolvers import url_resolver
from jetraft.api.config.blocks import PlacedError
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import texts
from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import AccountClaims, OperatorClaims, account_claims, operator_claims, user_claims
from jetraft.api.credentials.nkeys import is_account_key, is_operator_key
from jetraft.api.credentials.tokens import TOKEN_BYTES_MAX, decode_token
from jetraft.api.credentials.trust import TrustRules
from jetraft.api.options.options import ResolverOptions, TrustOptions
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.versioning import SERVER_VERSION

DECORATED: Final = re.compile(r"-{3,}[^\n]*-{3,}\n(.+)\n\s*-{3,}[^\n]*-{3,}")
VERSION: Final = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")
STARTS_WITH: Final = "eyJ"


def operators(settings: Settings, value: object) -> None:
    """Tokens, or paths of files that have one each."""
    found = []
    for name in texts("operator", value):
        try:
            found.append(operator_claims(decode_token(token_of(name))))
        except (OSError, TokenError, UnicodeDecodeError) as error:
            raise OptionsError(f"error parsing operator JWT: {reason(error)}") from error
    settings["operators"] = tuple(found)


def trusted_keys(settings: Settings, value: object) -> None:
    """Keys of operators, without their tokens."""
    if not isinstance(value, str | list):
        raise OptionsError(f"error parsing trusted: unsupported type {go_type(value)}")
    keys = texts("trusted_keys", value)
    for key in keys:
        if not is_operator_key(key):
            raise OptionsError(f"trust key {go_quote(key)} required to be a valid public operator nkey")
    settings["trusted_keys"] = frozenset(keys)


def token_of(given: str) -> str:
    """A token itself, or what a file has, with or without the lines around it that tools write."""
    if given.startswith(STARTS_WITH):
        return given
    path = Path(given)
    if path.stat().st_size > TOKEN_BYTES_MAX:
        raise TokenError("the file is too long")
    content = path.read_text(encoding="utf-8")
    decorated = DECORATED.search(content)
    return (decorated[1] if decorated is not None else content).strip()


def reason(error: Exception) -> str:
    """Why a token could not be read."""
    return f"open: {error.strerror}" if isinstance(error, OSError) else str(error)


def preload(settings: Settings, value: object) -> None:
    """Tokens by the keys of their accounts."""
    if not isinstance(value, Table):
        raise OptionsError("preload should be a map of account_public_key:account_jwt")
    found: dict[str, str] = {}
    for key, token in value.items():
        if not isinstance(token, str):
            raise PlacedError(f"{value.place(key)}: preload map value should be a string JWT")
        try:
            claims = account_claims(decode_token(token))
        except TokenError as error:
            raise PlacedError(f"{value.place(key)}: invalid account JWT: {error}") from error
        if claims.subject != key:
            raise PlacedError(f"{value.place(key)}: invalid account JWT: it is of another account")
        found[key] = token
    settings["resolver_preload"] = found


def pinned(settings: Settings, value: object) -> None:
    """The accounts whose users may connect; the system account's may always."""
    keys = texts("resolver_pinned_accounts", value)
    for key in keys:
        if not is_account_key(key):
            raise OptionsError(f'pinned account "{key}" is not a valid public account nkey')
    settings["pinned_accounts"] = frozenset(keys)


def trust_options(settings: Settings) -> TrustOptions | None:
    """The meaning of all keys; None without operators. Raises OptionsError, in nats-server's words and order."""
    found: tuple[OperatorClaims, ...] = settings.get("operators") or ()
    trusted: frozenset[str] = settings.get("trusted_keys") or frozenset()
    if found and trusted:
        raise OptionsError("conflicting options for 'TrustedKeys' and 'TrustedOperators'")
    if not found and not trusted:
        if settings.get("default_sentinel"):
            raise OptionsError("default sentinel requires operators and accounts")
        if any(settings.get(key) for key in ("resolver", "resolver_preload", "pinned_accounts")):
            raise OptionsError("a resolver needs an operator")
        return None
    store = store_of(settings, found)
    if settings.get("accounts"):
        raise OptionsError("operators do not allow Accounts to be configured directly")
    if settings.get("users") or settings.get("account_users"):
        raise OptionsError("operators do not allow users to be configured directly")
    if any(settings.get(key) for key in ("user", "password", "token", "no_auth_user", "callout")):
        raise OptionsError("operators do not allow users, tokens or callouts to be configured directly")
    system = system_key(settings.get("system_account") or "", found, store)
    for operator in found:
        check_version(operator)
    tokens: dict[str, str] = settings.get("resolver_preload") or {}
    pins: frozenset[str] = settings.get("pinned_accounts") or frozenset()
    return TrustOptions(
        rules=TrustRules(
            operators=found,
            pinned=pins | {system} if pins else pins,
            trusted=trusted,
            default_sentinel=checked_sentinel(settings.get("default_sentinel") or ""),
        ),
        resolver=store,
        preload=tuple(tokens.values()),
        system_account=system,
    )


def store_of(settings: Settings, found: tuple[OperatorClaims, ...]) -> ResolverOptions:
    """The source of accounts: what the configuration says, or else the one operator. Raises OptionsError."""
    store: ResolverOptions | None = settings.get("resolver")
    if store is None and len(found) == 1 and found[0].account_server_url:
        store = url_resolver(f"{found[0].account_server_url}/accounts")  # where `nsc push` puts them
    if store is None and found:
        raise OptionsError("operators require an account resolver to be configured")
    store = store or ResolverOptions()
    return attrs.evolve(store, tls=settings.get("resolver_tls")) if store.kind == "url" else store


def checked_sentinel(token: str) -> str:
    """The token of clients that show none: a bearer's. Raises OptionsError, which does not show it."""
    if not token:
        return ""
    try:
        claims = user_claims(decode_token(token))
    except TokenError:
        raise OptionsError("default sentinel JWT not valid") from None
    if not claims.rights.is_bearer:
        raise OptionsError("default sentinel must be a bearer token")
    return token


def system_key(given: str, found: tuple[OperatorClaims, ...], store: ResolverOptions) -> str:
    """The key of the system account, of the configuration or the first operator's; empty: none."""
    named = [operator.system_account for operator in found if operator.system_account]
    if given:
        if named and given not in named:
            raise OptionsError("system_account in config and operator JWT must be identical")
        if not is_account_key(given):
            raise OptionsError(f'system_account "{given}" is not a public account nkey')
        return given
    if not found:
        return ""
    if not found[0].system_account and store.directory:
        raise OptionsError(
            "using nats based account resolver - the system account needs to be specified in configuration or the "
            "operator jwt"
        )
    return found[0].system_account


def check_version(operator: OperatorClaims) -> None:
    """Raise OptionsError when an operator wants a newer server than this one is compatible with."""
    if not operator.assert_version:
        return
    match = VERSION.fullmatch(operator.assert_version)
    if match is None:
        raise OptionsError(f"operator {operator.subject} expects version {operator.assert_version}")
    wanted = [int(number or 0) for number in match.groups()]
    if wanted > [int(number) for number in SERVER_VERSION.split(".")]:
        raise OptionsError(
            f"operator {operator.subject} expected version {operator.assert_version} > server version {SERVER_VERSION}"
        )


def preloaded(options: TrustOptions) -> list[AccountClaims]:
    """The accounts that stand in the configuration."""
    return [account_claims(decode_token(token)) for token in options.preload]
