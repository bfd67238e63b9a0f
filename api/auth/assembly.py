"""Makes what judges clients beside the configuration: accounts that operators have signed, and a service that is asked.

Servers that have neither load none of it.
"""

from typing import TYPE_CHECKING

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.auth.login import Logins
from jetraft.api.exchange.setup import SharedAccounts
from jetraft.api.logs.logger import Logger
from jetraft.api.options.options import Options
from jetraft.api.sessions.session import Sessions
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import Clock

if TYPE_CHECKING:
    from jetraft.api.auth.callouts import Callouts
    from jetraft.api.auth.claims_service import ClaimsService
    from jetraft.api.auth.lookups import AccountLookups
    from jetraft.api.auth.registry import AccountRegistry
    from jetraft.api.auth.server_key import ServerKey


def new_server_key(options: Options) -> "ServerKey | None":
    """Keys of this server, where it has to sign anything."""
    if options.auth.callout is None and options.trust is None:
        return None
    from jetraft.api.auth.server_key import ServerKey  # noqa: PLC0415

    return ServerKey.new()


def build_lookups(
    options: Options, registry: "AccountRegistry | None", clock: Clock, say: Logger
) -> "AccountLookups | None":
    """The finder of accounts that are not known here; None where all of them are."""
    if options.trust is None or registry is None or options.trust.resolver.kind == "memory":
        return None
    from jetraft.api.auth.lookups import AccountLookups  # noqa: PLC0415

    return AccountLookups(registry, clock, say)


def build_callouts(
    sessions: Sessions,
    key: "ServerKey | None",
    registry: "AccountRegistry | None",
    lookups: "AccountLookups | None",
) -> "Callouts | None":
    """The part that asks services who clients are; None where the configuration says it."""
    if key is None:
        return None
    from jetraft.api.auth.callouts import Callouts  # noqa: PLC0415

    return Callouts(sessions, sessions.options.auth.callout, key, registry, lookups)


def build_registry(options: Options, say: Logger) -> "AccountRegistry | None":
    """The accounts that operators have signed; None without operators. Raises RegistryError."""
    if options.trust is None:
        return None
    from jetraft.api.auth.opening import open_registry  # noqa: PLC0415

    return open_registry(options.trust, say)


def live_accounts(options: Options, registry: "AccountRegistry | None") -> LiveAccounts:
    """The accounts, and what each may use of JetStream."""
    if registry is None:
        return LiveAccounts.of(options.jetstream_accounts)
    return LiveAccounts.of(registry.jetstream(options.system_account), registry.token_of, registry.name_of)


def build_claims_service(
    registry: "AccountRegistry | None",
    logins: Logins,
    reactor: Reactor,
    accounts: LiveAccounts,
    shared: SharedAccounts,
) -> "ClaimsService | None":
    """The part that takes new tokens of accounts, whose exports and imports are in force; None without operators."""
    if registry is None:
        return None
    from jetraft.api.auth.operator_mode import claims_service  # noqa: PLC0415
    from jetraft.api.auth.signed_sharing import SignedSharing  # noqa: PLC0415

    sharing = SignedSharing(shared, logins.sessions.clock, logins.say, shared.sharing)
    sharing.start(list(registry))
    return claims_service(registry, logins, reactor, accounts, sharing)
