"""Accounts that a server in operator mode knows when it starts: those of the configuration and of its directory.

Where they are behind a URL, somebody has to answer there, and the system account is fetched. A system account that is
not there yet is made up, so that its users can push it, as with nats-server.
"""

from pathlib import Path

from jetraft.api.auth.errors import RegistryError
from jetraft.api.auth.registry import AccountRegistry, SignedAccount
from jetraft.api.auth.token_directory import TokenDirectory
from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import AccountClaims
from jetraft.api.logs.logger import Logger
from jetraft.api.options.options import TrustOptions
from jetraft.store.model.clock import NS_PER_S


def directory_of(trust: TrustOptions) -> TokenDirectory | None:
    """The directory of tokens; None: in memory."""
    store = trust.resolver
    if not store.directory:
        return None
    if store.kind != "cache":
        return TokenDirectory(Path(store.directory))
    return TokenDirectory(Path(store.directory), keeps=store.limit, ttl_s=store.ttl_ns / NS_PER_S)


def open_registry(trust: TrustOptions, say: Logger) -> AccountRegistry:
    """The accounts that are known here. Raises RegistryError."""
    say.info("Trusted Operators")
    for operator in trust.rules.operators:
        say.info(f'  Operator: "{operator.name}"')
    registry, directory = AccountRegistry(trust.rules), directory_of(trust)
    if trust.resolver.kind == "url":
        open_web(trust, registry)
    try:
        if directory is not None:
            directory.open()
            some = "some" if trust.resolver.kind == "cache" else "all"
            say.info(f"Managing {some} jwt in exclusive directory {directory.path}")
            read_directory(directory, registry, say)
        for token in trust.preload:
            take_preloaded(token, registry, directory)
    except OSError as error:
        raise RegistryError(f"cannot use the directory of the account resolver: {error}") from error
    if trust.rules.operators and not trust.system_account:
        say.warning("Trusted Operators should utilize a System Account")
    if trust.system_account and registry.get(trust.system_account) is None:
        if trust.resolver.kind == "memory":
            raise RegistryError("error resolving system account: account missing")
        say.info("Using bootstrapping system account")
        claims = AccountClaims(subject=trust.system_account, issuer=min(registry.keys))
        registry.put(SignedAccount(claims, ""))
    return registry


def open_web(trust: TrustOptions, registry: AccountRegistry) -> None:
    """See whether anybody answers at the URL, and fetch the system account. Raises RegistryError."""
    import trio  # noqa: PLC0415  few servers look accounts up before they run

    from jetraft.api.auth.token_source import AccountLookupError  # noqa: PLC0415  few servers have a URL
    from jetraft.api.auth.web_lookup import web_source  # noqa: PLC0415

    if trust.preload:
        raise RegistryError("resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR")
    try:
        source = web_source(trust.resolver)
        trio.run(source.fetch, "")
    except (AccountLookupError, OSError) as error:
        raise RegistryError(str(error)) from None
    if not trust.system_account:
        return
    try:
        account = SignedAccount.read(trio.run(source.fetch, trust.system_account).strip())
        if account.claims.subject == trust.system_account:
            registry.check_issuer(account.claims)
            registry.put(account)
    except (AccountLookupError, TokenError):  # it is made up
        return


def read_directory(directory: TokenDirectory, registry: AccountRegistry, say: Logger) -> None:
    """Take in what the files have. One that cannot be believed is named in the log and left alone. Raises OSError."""
    for key, token in directory.read():
        try:
            account = SignedAccount.read(token)
            if account.claims.subject != key:
                raise TokenError("it is of another account")  # noqa: TRY301  one line for every reason
        except TokenError as error:
            say.error(f"Account {key}: the token in its file is not used: {error}")
        else:
            registry.put(account)


def take_preloaded(token: str, registry: AccountRegistry, directory: TokenDirectory | None) -> None:
    """Take in a token of the configuration where the directory has no newer one. Raises OSError."""
    account = SignedAccount.read(token)
    known = registry.get(account.claims.subject)
    if known is not None and known.issued_at_s >= account.claims.issued_at_s:
        return
    if directory is not None:
        directory.write(account.claims.subject, token)
    registry.put(account)
