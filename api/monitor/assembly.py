"""Puts the pages together from the parts of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from jetraft.api.monitor.accountz import AccountPages
from jetraft.api.monitor.connz import Connz
from jetraft.api.monitor.metrics import Metrics
from jetraft.api.monitor.pages import JetStreamStatus, Pages
from jetraft.api.monitor.routez import Routez
from jetraft.api.monitor.subsz import Subsz
from jetraft.api.monitor.varz import LeafStatus, Varz

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.auth.accounts import LiveAccounts
    from jetraft.api.exchange.setup import SharedAccounts
    from jetraft.api.routes import Routes
    from jetraft.api.sessions.session import ServerIdentity, Sessions
    from jetraft.api.turns.reactor import Reactor
    from jetraft.store.model.clock import Clock


class JetStreamPart(JetStreamStatus, Protocol):
    """JetStream as the pages see it, with the statistics of its parts. Implemented by api/jetstream/node.py."""

    def statistics(self) -> dict[str, Any]:
        """Statistics of the parts."""


def build_pages(  # noqa: PLR0913  (the parts that the pages are about)
    *,
    identity: ServerIdentity,
    sessions: Sessions,
    reactor: Reactor,
    accounts: LiveAccounts,
    shared: SharedAccounts,
    clock: Clock,
    jetstream: JetStreamPart | None,
    routes: Routes | None,
    leafnodes: LeafStatus | None,
    started_unix_ns: int,
    started_mono_ns: int,
    events: Mapping[str, int],
) -> Pages:
    """The pages of a server."""
    options, plane = sessions.options, reactor.plane
    routez = Routez(routes=routes, clock=clock, name_of=accounts.name_of)
    return Pages(
        identity=identity,
        clock=clock,
        connz=Connz(sessions=sessions, plane=plane, clock=clock, name_of=accounts.name_of, leafnodes=leafnodes),
        subsz=Subsz(plane, accounts.name_of),
        routez=routez,
        accounts=AccountPages(
            plane=plane,
            known_accounts=accounts.limits.keys,
            system=options.system_account,
            with_jetstream=accounts.with_jetstream if jetstream else list,
            loaded_unix_ns=started_unix_ns,
            sharing=lambda: shared.sharing,
            token_of=accounts.token_of,
            name_of=accounts.name_of,
            clock=clock,
            leafnodes=leafnodes,
        ),
        varz=Varz(
            identity=identity,
            sessions=sessions,
            reactor=reactor,
            clock=clock,
            jetstream=jetstream,
            routez=routez,
            leafnodes=leafnodes,
            extra=jetstream.statistics if jetstream is not None else dict,
            started_unix_ns=started_unix_ns,
            started_mono_ns=started_mono_ns,
        ),
        metrics=Metrics(
            identity=identity,
            sessions=sessions,
            reactor=reactor,
            jetstream=None if jetstream is None else jetstream.metrics,
            started_unix_ns=started_unix_ns,
            events=events,
        ),
        jetstream=jetstream,
        leafnodes=leafnodes,
    )
