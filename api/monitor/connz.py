"""/connz: the connections that are open and the last ones that have ended. Rows, order and texts are nats-server's.

Clients, and servers that are joined as leaf nodes; of these, those that have ended are in the log alone.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from jetraft.api.monitor.questions import ConnzQuestion, PageError
from jetraft.api.monitor.steps import ROWS_PER_STEP, Rows, Steps
from jetraft.api.monitor.subjects import Row, collide, detail, subscriptions_of, texts
from jetraft.api.monitor.values import page_limit, uptime_text
from jetraft.api.monitor.varz import LeafStatus
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import TEXTS
from jetraft.api.sessions.session import Closed, Session, Sessions
from jetraft.api.tls.facts import connz_fields
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.gotime import format_duration, format_time
from jetraft.store.model.ids import GLOBAL_ACCOUNT

LIMIT: Final = 1024  # nats-server's default
SUBSCRIPTIONS_MAX: Final = 100_000  # on one page
OPEN, CLOSED, ALL = 0, 1, 2


@attrs.frozen(kw_only=True, slots=True)
class SeenConnection:
    """A connection at the moment of a request."""

    session: Session
    counters: Mapping[str, Any]
    at_mono_ns: int  # now, or when it ended
    is_leaf: bool = False
    closed: Closed | None = None

    @property
    def cid(self) -> int:
        """Its id."""
        return self.session.cid

    @property
    def uptime_ns(self) -> int:
        """How long it has been open, or was."""
        return self.at_mono_ns - int(self.counters["started_ns"])

    @property
    def idle_ns(self) -> int:
        """For how long nothing has come."""
        return max(0, self.at_mono_ns - int(self.counters["last_active_ns"]))

    @property
    def user(self) -> str:
        """Its user; for a refused one whom it named."""
        return self.session.named if self.session.verdict is None else self.session.verdict.user


def most(counter: str) -> Callable[[SeenConnection], Any]:
    """The order by a counter, the largest first."""
    return lambda seen: -seen.counters[counter]


ORDERS: Final[Mapping[str, Callable[[SeenConnection], Any]]] = {
    "": lambda seen: seen.cid,
    "cid": lambda seen: seen.cid,
    "start": lambda seen: seen.session.start_unix_ns,
    "subs": most("subscriptions"),
    "pending": most("pending_bytes"),
    "msgs_to": most("out_msgs"),
    "msgs_from": most("in_msgs"),
    "bytes_to": most("out_bytes"),
    "bytes_from": most("in_bytes"),
    "last": most("last_active_ns"),
    "idle": lambda seen: -seen.idle_ns,
    "uptime": lambda seen: seen.uptime_ns,
    "stop": lambda seen: -seen.closed.stop_unix_ns if seen.closed else 0,
    "reason": lambda seen: reason_of(seen.closed) if seen.closed else "",
    "rtt": most("rtt_ns"),
}


def reason_of(closed: Closed) -> str:
    """Why a connection ended."""
    return TEXTS.get(closed.reason, "Unknown")


@attrs.frozen(kw_only=True, eq=False)
class Connz:
    """Makes the page."""

    sessions: Sessions
    plane: Plane
    clock: Clock
    name_of: Callable[[str], str]  # of an account, for people
    leafnodes: LeafStatus | None = None

    def page(self, question: ConnzQuestion) -> Steps[dict[str, Any]]:
        """The page without its head. Raises PageError."""
        check(question)
        total, found = 0, list[SeenConnection]()
        for number, seen in enumerate(self._seen(question), 1):
            if not question.acc or seen.session.account == question.acc:
                total += 1
                if self._is_wanted(seen, question) and (yield from self._listens(seen, question.filter_subject)):
                    found.append(seen)
            if number % ROWS_PER_STEP == 0:
                yield 0
        found.sort(key=lambda seen: seen.cid)
        found.sort(key=ORDERS[question.sort])
        offset, limit = max(question.offset, 0), page_limit(question.limit, LIMIT)
        if question.cid:
            offset, limit = 0, 1
        rows, left = [], SUBSCRIPTIONS_MAX
        for seen in found[offset : offset + limit]:
            row = self._row(seen, question)
            if question.subscriptions or question.subscriptions_detail:
                held = yield from self._subscriptions(seen)
                left -= len(held)
                row |= yield from self._listed(seen, question, held)
            yield 0
            if left < 0:
                raise PageError(f"more than {SUBSCRIPTIONS_MAX} subscriptions: ask for fewer connections (limit, cid)")
            rows.append(row)
        return {"num_connections": len(rows), "total": total, "offset": offset, "limit": limit, "connections": rows}

    def _seen(self, question: ConnzQuestion) -> Iterator[SeenConnection]:
        now_ns = self.clock.mono_ns()
        if question.state in (OPEN, ALL):
            for cid, session in list(self.sessions.by_cid.items()):  # they come and go between two steps
                counters = self.plane.connection(cid)
                if counters is not None:
                    yield SeenConnection(session=session, counters=counters, at_mono_ns=now_ns)
            for session in () if self.leafnodes is None else self.leafnodes.sessions():
                counters = self.plane.connection(session.cid)
                if counters is not None:
                    yield SeenConnection(session=session, counters=counters, at_mono_ns=now_ns, is_leaf=True)
        if question.state in (CLOSED, ALL):
            for closed in list(self.sessions.closed):
                at_ns, last = closed.stop_mono_ns, closed.counters
                yield SeenConnection(session=closed.session, counters=last, at_mono_ns=at_ns, closed=closed)

    def _is_wanted(self, seen: SeenConnection, question: ConnzQuestion) -> bool:
        if question.cid and seen.cid != question.cid:
            return False
        return not question.user or seen.user == question.user

    def _listens(self, seen: SeenConnection, wanted: str) -> Steps[bool]:
        """Whether a connection has a subscription that some subject of the wanted ones reaches, if any is wanted."""
        if not wanted:
            return True
        rows = yield from self._subscriptions(seen)
        for number, (_, subject, *_rest) in enumerate(rows, 1):
            if collide(wanted, subject):
                return True
            if number % ROWS_PER_STEP == 0:
                yield 0
        return False

    def _subscriptions(self, seen: SeenConnection) -> Steps[list[Row]]:
        """Of an open connection all, of a closed one those that it is remembered with."""
        if seen.closed is not None:
            kept: list[Row] = seen.counters["subjects"]
            return kept
        return (yield from subscriptions_of(self.plane, seen.cid, SUBSCRIPTIONS_MAX + 1))

    def _row(self, seen: SeenConnection, question: ConnzQuestion) -> dict[str, Any]:
        session, counters, closed = seen.session, seen.counters, seen.closed
        last_ns = session.start_unix_ns + counters["last_active_ns"] - counters["started_ns"]
        row: dict[str, Any] = {
            "cid": seen.cid,
            **({"kind": "Leafnode"} if seen.is_leaf else {"kind": "Client", "type": session.client_type}),
            "ip": session.ip,
            "port": session.port,
            "start": format_time(session.start_unix_ns),
            "last_activity": format_time(last_ns),
        }
        if closed is not None:
            row |= {"stop": format_time(closed.stop_unix_ns), "reason": reason_of(closed)}
        if counters["rtt_ns"]:
            row["rtt"] = format_duration(counters["rtt_ns"])
        row |= {
            "uptime": uptime_text(seen.uptime_ns // NS_PER_S),
            "idle": uptime_text(seen.idle_ns // NS_PER_S),
            "pending_bytes": counters["pending_bytes"],
            "in_msgs": counters["in_msgs"],
            "out_msgs": counters["out_msgs"],
            "in_bytes": counters["in_bytes"],
            "out_bytes": counters["out_bytes"],
            "subscriptions": counters["subscriptions"],
        }
        row |= {key: value for key in ("name", "lang", "version") if (value := getattr(session.options, key))}
        if session.tls is not None:
            row |= connz_fields(session.tls, auth=question.username)
        if question.username:
            row |= self._identity(seen)
        if session.proxy_key:
            row["proxy"] = {"key": session.proxy_key}
        return row

    def _listed(self, seen: SeenConnection, question: ConnzQuestion, rows: list[Row]) -> Steps[dict[str, Any]]:
        """The subscriptions of a row, if there are some."""
        if not rows:
            return {}
        if question.subscriptions_detail:
            name_of = self.name_of if seen.closed is not None else None
            return {"subscriptions_list_detail": Rows(detail(row, name_of=name_of) for row in rows)}
        return {"subscriptions_list": (yield from texts([subject for _, subject, *_ in rows]))}

    def _identity(self, seen: SeenConnection) -> dict[str, Any]:
        """The user of a connection, for those who asked; not the token of its user, which may be a secret."""
        account, verdict = seen.session.account, seen.session.verdict
        claims = None if verdict is None else verdict.claims
        return {
            **({"authorized_user": seen.user} if seen.user else {}),
            **({"account": account} if account != GLOBAL_ACCOUNT else {}),
            **({"issuer_key": claims.issuer} if claims is not None else {}),
            **({"name_tag": self.name_of(account)} if verdict is not None else {}),
        }


def check(question: ConnzQuestion) -> None:
    """Raise PageError for a question that cannot be answered."""
    if question.sort not in ORDERS:
        raise PageError(f"invalid sorting option: {question.sort}")
    if question.sort in ("stop", "reason") and question.state != CLOSED:
        raise PageError(f"sort by {question.sort} only valid on closed connections")
    if question.filter_subject and not question.acc:
        raise PageError("filter by subject only valid with account filtering")
    if question.mqtt_client:
        raise PageError(f"mqtt_client={question.mqtt_client} is not served")
