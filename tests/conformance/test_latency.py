"""Latencies of services, told by both servers: of which requests, with which fields, by one node and by two."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server
from tests.harness.tokens import TokenOperator, TokenUser

pytestmark = [pytest.mark.reference]
KINDS: Final[tuple[Kind, Kind]] = ("reference", "jetraft")
CONFIG: Final = """
accounts {
  A { users [{user: a, password: x}]
      exports [ {service: "all.*", latency: {sampling: "100%", subject: lat.all}, threshold: "1s"}
                {service: "asked.*", latency: {sampling: headers, subject: lat.asked}}
                {service: "short.*", latency: lat.short} ] }
  B { users [{user: b, password: x}]
      imports [ {service: {account: A, subject: "all.*"}}, {service: {account: A, subject: "asked.*"}}
                {service: {account: A, subject: "short.*"}, share: true} ] }
}
"""
TIMES: Final = ("service", "system", "total", "rtt", "id", "start", "timestamp", "server")
TRACE: Final = "479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:"
PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
HEADERS: Final = (
    (("Uber-Trace-Id", TRACE + "1"), ("Uberctx-X", "1"), ("Key", "value")),
    (("Uber-Trace-Id", TRACE + "0"),),
    (("Uber-Trace-Id", TRACE + "3"), ("B3", "0")),
    (("Uber-Trace-Id", "1"), ("B3", "1")),
    (("X-B3-TraceId", "80f"), ("X-B3-Sampled", "1"), ("X-B3-SpanId", "3"), ("X-B3-ParentSpanId", "4")),
    (("X-B3-TraceId", "80f"), ("X-B3-Sampled", "0")),
    (("x-b3-traceid", "80f"),),
    (("B3", "80f-e4-1-05"),),
    (("B3", "80f-e4-0-05"),),
    (("B3", "0"),),
    (("b3", "d"),),
    (("traceparent", PARENT + "01"), ("tracestate", "x=1")),
    (("Traceparent", PARENT + "03"),),
    (("Traceparent", PARENT + "00"),),
    (("Traceparent", PARENT + "1"),),
    (("Nats-Trace-Dest", "nowhere"),),
    (),
)


def shown(metric: dict[str, Any]) -> dict[str, Any]:
    """A metric without what is measured: its fields, in their order, and what they say."""
    return {
        key: shown(value) if isinstance(value, dict) and key != "header" else type(value) if key in TIMES else value
        for key, value in metric.items()
    }


def login(user: str, name: str) -> dict[str, Any]:
    """The fields of a CONNECT."""
    return {"user": user, "pass": "x", "name": name}


def received(client: RawClient) -> Message:
    """The next message of a client."""
    while True:
        event = client.next_event(PATIENCE_S)
        assert event is not None, "no message came"
        if isinstance(event, Message):
            return event


def with_token(stack: ExitStack, server: Server, user: TokenUser) -> RawClient:
    """A client that shows a token."""
    client = stack.enter_context(RawClient(server.address, connect=False))
    client.connect(**user.login(client.info["nonce"]))
    return client


@attrs.define(eq=False)
class Pair:
    """A service, a requester and a listener for metrics; the nodes they are connected to are the caller's."""

    service: RawClient
    requester: RawClient
    metrics: RawClient

    @classmethod
    def open(cls, stack: ExitStack, service: Server, requester: Server, metrics: Server) -> "Pair":
        def client(server: Server, user: str, name: str) -> RawClient:
            return stack.enter_context(RawClient(server.address, **login(user, name)))

        found = cls(client(service, "a", "service"), client(requester, "b", "requester"), client(metrics, "a", "m"))
        found.metrics.subscribe("lat.>")
        found.service.subscribe("*.serve")
        found.service.subscribe("*.late")
        found.requester.subscribe("back.>")
        for each in (found.metrics, found.service, found.requester):
            each.settle()
        return found

    def metric(self) -> dict[str, Any]:
        """The next metric."""
        event = received(self.metrics)
        return {"on": event.subject, **shown(json.loads(event.payload))}

    def serve(self, subject: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """A request and its answer; returns when the requester has it."""
        self.requester.publish(subject, b"?", reply="back.1", headers=headers)
        asked = received(self.service)
        while asked.subject != subject:  # one of those that were sent until one came
            asked = received(self.service)
        self.service.publish(asked.reply, b"!")
        assert received(self.requester).payload == b"!"


@pytest.fixture(params=KINDS)
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, directory=tmp_path, config=CONFIG, jetstream=False) as started:
        yield started


def asked_of(kind: Kind, directory: Path) -> list[Any]:
    """What one node of a kind tells of every sort of request."""
    directory.mkdir()
    told: list[Any] = []
    with Server(kind, directory=directory, config=CONFIG, jetstream=False) as server, ExitStack() as stack:
        pair = Pair.open(stack, server, server, server)
        for subject in ("all.serve", "short.serve"):
            pair.serve(subject)
            told.append(pair.metric())
        for headers in HEADERS:
            pair.serve("asked.serve", headers)
            pair.serve("short.serve", headers)
            first = pair.metric()
            told.append(first)
            if first["on"] == "lat.asked":
                assert pair.metric()["on"] == "lat.short"
        pair.requester.publish("all.nobody", b"?", reply="back.1")
        told.append(pair.metric())
        pair.requester.publish("all.serve", b"?")
        told.append(pair.metric())
        pair.requester.publish("all.late", b"?", reply="back.1")
        told.append(pair.metric())
        sid = pair.requester.subscribe("gone")
        pair.requester.publish("short.late", b"?", reply="gone")
        pair.requester.settle()
        pair.requester.send(f"UNSUB {sid}\r\n".encode())
        told.append(pair.metric())
    return told


def test_both_tell_the_same_of_every_sort_of_request(tmp_path: Path) -> None:
    theirs, ours = (asked_of(kind, tmp_path / kind) for kind in KINDS)
    for one, other in zip(theirs, ours, strict=True):
        assert other == one
        assert list(other) == list(one)
    assert [one["status"] for one in ours[-4:]] == [503, 400, 504, 408]


def cluster_told(kind: Kind, directory: Path) -> list[Any]:
    """What two nodes tell of requests whose service is at the other one, and where that is heard."""
    directory.mkdir()
    ports = [free_port(), free_port()]
    routes = tuple(f"nats://{HOST}:{port}" for port in ports)
    with ExitStack() as stack:
        nodes = []
        for number, port in enumerate(ports, start=1):
            (directory / str(number)).mkdir()
            made = Server(
                kind,
                directory=directory / str(number),
                name=f"n{number}",
                cluster="C",
                cluster_port=port,
                routes=routes,
                config=CONFIG,
                jetstream=False,
            )
            nodes.append(stack.enter_context(made))
        first, second = nodes
        first.running.wait_until(lambda: first.get("/routez")[1]["num_routes"] > 0, what="a route")
        told = []
        for metrics in nodes:
            pair = Pair.open(stack, second, first, metrics)
            while True:  # until the first node has heard of the service
                pair.requester.publish("asked.serve", b"?", reply="back.1")
                if any(isinstance(event, Message) for event in pair.service.settle()):
                    break
            pair.requester.settle()
            for subject in ("all.serve", "short.serve"):
                pair.serve(subject)
                told.append(pair.metric())
            for each in (pair.service, pair.requester, pair.metrics):
                each.close()
    return told


def test_of_a_service_at_another_node_both_nodes_make_one_metric(tmp_path: Path) -> None:
    theirs, ours = (cluster_told(kind, tmp_path / kind) for kind in KINDS)
    for one, other in zip(theirs, ours, strict=True):
        assert other == one
    assert ours[0]["responder"]["name"] == "service"
    assert ours[0]["responder"]["cluster"] == "C"


def test_an_answer_without_a_sample_has_the_usual_subject(alone: Server) -> None:
    with ExitStack() as stack:
        pair = Pair.open(stack, alone, alone, alone)
        replies = []
        for subject in ("asked.serve", "all.serve"):
            pair.requester.publish(subject, b"?", reply="back.1")
            replies.append(received(pair.service).reply)
        assert [reply.endswith(".T") for reply in replies] == [False, True]


def test_tokens_name_latencies(tmp_path: Path) -> None:
    operator = TokenOperator()
    latency = {"sampling": 100, "results": "lat.all"}
    exporter = operator.account(
        "E", exports=[{"name": "s", "type": "service", "subject": "all.*", "service_latency": latency}]
    )
    importer = operator.account(
        "I", imports=[{"name": "s", "type": "service", "subject": "all.*", "account": exporter.key}]
    )
    told = []
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        config = operator.config(exporter, importer)
        with Server(kind, directory=tmp_path / kind, config=config, jetstream=False) as server, ExitStack() as stack:
            service, metrics, requester = (
                with_token(stack, server, account.user()) for account in (exporter, exporter, importer)
            )
            pair = Pair(service, requester, metrics)
            metrics.subscribe("lat.>")
            service.subscribe("all.serve")
            requester.subscribe("back.>")
            for each in (metrics, service, requester):
                each.settle()
            pair.serve("all.serve")
            told.append(pair.metric())
    assert list(told[1]) == list(told[0])
    assert told[1]["status"] == told[0]["status"] == 200
