"""Joins the accounts of operators to what they change, connections and JetStream, and to the system account."""

from typing import TYPE_CHECKING, Any

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.auth.claims_service import COMPARE, ClaimsService
from jetraft.api.auth.login import Logins
from jetraft.api.auth.opening import directory_of
from jetraft.api.auth.peer_lookup import PeerSource
from jetraft.api.auth.registry import AccountRegistry
from jetraft.api.auth.signed_sharing import SignedSharing
from jetraft.api.credentials.claims import AccountClaims
from jetraft.api.options.options import ResolverOptions
from jetraft.api.turns.outbox import PlaneOutboxes
from jetraft.api.turns.reactor import Reactor
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.encoding.fields import Moment
from jetraft.store.model.versioning import SERVER_VERSION

if TYPE_CHECKING:
    from jetraft.api.auth.token_source import TokenSource


def claims_service(
    registry: AccountRegistry, logins: Logins, reactor: Reactor, accounts: LiveAccounts, sharing: SignedSharing
) -> ClaimsService:
    """The part that answers requests about accounts."""
    sessions = logins.sessions
    options = sessions.options
    assert options.trust is not None
    system = options.system_account

    def changed(before: AccountClaims | None, after: AccountClaims | None) -> None:
        sharing.account_changed(before, after)
        logins.account_changed(before, after)
        if after is not None and after.trace is not None:
            reactor.plane.trace_external(wanted=True)
        claims = after or before
        if claims is not None and claims.subject != system:
            accounts.set(claims.subject, None if after is None else after.jetstream)

    def resolver_now() -> ResolverOptions:
        trust = sessions.options.trust
        assert trust is not None
        return trust.resolver

    def server() -> dict[str, Any]:
        identity = sessions.identity
        return {
            "name": identity.server_name,
            "host": options.host,
            "id": identity.server_id,
            **({"cluster": identity.cluster_name} if identity.cluster_name else {}),
            "ver": SERVER_VERSION,
            "jetstream": sessions.jetstream,
            "time": Moment().encode(sessions.clock.unix_ns()),
        }

    resolver = options.trust.resolver
    outbox = PlaneOutboxes(reactor.plane, reactor)(system)
    source: TokenSource
    if resolver.kind == "url":
        from jetraft.api.auth.web_lookup import FollowingSource  # noqa: PLC0415  only servers with a URL

        source = FollowingSource(resolver_now)
    else:
        source = PeerSource(outbox, f"$SYS._INBOX.{sessions.identity.server_id}.jwt", resolver.timeout_ns / NS_PER_S)
    return ClaimsService(
        registry=registry,
        directory=directory_of(options.trust),
        resolver=resolver,
        system_account=system,
        server=server,
        inbox=f"{COMPARE}.{sessions.identity.server_id}".encode(),
        outbox=outbox,
        on_change=changed,
        sharing=sharing,
        clock=sessions.clock,
        say=logins.say,
        lookups=logins.lookups,
        source=source,
    )
