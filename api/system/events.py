"""Events in the system account: clients come and go, figures, and the end of this server.

An event is made only if something on any node has subscribed to it. The signals of `Sessions` only note what happened;
a task of this module tells it, in order. Events that come faster than that are bounded by NEWS_MAX and then not told.
"""

import random
from collections import deque
from typing import Any, Final

import attrs
import trio

from jetraft.api.monitor.accountz import AccountPages
from jetraft.api.monitor.connz import reason_of
from jetraft.api.monitor.steps import Pace, Steps, in_steps
from jetraft.api.monitor.varz import Varz
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.client_info import client_info
from jetraft.api.sessions.session import Closed, Session
from jetraft.api.system.head import ServerHead
from jetraft.api.turns.outbox import PlaneOutbox, PlaneOutboxes
from jetraft.cluster.capture.reach import MessageOrigin
from jetraft.store.model.clock import Clock
from jetraft.store.model.encoding.jsoncodec import encode
from jetraft.store.model.gotime import format_time
from jetraft.store.model.ids import ALPHABET

TYPE_PREFIX: Final = "io.nats.server.advisory.v1."
DISTRUSTED: Final = b"$SYS.ACCOUNT.CLIENT.AUTH.ERR"  # in the account of a service; all others are of the system account
ID_CHARS: Final = 22  # as long as nats-server's
OF_SERVICES: Final = (Reason.AUTHENTICATION_FAILURE, Reason.AUTHENTICATION_TIMEOUT, Reason.PROXY_REQUIRED)
NEWS_MAX: Final = 10_000  # that wait to be told
STATSZ_FIRST_S: Final = 0.25  # nats-server's intervals: a new server is soon heard of, then each time twice as late
STATSZ_S: Final = 10.0
CONNECTIONS_S: Final = 30.0


@attrs.define(kw_only=True, eq=False)
class SystemEvents:
    """Tells them. `outbox` is that of the system account."""

    head: ServerHead
    outbox: PlaneOutbox
    outboxes: PlaneOutboxes  # of the accounts whose services say who clients are
    accounts: AccountPages
    varz: Varz
    clock: Clock
    rng: random.Random = attrs.field(factory=random.Random)
    untold: int = 0  # since the start, because there was too much
    _pace: Pace = attrs.field(factory=Pace)
    _news: deque[Session | Closed] = attrs.field(factory=deque)
    _arrived: trio.Event = attrs.field(factory=trio.Event)

    def connect(self) -> None:
        """Listen to the sessions; once, before the first connection."""
        self.head.sessions.on_admitted.connect(self._note)
        self.head.sessions.on_ended.connect(self._note)

    def _note(self, news: Session | Closed) -> None:
        if len(self._news) >= NEWS_MAX:
            self.untold += 1
            return
        self._news.append(news)
        self._arrived.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_connections)
            nursery.start_soon(self._tell_statsz)
            nursery.start_soon(self._tell_numbers)

    async def _tell_connections(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived = trio.Event()
            while self._news:
                news = self._news.popleft()
                if isinstance(news, Closed):
                    self._tell_closed(news)
                else:
                    self._tell_admitted(news)
                await trio.lowlevel.checkpoint()

    async def _tell_statsz(self) -> None:
        subject, pause_s = f"$SYS.SERVER.{self.head.identity.server_id}.STATSZ", STATSZ_FIRST_S
        while True:
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, STATSZ_S)
            if self._is_wanted(subject):
                self._send(subject, await self._pace.finish(self.statsz(), lambda: 0))

    async def _tell_numbers(self) -> None:
        """Say again how many clients each account has here."""
        while True:
            await trio.sleep(CONNECTIONS_S)
            await self._pace.finish(self._all_numbers(), lambda: 0)

    def _all_numbers(self) -> Steps[None]:
        accounts: set[str] = set()
        yield from in_steps(list(self.head.sessions.by_cid.values()), lambda session: accounts.add(session.account))
        for account in sorted(accounts):
            self._tell_number(account)
            yield 0

    # --- what is told

    def statsz(self) -> Steps[dict[str, Any]]:
        """The answer to STATSZ, and the event of that name."""
        routes = self.varz.routez.routes
        figures = yield from self.varz.statsz(active_servers=1 + (len(routes.by_node) if routes is not None else 0))
        return {"server": self.head.next(), "statsz": figures}

    def account_connections(self, account: str) -> dict[str, Any]:
        """How many clients an account has here, and what went in and out."""
        return {**self._typed("account_connections"), "server": self.head.next(), **self.accounts.row(account)}

    def _tell_admitted(self, session: Session) -> None:
        self._tell_number(session.account)
        subject = f"$SYS.ACCOUNT.{session.account}.CONNECT"
        if self._is_wanted(subject):
            client = client_info(session, name_of=self.head.name_of, rtt_ns=0)
            self._send(subject, {**self._typed("client_connect"), "server": self.head.next(), "client": client})

    def _tell_closed(self, closed: Closed) -> None:
        session = closed.session
        if session.asked_in and session.verdict is None and closed.reason in OF_SERVICES:
            self._tell_distrusted(closed)
        if closed.reason == Reason.AUTHENTICATION_FAILURE:
            self._tell_end(f"$SYS.SERVER.{self.head.identity.server_id}.CLIENT.AUTH.ERR", closed)
        elif session.verdict is None:  # it has never said who it is
            return
        else:
            self._tell_number(session.account)
        self._tell_end(f"$SYS.ACCOUNT.{session.account}.DISCONNECT", closed)

    def _tell_distrusted(self, closed: Closed) -> None:
        """Tell the owners of the service that it has not let a client in, or has not answered in time."""
        session = closed.session
        outbox = self.outboxes(session.asked_in)
        if outbox.has_interest(DISTRUSTED, origin=MessageOrigin.ADVISORY):
            event = self._ended(closed, session.distrust or reason_of(closed))
            event["client"]["acc"] = session.asked_in
            outbox.send(DISTRUSTED, payload=encode(event), origin=MessageOrigin.ADVISORY)

    def _tell_end(self, subject: str, closed: Closed) -> None:
        if self._is_wanted(subject):
            self._send(subject, self._ended(closed, reason_of(closed)))

    def _ended(self, closed: Closed, reason: str) -> dict[str, Any]:
        counters = closed.counters
        return {
            **self._typed("client_disconnect"),
            "server": self.head.next(),
            "client": client_info(
                closed.session,
                name_of=self.head.name_of,
                rtt_ns=counters["rtt_ns"],
                stop_unix_ns=closed.stop_unix_ns,
            ),
            # Seen from the client: nats-server's `sent` is what the client has sent.
            "sent": {"msgs": counters["in_msgs"], "bytes": counters["in_bytes"]},
            "received": {"msgs": counters["out_msgs"], "bytes": counters["out_bytes"]},
            "reason": reason,
        }

    def _tell_number(self, account: str) -> None:
        subjects = (f"$SYS.SERVER.ACCOUNT.{account}.CONNS", f"$SYS.ACCOUNT.{account}.SERVER.CONNS")
        for subject in subjects:
            if self._is_wanted(subject):
                self._send(subject, self.account_connections(account))

    def tell_shutdown(self) -> None:
        """This server ends now."""
        self._tell_server("SHUTDOWN")

    def tell_lame_duck(self) -> None:
        """This server accepts no more clients and will end."""
        self._tell_server("LAMEDUCK")

    def _tell_server(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self.head.identity.server_id}.{what}"
        if self._is_wanted(subject):
            self._send(subject, self.head.next())

    # --- inside

    def _typed(self, kind: str) -> dict[str, Any]:
        return {
            "type": TYPE_PREFIX + kind,
            "id": "".join(self.rng.choice(ALPHABET) for _ in range(ID_CHARS)),
            "timestamp": format_time(self.clock.unix_ns()),
        }

    def _is_wanted(self, subject: str) -> bool:
        return self.outbox.has_interest(subject.encode(errors="replace"), origin=MessageOrigin.ADVISORY)

    def _send(self, subject: str, event: dict[str, Any]) -> None:
        self.outbox.send(subject.encode(errors="replace"), payload=encode(event), origin=MessageOrigin.ADVISORY)
