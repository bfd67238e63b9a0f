"""The monitoring pages: which there are, and the same documents for HTTP and for requests of the system account.

Field names and order are nats-server's (server/monitor.go); fields of features that this server does not have are
missing, and pages about what has no counterpart here are refused with the reason.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from jetraft.api.monitor.absent import gatewayz
from jetraft.api.monitor.accountz import AccountPages
from jetraft.api.monitor.connz import Connz
from jetraft.api.monitor.figures import JetStreamMetrics
from jetraft.api.monitor.health import BAD_REQUEST, HealthStatus
from jetraft.api.monitor.metrics import Metrics
from jetraft.api.monitor.page import TEXT_TYPE, Handler, Page, refusal
from jetraft.api.monitor.questions import (
    AccountzQuestion,
    ArgumentError,
    ConnzQuestion,
    GatewayzQuestion,
    HealthQuestion,
    JszQuestion,
    LeafzQuestion,
    MetricsQuestion,
    NoQuestion,
    PageError,
    QueuesQuestion,
    RaftzQuestion,
    RoutezQuestion,
    StatzQuestion,
    SubszQuestion,
    from_query,
)
from jetraft.api.monitor.routez import Routez
from jetraft.api.monitor.stacks import stacks
from jetraft.api.monitor.steps import Steps, json_parts
from jetraft.api.monitor.subsz import Subsz
from jetraft.api.monitor.varz import JetStreamFigures, LeafStatus, Varz
from jetraft.api.sessions.session import ServerIdentity
from jetraft.store.model.clock import Clock
from jetraft.store.model.gotime import format_time

if TYPE_CHECKING:
    from jetraft.api.monitor.ui.lists import JetStreamLists  # which servers without a monitoring port do not load

NO_RUNTIME: Final = "the variables of Go's runtime have no counterpart here; /varz has this server's figures"
UNLINKED: Final = ("/", "/debug/vars")  # the page of the links itself, and one that is always refused
NO_PROFILES: Final = "profiles of Go's runtime have no counterpart here"


class JetStreamStatus(JetStreamFigures, Protocol):
    """JetStream as the pages see it. Implemented by api/jetstream/node.py."""

    async def health(self, question: HealthQuestion) -> HealthStatus:
        """Whether this node is healthy, and has what is asked about."""

    def jsz(self, question: JszQuestion) -> Steps[dict[str, Any]]:
        """The body of /jsz without its head. Raises PageError."""

    def jsz_account(self, account: str, question: JszQuestion) -> Steps[dict[str, Any]]:
        """One account of /jsz. Raises PageError."""

    def raftz(self, question: RaftzQuestion, system: str) -> Steps[dict[str, Any]]:
        """The body of /raftz. Raises PageError."""

    def metrics(self, question: MetricsQuestion) -> Steps[JetStreamMetrics]:
        """The figures of /metrics."""

    def queues(self) -> dict[str, int]:
        """Requests that wait, by the name of the queue."""

    def dashboard(self) -> "JetStreamLists":
        """The lists of the dashboard."""


@attrs.frozen(kw_only=True)
class PageKind:
    """One page: what it is asked, in what Go's type has that in a request, and what makes it, with Rows in it."""

    question: type
    go_name: str
    make: Callable[[Any], dict[str, Any] | Awaitable[dict[str, Any]] | Steps[dict[str, Any]]]


def as_json(made: dict[str, Any] | Steps[dict[str, Any]]) -> Steps[Page]:
    """An indented JSON page, like nats-server's, or the one that says why there is none."""
    try:
        document = (yield from made) if isinstance(made, Generator) else made
    except PageError as error:
        return refusal(error)
    first, *rest = yield from json_parts(document, is_indented=True)
    return Page(body=first, rest=rest)


def headed(head: dict[str, Any], body: Steps[dict[str, Any]]) -> Steps[dict[str, Any]]:
    """A document behind what it begins with."""
    return head | (yield from body)


PATHS: Final[Mapping[str, str]] = {
    "/varz": "VARZ",
    "/jsz": "JSZ",
    "/connz": "CONNZ",
    "/accountz": "ACCOUNTZ",
    "/accstatz": "STATZ",
    "/subsz": "SUBSZ",
    "/subscriptionsz": "SUBSZ",
    "/routez": "ROUTEZ",
    "/leafz": "LEAFZ",
    "/gatewayz": "GATEWAYZ",
    "/raftz": "RAFTZ",
    "/ipqueuesz": "IPQUEUESZ",
    "/debug/vars": "EXPVARZ",
}


@attrs.define(kw_only=True, eq=False)
class Pages:
    """Makes the pages from the statistics of the server's parts."""

    identity: ServerIdentity
    clock: Clock
    connz: Connz
    subsz: Subsz
    routez: Routez
    accounts: AccountPages
    varz: Varz
    metrics: Metrics
    jetstream: JetStreamStatus | None
    leafnodes: LeafStatus | None = None
    kinds: Mapping[str, PageKind] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        head, accounts = self._head, self.accounts
        self.kinds = {
            "VARZ": PageKind(question=NoQuestion, go_name="VarzEventOptions", make=lambda _: self.varz.page()),
            "JSZ": PageKind(question=JszQuestion, go_name="JszEventOptions", make=self._jsz),
            "CONNZ": PageKind(
                question=ConnzQuestion,
                go_name="ConnzEventOptions",
                make=lambda asked: headed(head(), self.connz.page(asked)),
            ),
            "SUBSZ": PageKind(
                question=SubszQuestion, go_name="SubszEventOptions", make=lambda asked: head() | self.subsz.page(asked)
            ),
            "ROUTEZ": PageKind(question=RoutezQuestion, go_name="RoutezEventOptions", make=self._routez),
            "LEAFZ": PageKind(question=LeafzQuestion, go_name="LeafzEventOptions", make=self.leafz),
            "GATEWAYZ": PageKind(
                question=GatewayzQuestion, go_name="GatewayzEventOptions", make=lambda _: gatewayz(head())
            ),
            "ACCOUNTZ": PageKind(
                question=AccountzQuestion,
                go_name="AccountzEventOptions",
                make=lambda asked: head() | accounts.accountz(asked),
            ),
            "STATZ": PageKind(
                question=StatzQuestion,
                go_name="AccountStatzEventOptions",
                make=lambda asked: headed(head(), accounts.statz(asked)),
            ),
            "HEALTHZ": PageKind(question=HealthQuestion, go_name="HealthzEventOptions", make=self._healthz),
            "RAFTZ": PageKind(question=RaftzQuestion, go_name="RaftzEventOptions", make=self._raftz),
            "IPQUEUESZ": PageKind(question=QueuesQuestion, go_name="IpqueueszEventOptions", make=self._queues),
            "EXPVARZ": PageKind(question=NoQuestion, go_name="ExpvarzEventOptions", make=self._no_runtime),
        }

    def table(self) -> dict[str, Handler]:
        """Path -> handler, for HTTP."""
        return {
            "/": self.root,
            "/healthz": self.healthz,
            "/metrics": self._metrics,
            "/stacksz": lambda _: Page(body=stacks(), content_type=TEXT_TYPE),
            **{path: self._handler(self.kinds[name]) for path, name in PATHS.items()},
        }

    @staticmethod
    def _handler(kind: PageKind) -> Handler:
        def handle(arguments: dict[str, str]) -> Page | Steps[Page]:
            try:
                made = kind.make(from_query(kind.question, arguments))
                assert isinstance(made, dict | Generator)
                return as_json(made)
            except (ArgumentError, PageError) as error:
                return refusal(error)

        return handle

    def _metrics(self, arguments: dict[str, str]) -> Page | Steps[Page]:
        try:
            return self.metrics.page(from_query(MetricsQuestion, arguments))
        except ArgumentError as error:
            return refusal(error)

    def _head(self) -> dict[str, Any]:
        """The beginning of most pages."""
        return {"server_id": self.identity.server_id, "now": format_time(self.clock.unix_ns())}

    def leafz(self, question: LeafzQuestion) -> Steps[dict[str, Any]]:
        """The connections to leaf nodes and hubs, with their interest where it is asked for."""
        head, rows = self._head(), list[dict[str, Any]]()
        if self.leafnodes is not None:
            rows = yield from self.leafnodes.rows(question.account, subs=question.subscriptions)
        return head | {"leafnodes": len(rows), "leafs": rows}

    def root(self, _arguments: dict[str, str]) -> Page:
        """Links to the dashboard and to the other pages."""
        import html  # noqa: PLC0415  a table of 2,000 names for one page

        shown = ["/ui", *(path for path in self.table() if path not in UNLINKED)]
        links = "".join(f'<a href=".{path}">{path[1:]}</a><br/>' for path in shown)
        name = html.escape(self.identity.server_name)
        body = f"<html><head><title>jetraft {name}</title></head><body><h1>jetraft {name}</h1>{links}</body></html>"
        return Page(body=body.encode(), content_type="text/html; charset=utf-8")

    async def health(self, question: HealthQuestion) -> HealthStatus:
        """Whether this server is healthy."""
        if question.refusal:
            return HealthStatus(status=400, kind=BAD_REQUEST, error=question.refusal)
        return HealthStatus() if self.jetstream is None else await self.jetstream.health(question)

    async def healthz(self, arguments: dict[str, str]) -> Page:
        """`{"status":"ok"}`, or the reason with status 400, 404 or 503."""
        try:
            question = from_query(HealthQuestion, arguments)
        except ArgumentError as error:
            return refusal(error)
        return (await self.health(question)).page(question)

    async def _healthz(self, question: HealthQuestion) -> dict[str, Any]:
        """For a request: the status is a field then, whatever it is."""
        health = await self.health(question)
        document = health.document(question)
        status = document.pop("status")
        return {"status": status, "status_code": health.status} | document

    def _routez(self, question: RoutezQuestion) -> Steps[dict[str, Any]]:
        head = self._head()
        return {"server_id": head["server_id"], "server_name": self.identity.server_name, "now": head["now"]} | (
            yield from self.routez.page(question)
        )

    def _jsz(self, question: JszQuestion) -> dict[str, Any] | Steps[dict[str, Any]]:
        """The streams and consumers of this node; see api/jetstream/jsz.py."""
        if self.jetstream is None:
            return self._head() | {"disabled": True}
        return headed(self._head(), self.jetstream.jsz(question))

    def _raftz(self, question: RaftzQuestion) -> Steps[dict[str, Any]]:
        if self.jetstream is None:
            raise PageError("No Raft nodes registered", status=404)
        return self.jetstream.raftz(question, self.accounts.system)

    def _queues(self, question: QueuesQuestion) -> dict[str, Any]:
        """The queues in which something waits, or all."""
        queues = {} if self.jetstream is None else self.jetstream.queues()
        return {
            name: {"pending": count}
            for name, count in sorted(queues.items())
            if (count or question.all) and question.filter in name
        }

    @staticmethod
    def _no_runtime(_question: NoQuestion) -> dict[str, Any]:
        raise PageError(NO_RUNTIME, status=501)
