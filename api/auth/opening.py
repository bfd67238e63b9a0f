"""What a server in operator mode knows of accounts when it starts: those of the configuration, and of its directory."""

from pathlib import Path

from jetraft.api.auth.claims import AccountClaims
from jetraft.api.auth.errors import RegistryError
from jetraft.api.auth.registry import AccountRegistry, SignedAccount
from jetraft.api.auth.token_directory import TokenDirectory
from jetraft.api.auth.tokens import TokenError
from jetraft.api.config.options import TrustOptions
from jetraft.api.logger import Logger


def directory_of(trust: TrustOptions) -> TokenDirectory | None:
    """Where tokens are kept; None: in memory."""
    return TokenDirectory(Path(trust.resolver.directory)) if trust.resolver.directory else None


def open_registry(trust: TrustOptions, say: Logger) -> AccountRegistry:
    """The accounts that are known here. Raises RegistryError."""
    say.info("Trusted Operators")
    for operator in trust.rules.operators:
        say.info(f'  Operator: "{operator.name}"')
    registry, directory = AccountRegistry(trust.rules), directory_of(trust)
    try:
        if directory is not None:
            directory.open()
            read_directory(directory, registry, say)
        for token in trust.preload:
            take_preloaded(token, registry, directory)
    except OSError as error:
        raise RegistryError(f"cannot use the directory of the account resolver: {error}") from error
    for claims in registry:
        note_unserved(claims, say)
    if trust.system_account and registry.get(trust.system_account) is None:
        raise RegistryError("error resolving system account: account missing")
    return registry


def read_directory(directory: TokenDirectory, registry: AccountRegistry, say: Logger) -> None:
    """Take in what the files have. One that cannot be believed is named in the log and left alone. Raises OSError."""
    say.info(f"Managing all jwt in exclusive directory {directory.path}")
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


def note_unserved(claims: AccountClaims, say: Logger) -> None:
    """Say what a token has that has no effect."""
    if claims.unserved:
        say.warning(f"Account {claims.subject}: {', '.join(claims.unserved)} are not served and have no effect")
