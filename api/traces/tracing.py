"""Traces of messages: what this server did with one, as events in JSON that go to the destination it names.

The plane asks a `Tracer` about a message whose headers may ask for a trace, and tells the `Trace` what it does with the
message (api/plane/_tracing.pyx). It sends the trace when the sinks of the turn are done, because the leader of a stream
says then what became of the message. Texts and fields are those of nats-server 2.15 (ADR-41).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.api.credentials.violations import PUBLISH, texts
from jetraft.api.exchange.values import PERCENT, TraceDestination
from jetraft.api.traces.trace_headers import (
    ACCEPT_ENCODING,
    DEST,
    DISABLED,
    HOP,
    ORIGIN_ACCOUNT,
    disabled,
    read_trace,
    with_header,
)
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import format_time
from jetraft.store.model.subject import valid_publish_subject
from jetraft.store.model.versioning import SERVER_VERSION

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.auth.registry import AccountRegistry
    from jetraft.api.options.options import Options
    from jetraft.api.sessions.session import Sessions

CLIENT: Final = 0
ROUTE: Final = 1
SYSTEM_ACCOUNT_SHOWN: Final = "$SYS"
NOT_UNDERSTOOD: Final = "Not delivered because remote does not support message tracing"
SILENT: Final = "Message delivered but remote does not support message tracing so no trace event generated from there"
EVENTS_MAX: Final = 10_000  # of the traces that wait for the end of a turn: some 70 ms; what exceeds them is not traced
TRACE_COST: Final = 5  # events that take as long as what every trace takes
JETSTREAM_CAPABILITIES: Final = 3  # it is enabled, and snapshots are binary


@attrs.frozen(kw_only=True, slots=True)
class NotTraced:
    """The message is delivered with these headers, or dropped because it was for a trace only."""

    hdr: bytes | None = None
    is_dropped: bool = False
    is_trace: bool = False


@attrs.define(kw_only=True, eq=False)
class Trace:
    """The fate of one message on this server."""

    tracer: Tracer
    account: str
    dest: bytes
    only: bool
    hop: str
    encoding: str
    document: dict[str, Any]
    hops: int = 0
    is_trace: bool = True

    def violated(self, subject: bytes) -> None:
        """The publisher may not publish this."""
        self.document["events"][0]["error"] = texts(PUBLISH, subject, b"", b"")[0]

    def mapped(self, subject: bytes) -> None:
        """Its account maps its subject."""
        self._event("sm", to=subject.decode(errors="replace"))

    def to_client(self, cid: int, subscription: bytes, queue: bytes, error: str, *, account: str) -> None:
        """A client receives the message, or does not and why."""
        event = self._event("eg", kind=CLIENT, cid=cid)
        if name := self.tracer.name_of(cid):
            event["name"] = name
        if account != self.account:
            event["acc"] = account
        event["sub"] = subscription.decode(errors="replace")
        if queue:
            event["queue"] = queue.decode(errors="replace")
        if error:
            event["error"] = error

    def to_peer(self, number: int, name: str, hdr: bytes, *, understands: bool) -> bytes | None:
        """A peer receives the message with these headers; None: it would deliver what is for a trace only."""
        if not understands:
            error = NOT_UNDERSTOOD if self.only else SILENT
            self._event("eg", kind=ROUTE, cid=number, name=name)["error"] = error
            return None if self.only else hdr
        self.hops += 1
        self.document["hops"] = self.hops
        hop = f"{self.hop}.{self.hops}" if self.hop else str(self.hops)
        self._event("eg", kind=ROUTE, cid=number, name=name, hop=hop)
        return with_header(hdr, HOP, hop.encode())

    def to_importer(self, account: str, subject: bytes) -> None:
        """An account imports the message as part of a stream, under this subject."""
        self._event("se", acc=account, to=subject.decode(errors="replace"))

    def to_service(self, account: str, subject: bytes, there: bytes) -> None:
        """The message is a request to a service of an account."""
        names = {"from": subject.decode(errors="replace"), "to": there.decode(errors="replace")}
        self._event("si", acc=account, **names)

    def dest_of(self, hdr: bytes) -> bytes:
        """The subject for events of a message with these headers, in the account where it is."""
        asked = read_trace(hdr)
        return self.dest if asked is None or asked.is_external else asked.first(DEST)

    @staticmethod
    def led_to(hdr: bytes, dest: bytes) -> bytes:
        """The headers with another destination, for another account."""
        return with_header(hdr, DEST, dest)

    @staticmethod
    def ended(hdr: bytes) -> bytes:
        """The headers for an account that lets nothing be traced."""
        return disabled(hdr)

    def to_api(self, subject: bytes) -> None:
        """The message is a request of the JetStream API, which nats-server imports from its system account."""
        text = subject.decode(errors="replace")
        self._event("si", acc=SYSTEM_ACCOUNT_SHOWN, **{"from": text, "to": text})

    def to_stream(self, stream: str, hdr: bytes) -> bytes:
        """A stream's leader receives the message, with the headers that this returns."""
        self._event("js", stream=stream)
        return hdr if self.only else disabled(hdr)

    def stored(self, stream: str, subject: str, *, no_interest: bool, error: str) -> None:
        """The verdict of a stream's leader on the message."""
        for event in self.document["events"]:
            if event["type"] == "js" and event["stream"] == stream:
                if error:
                    event["error"] = error
                    continue
                event["subject"] = subject
                event["ts"] = format_time(self.tracer.now_ns())
                if no_interest:
                    event["nointerest"] = True

    def encoded(self) -> tuple[bytes, bytes]:
        """Headers and payload of the message to the destination."""
        self.tracer.events -= len(self.document["events"]) - 1 + TRACE_COST
        body = orjson.dumps({"server": self.tracer.server(), **self.document})
        if not self.encoding:
            return b"", body
        word = self.encoding.lower()
        if "snappy" in word or "s2" in word:
            from jetraft.store.s2.framing import IDENTIFIERS, Compressor  # noqa: PLC0415  for those who ask for it

            compressor = Compressor()
            framed = compressor.add(body) + compressor.flush()
            return encoding_header("snappy"), framed.replace(IDENTIFIERS[0], IDENTIFIERS[1], 1)
        if "gzip" in word:
            import gzip  # noqa: PLC0415  as above

            return encoding_header("gzip"), gzip.compress(body)
        return encoding_header("identity"), body

    def _event(self, kind_of_event: str, **fields: Any) -> dict[str, Any]:
        self.tracer.events += 1
        event = {"type": kind_of_event, "ts": format_time(self.tracer.now_ns()), **fields}
        self.document["events"].append(event)
        return event


def encoding_header(name: str) -> bytes:
    """A header block that says how a payload is compressed."""
    return f"NATS/1.0\r\nContent-Encoding: {name}\r\n\r\n".encode()


def destinations(options: Options) -> dict[str, TraceDestination]:
    """The destinations of accounts that have one."""
    return {
        account.name: TraceDestination(dest=account.trace_dest.encode(), sampling=account.trace_sampling)
        for account in options.accounts
        if account.trace_dest
    }


@attrs.define(eq=False)
class Tracer:
    """Decides which messages are traced."""

    sessions: Sessions
    registry: AccountRegistry | None = None  # of accounts whose tokens name a destination
    rng: random.Random = attrs.field(factory=random.Random)
    sent: int = 0
    events: int = 0  # of traces that are not sent yet
    by_account: Mapping[str, TraceDestination] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.by_account = destinations(self.sessions.options)

    def destination_of(self, account: str) -> TraceDestination | None:
        """The subject to which an account has messages traced that carry `traceparent`."""
        claims = None if self.registry is None else self.registry.get(account)
        return self.by_account.get(account) if claims is None else claims.trace

    @property
    def has_destinations(self) -> bool:
        """Whether any account has one."""
        return bool(self.by_account) or any(claims.trace for claims in self.registry or ())

    def now_ns(self) -> int:
        """Unix time."""
        return self.sessions.clock.unix_ns()

    def name_of(self, cid: int) -> str:
        """The name that a client gives itself."""
        session = self.sessions.by_cid.get(cid)
        return "" if session is None else session.options.name

    def begin(  # noqa: PLR0913, PLR0917  (what the plane knows of a message)
        self, kind: int, number: int, name: str, account: str, subject: bytes, hdr: bytes, size: int
    ) -> Trace | NotTraced | None:
        """The treatment of a message that may ask for a trace; None: nothing but its delivery."""
        asked = read_trace(hdr)
        if asked is None:
            return None
        only = asked.is_only
        if asked.first(ORIGIN_ACCOUNT):
            value = go_quote(asked.first(ORIGIN_ACCOUNT).decode(errors="replace"))
            why = f'Message tracing disabled because of header "{ORIGIN_ACCOUNT.decode()}" with value={value}'
            self._complain(number, name, why)
            return NotTraced(hdr=None if only else with_header(hdr, DEST, DISABLED), is_dropped=only)
        dest = asked.first(DEST)
        if asked.is_external:
            configured = self.destination_of(account)
            if configured is None:
                return None
            dest = configured.dest
            if kind == CLIENT and not self._is_sampled(configured.sampling):
                return NotTraced(hdr=with_header(hdr, DEST, DISABLED))
        if problem := self._problem(dest):
            self._complain(number, name, f"{problem}, won't be able to trace events")
            return NotTraced(is_dropped=only)
        self.events += TRACE_COST
        shown_name = name if kind != CLIENT else self.name_of(number)
        said = {key.decode(errors="replace"): values for key, values in sorted(asked.headers.items())}
        ingress: dict[str, Any] = {"type": "in", "ts": format_time(self.now_ns()), "kind": kind, "cid": number}
        ingress |= {"name": shown_name} if shown_name else {}
        ingress |= {"acc": account, "subj": subject.decode(errors="replace")}
        header = {key: [value.decode(errors="replace") for value in values] for key, values in said.items()}
        return Trace(
            tracer=self,
            account=account,
            dest=dest,
            only=only,
            hop=asked.first(HOP).decode(errors="replace") if kind != CLIENT else "",
            encoding=asked.first(ACCEPT_ENCODING).decode(errors="replace"),
            document={"request": {"header": header, "msgsize": size}, "events": [ingress]},
        )

    @staticmethod
    def from_leaf(hdr: bytes) -> NotTraced | None:
        """The treatment of a message of a leaf node or hub, which was told that nothing of it is traced here.

        The destination is not one of its permissions, so other nodes do not send there either.
        """
        asked = read_trace(hdr)
        if asked is None or asked.is_external:
            return None
        return NotTraced(hdr=None if asked.is_only else disabled(hdr), is_dropped=asked.is_only)

    def server(self) -> dict[str, Any]:
        """How this server names itself in what it sends."""
        identity = self.sessions.identity
        self.sent += 1
        cluster = {"cluster": identity.cluster_name} if identity.cluster_name else {}
        jetstream = {"jetstream": True, "flags": JETSTREAM_CAPABILITIES} if self.sessions.jetstream else {}
        return {
            "name": identity.server_name,
            "host": self.sessions.options.host,
            "id": identity.server_id,
            **cluster,
            "ver": SERVER_VERSION,
            **jetstream,
            "seq": self.sent,
            "time": format_time(self.now_ns()),
        }

    def _problem(self, dest: bytes) -> str:
        """Why there is no trace, or nothing."""
        if not valid_publish_subject(dest):
            return f"Destination {go_quote(dest.decode(errors='replace'))} is not valid"
        return "Too many message traces at a time" if self.events >= EVENTS_MAX else ""

    def _is_sampled(self, percent: int) -> bool:
        return percent >= PERCENT or self.rng.randrange(PERCENT) < percent

    def _complain(self, number: int, name: str, text: str) -> None:
        session = self.sessions.by_cid.get(number) if not name else None
        log.error("%s - %s", session.title if session is not None else name or number, text)
