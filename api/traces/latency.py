"""Latencies of services that accounts export: a sample of the requests becomes a metric each, in the exporting account.

The plane tells what becomes of a request (api/plane/_exchange.pyx); the node where it enters makes the metric. What
only the responder's node knows, it tells that node in the system account: how long the service took, who answered.
Fields are nats-server's. Nothing is kept of requests that are not measured, and of SAMPLES_MAX at a time.
"""

import random
from collections.abc import Callable
from functools import partial
from string import ascii_letters, digits
from typing import Any, Final

import attrs
import orjson

from jetraft.api.exchange.values import PERCENT, LatencySampling
from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.client_info import client_info
from jetraft.api.sessions.session import Sessions
from jetraft.api.traces.latency_headers import asked_by
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gotime import format_time

METRIC: Final = "io.nats.server.metric.v1.service_latency"
PARTS_SUBJECT: Final = "$SYS.LATENCY.M2."  # and the prefix of the requester's node
PART_BYTES_MAX: Final = 16 * 1024
SAMPLES_MAX: Final = 65_536  # that wait for their answers at a time; requests beyond are not measured
LOOK_NS: Final = NS_PER_S // 2
PART_WAIT_NS: Final = 2 * NS_PER_S  # for the responder's node; then the metric leaves without what it knows
SERVED_WAIT_NS: Final = 300 * NS_PER_S  # for an answer, at the responder's node
ID_CHARS: Final = 22
DIGITS: Final = digits + ascii_letters[26:] + ascii_letters[:26]
PREFIX_AT, NUMBER_AT = slice(4, 10), slice(11, 22)  # in a reply subject of the plane's
BASE: Final = len(DIGITS)

Document = dict[str, Any]
CallAt = Callable[[int, Callable[[], None]], object]


@attrs.define(kw_only=True, eq=False)
class LatencySample:
    """One request that is measured."""

    exporter: str
    to: str  # the subject of the metric
    importer: str
    reply: bytes
    requestor: Document
    header: dict[str, list[str]]
    since_ns: int
    start: str
    was_wanted: bool  # its answer was, when it was asked
    took_ns: int = 0  # until the answer of another node came; 0: it has not

    @property
    def rtt_ns(self) -> int:
        """Between the requester and its node."""
        return int(self.requestor.get("rtt", 0))


@attrs.frozen(kw_only=True, slots=True)
class LatencyPart:
    """The responder's node's knowledge of an answer."""

    service_ns: int
    responder: Document

    @classmethod
    def read(cls, payload: bytes) -> "tuple[int, LatencyPart] | None":
        """Number and part; None for what is none."""
        if len(payload) > PART_BYTES_MAX:
            return None
        try:
            found = orjson.loads(payload)
            number, service_ns, responder = found["number"], found["service"], found["responder"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
        if type(number) is not int or type(service_ns) is not int or service_ns < 0 or type(responder) is not dict:
            return None
        if not all(type(value) in {str, int} for value in responder.values()):
            return None
        if type(responder.get("rtt", 0)) is not int:
            return None
        return number, cls(service_ns=service_ns, responder=responder)


@attrs.define(eq=False)
class Latencies:
    """See the module. `later` calls back in a turn, `call_at` at a monotonic time."""

    plane: Plane
    sessions: Sessions
    later: Callable[[Callable[[], None]], None]
    call_at: CallAt
    rng: random.Random = attrs.field(factory=random.SystemRandom)
    _services: dict[int, tuple[str, LatencySampling]] = attrs.field(factory=dict, init=False)
    _samples: dict[int, LatencySample] = attrs.field(factory=dict, init=False)
    _served: dict[bytes, int] = attrs.field(factory=dict, init=False)  # by reply subject: when it came
    _sinks: set[str] = attrs.field(factory=set, init=False)
    _looking: bool = attrs.field(default=False, init=False)

    def follow(self, service: int, account: str, sampling: LatencySampling | None) -> None:
        """A service of an account is measured from now on like this. Between turns."""
        if sampling is None:
            self._services.pop(service, None)
            return
        self._services[service] = account, sampling
        system = self.sessions.options.system_account
        if system and self.sessions.options.cluster is not None and account not in self._sinks:
            self._sinks.add(account)
            prefix = self.plane.answers_prefix(self.plane.account(account)).decode()
            self.plane.add_sink(
                self.plane.account(system), f"{PARTS_SUBJECT}{prefix}".encode(), self._on_parts, kind=SinkKind.SYSTEM
            )

    # What becomes of a request, as the plane tells it.

    def requested(  # noqa: PLR0913, PLR0917  (what the plane knows of a request)
        self, service: int, number: int, cid: int, importer: str, hdr: bytes, reply: bytes, *, share: bool
    ) -> bool:
        """Whether the request is measured. One without a reply subject is told at once."""
        account, sampling = self._services[service]
        header: dict[str, list[str]] | None = {}
        if not self.rng.randrange(PERCENT) < sampling.percent:
            header = asked_by(hdr)
        if header is None or len(self._samples) >= SAMPLES_MAX:
            return False
        requestor = self._described(cid, detailed=share)
        since_ns, unix_ns = self.sessions.clock.mono_ns(), self.sessions.clock.unix_ns()
        sample = LatencySample(
            exporter=account,
            to=sampling.subject,
            importer=importer,
            reply=reply,
            requestor=requestor,
            header=header,
            since_ns=since_ns,
            start=format_time(unix_ns - int(requestor.get("rtt", 0))),
            was_wanted=bool(reply) and self.plane.has_interest(self.plane.account(importer), reply),
        )
        if not reply:
            self._tell_failure(sample, 400, "Bad Request")
            return False
        self._samples[number] = sample
        self._look_soon()
        return True

    def unheard(self, number: int) -> None:
        """It had no receiver."""
        if sample := self._samples.pop(number, None):
            self._tell_failure(sample, 503, "Service Unavailable")

    def late(self, number: int) -> None:
        """No answer came in time."""
        if sample := self._samples.pop(number, None):
            self._tell_failure(sample, 504, "Service Timeout")

    def answered(self, number: int, cid: int, *, routed: bool) -> None:
        """Its answer has come, from a client or a peer."""
        sample = self._samples.get(number)
        if sample is None:
            return
        took_ns = max(self.sessions.clock.mono_ns() - sample.since_ns, 1)
        if routed:
            sample.took_ns = took_ns
            return
        del self._samples[number]
        responder = self._described(cid, detailed=True) if cid else {}
        service_ns = max(took_ns - int(responder.get("rtt", 0)), 0)
        self._tell(sample, 200, responder=responder, service_ns=service_ns, took_ns=took_ns)

    def served(self, reply: bytes) -> None:
        """A peer's request arrives here, where the service may be."""
        if len(self._served) < SAMPLES_MAX:
            self._served[reply] = self.sessions.clock.mono_ns()
            self._look_soon()

    def replied(self, subject: bytes, cid: int) -> None:
        """A client answers it: the node of the requester is told who, and how long that took."""
        since_ns = self._served.pop(subject, None)
        system = self.sessions.options.system_account
        if since_ns is None or not system:
            return
        responder = self._described(cid, detailed=True)
        service_ns = max(self.sessions.clock.mono_ns() - since_ns - int(responder.get("rtt", 0)), 0)
        prefix, identity = subject[PREFIX_AT].decode(errors="replace"), subject[NUMBER_AT].decode(errors="replace")
        if not set(prefix + identity) <= set(DIGITS):
            return
        part = {"number": number_of(identity), "service": service_ns, "responder": responder}
        self._send(system, PARTS_SUBJECT + prefix, part, MessageOrigin.SERVER)

    # Metrics.

    def _on_parts(self, batch: bytes) -> None:
        for record in captures(batch):
            found = LatencyPart.read(record.payload)
            if found is None:
                continue
            number, part = found
            sample = self._samples.get(number)
            if sample is not None and sample.took_ns:
                del self._samples[number]
                self._tell_routed(sample, part)

    def _tell_routed(self, sample: LatencySample, part: LatencyPart | None) -> None:
        """Tell what two nodes measured; without the other's part, what this one did."""
        service_ns, responder = (sample.took_ns, {}) if part is None else (part.service_ns, part.responder)
        system_ns = max(sample.took_ns - service_ns - int(responder.get("rtt", 0)), 0)
        self._tell(sample, 200, responder=responder, service_ns=service_ns, took_ns=sample.took_ns, system_ns=system_ns)

    def _tell(  # noqa: PLR0913  (each is a field of the metric, by name)
        self,
        sample: LatencySample,
        status: int,
        *,
        responder: Document,
        service_ns: int,
        took_ns: int,
        system_ns: int = 0,
    ) -> None:
        named = {"responder": responder} if responder else {}
        times = {"service": service_ns, "system": system_ns, "total": sample.rtt_ns + took_ns}
        self._emit(sample, {"status": status, "requestor": sample.requestor} | named, times)

    def _tell_failure(self, sample: LatencySample, status: int, why: str) -> None:
        times = dict.fromkeys(("service", "system", "total"), 0)
        self._emit(sample, {"status": status, "description": why, "requestor": sample.requestor}, times)

    def _emit(self, sample: LatencySample, who: Document, times: Document) -> None:
        identity = "".join(self.rng.choices(DIGITS, k=ID_CHARS))
        head = {"type": METRIC, "id": identity, "timestamp": format_time(self.sessions.clock.unix_ns())}
        header = {"header": dict(sorted(sample.header.items()))} if sample.header else {}
        self._send(
            sample.exporter, sample.to, head | who | header | {"start": sample.start} | times, MessageOrigin.ADVISORY
        )

    def _send(self, account: str, subject: str, document: Document, origin: MessageOrigin) -> None:
        self.later(partial(self._publish, account, subject.encode(), orjson.dumps(document), origin))

    def _publish(self, account: str, subject: bytes, payload: bytes, origin: MessageOrigin) -> None:
        self.plane.send(self.plane.account(account), subject, payload=payload, origin=origin)

    def _described(self, cid: int, *, detailed: bool) -> Document:
        """A client; without details its account and round trip time."""
        session, counters = self.sessions.by_cid.get(cid), self.plane.connection(cid)
        assert counters is not None, "the plane names its own connections"
        rtt = {"rtt": counters["rtt_ns"]} if counters["rtt_ns"] else {}
        if session is None or not detailed:
            return {"acc": counters["account"], **rtt}
        found = client_info(session, name_of=str, rtt_ns=counters["rtt_ns"])
        del found["name_tag"]
        kind = {key: found.pop(key) for key in ("kind", "client_type")}
        identity = self.sessions.identity
        cluster = {"cluster": identity.cluster_name} if identity.cluster_name else {}
        return found | {"server": identity.server_name} | cluster | kind

    # What never comes.

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self.call_at(self.sessions.clock.mono_ns() + LOOK_NS, self._look)

    def _look(self) -> None:
        """Give up where the answer has no subscriber any more, and where another node does not say its part."""
        now_ns = self.sessions.clock.mono_ns()
        for number, sample in list(self._samples.items()):
            if sample.took_ns:
                if now_ns - sample.since_ns - sample.took_ns > PART_WAIT_NS:
                    del self._samples[number]
                    self._tell_routed(sample, None)
            elif sample.was_wanted and not self.plane.has_interest(self.plane.account(sample.importer), sample.reply):
                del self._samples[number]
                self._tell_failure(sample, 408, "Request Timeout")
        for reply in [reply for reply, since_ns in self._served.items() if now_ns - since_ns > SERVED_WAIT_NS]:
            del self._served[reply]
        self._looking = False
        if self._samples or self._served:
            self._look_soon()


def number_of(identity: str) -> int:
    """The number that the last token of a reply subject stands for."""
    return sum(DIGITS.index(digit) * BASE**place for place, digit in enumerate(identity))
