"""Puts the system account's part of a server together; `run` serves it."""

from collections.abc import Callable

import attrs
import trio

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.monitor.pages import Pages
from jetraft.api.sessions.session import Sessions
from jetraft.api.system.answers import Answers
from jetraft.api.system.control import Control
from jetraft.api.system.events import SystemEvents
from jetraft.api.system.head import ServerHead
from jetraft.api.system.requests import SystemRequests
from jetraft.api.turns.outbox import PlaneOutboxes
from jetraft.api.turns.reactor import Reactor


@attrs.frozen(kw_only=True, eq=False)
class SystemAccount:
    """Requests and events of the system account."""

    requests: SystemRequests
    events: SystemEvents

    @classmethod
    def build(
        cls,
        *,
        pages: Pages,
        sessions: Sessions,
        reactor: Reactor,
        accounts: LiveAccounts,
        reload_configuration: Callable[[], None],
    ) -> "SystemAccount | None":
        """The parts; None for a server without a system account. `reload_configuration` raises ReloadError."""
        options = sessions.options
        if not options.system_account:
            return None
        outboxes = PlaneOutboxes(reactor.plane, reactor)
        head = ServerHead(
            identity=pages.identity,
            sessions=sessions,
            clock=pages.clock,
            has_jetstream=pages.jetstream is not None,
            name_of=accounts.name_of,
        )
        events = SystemEvents(
            head=head,
            outbox=outboxes(options.system_account),
            outboxes=outboxes,
            accounts=pages.accounts,
            varz=pages.varz,
            clock=pages.clock,
        )
        events.connect()
        requests = SystemRequests(
            head=head,
            answers=Answers(pages=pages, sessions=sessions, events=events),
            control=Control(
                sessions=sessions,
                plane=reactor.plane,
                reload_configuration=reload_configuration,
                jetstream=pages.jetstream,
            ),
            accounts=accounts,
            new_outbox=outboxes,
            system=options.system_account,
            kick=reactor.kick_outside,
        )
        return cls(requests=requests, events=events)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.requests.run)
            nursery.start_soon(self.events.run)
            task_status.started()
