"""Traces in the plane: who is named, who is left alone, and what peers are sent."""

import gc
import json
from typing import Any

import pytest

from jetraft.api.credentials.verdicts import Verdict
from jetraft.api.options.options import AccountOptions, Options
from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.connect import ConnectOptions
from jetraft.api.sessions.session import ServerIdentity, Session, Sessions
from jetraft.api.traces.tracing import EVENTS_MAX, NOT_UNDERSTOOD, SILENT, Tracer
from jetraft.store.model.clock import ManualClock
from tests.api.plane.test_plane import feed_all

DEST, ONLY = b"Nats-Trace-Dest: tr", b"Nats-Trace-Only: true"
PARENT = b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Node:
    """A plane that traces."""

    def __init__(self, name: str = "n1", *, trace_dest: str = "", sampling: int = 100) -> None:
        account = AccountOptions(name="$G", trace_dest=trace_dest, trace_sampling=sampling)
        options = Options(accounts=(account,) if trace_dest else ())
        identity = ServerIdentity(server_id="N" + name, server_name=name)
        self.sessions = Sessions(options, identity, ManualClock())
        self.tracer = Tracer(self.sessions)
        self.plane = Plane(
            max_payload=1 << 20,
            max_control_line=4096,
            max_pending=64 << 20,
            max_subscriptions=0,
            connect_handler=lambda _cid, text: ConnectOptions(
                verbose=False, headers=True, echo=b"noecho" not in (text or b""), no_responders=True
            ),
            first_ping_handler=lambda _cid: b"",
            violation_handler=lambda _cid, _kind, _subject, _queue, _sid: b"",
            trace_handler=self.tracer,
        )
        self.plane.trace_external(bool(trace_dest))

    def client(self, *lines: bytes, connect: bytes = b"{}") -> int:
        cid = self.plane.open(-1, b"")
        options = ConnectOptions(name=f"c{cid}")
        self.sessions.add(Session(cid, "127.0.0.1", 1, 0, options=options, verdict=Verdict()))
        self.plane.feed(cid, b"CONNECT " + connect + b"\r\n" + b"".join(line + b"\r\n" for line in lines))
        self.plane.take(cid)
        return cid

    def publish(self, cid: int, subject: bytes, *headers: bytes, reply: bytes = b"") -> None:
        block = b"NATS/1.0\r\n" + b"".join(header + b"\r\n" for header in headers) + b"\r\n"
        self.plane.feed(cid, b"HPUB %s %s %d %d\r\n%sx\r\n" % (subject, reply, len(block), len(block) + 1, block))
        self.plane.run_sinks()


def traces(node: Node, cid: int) -> list[dict[str, Any]]:
    """The traces that wait for a client."""
    return [json.loads(line) for line in node.plane.take(cid).split(b"\r\n") if line.startswith(b"{")]


def receivers(trace: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Type, name and error of the events after the first."""
    return [(event["type"], event.get("name"), event.get("error", "")) for event in trace["events"][1:]]


def linked(one: Node, other: Node, *, understands: bool = True) -> tuple[int, int]:
    """Routes between two nodes, each told of the other's interest."""
    there, back = one.plane.open_route("n2"), other.plane.open_route("n1")
    for node, route in ((one, there), (other, back)):
        if understands:
            node.plane.open_traces(route)
    for node, route in ((one, back), (other, there)):
        for _route, records in node.plane.take_routes():
            (other if node is one else one).plane.on_route(route, records)
    return there, back


def test_a_trace_only_reaches_no_client_and_no_sink() -> None:
    node = Node()
    batches: list[bytes] = []
    node.plane.add_sink(node.plane.account("$G"), b"foo", batches.append)
    watcher, receiver = node.client(b"SUB tr 1"), node.client(b"SUB foo 1", b"SUB foo q 2")
    node.publish(receiver, b"foo", DEST, ONLY)
    node.plane.run_sinks()
    assert node.plane.take(receiver) == b""
    assert batches == []
    (trace,) = traces(node, watcher)
    assert receivers(trace) == [("eg", "c2", ""), ("eg", "c2", "")]
    assert trace["events"][-1]["queue"] == "q"


def test_a_traced_message_is_delivered_as_it_is() -> None:
    node = Node()
    watcher, receiver = node.client(b"SUB tr 1"), node.client(b"SUB foo 1")
    node.publish(receiver, b"foo", DEST, b"A: b")
    assert b"Nats-Trace-Dest: tr\r\nA: b\r\n\r\nx\r\n" in node.plane.take(receiver)
    assert receivers(traces(node, watcher)[0]) == [("eg", "c2", "")]


def test_a_stream_gets_what_is_for_a_trace_only_with_the_number_of_its_trace() -> None:
    from jetraft.cluster.streams.publishing.candidate import Candidate  # noqa: PLC0415

    node = Node()
    batches: list[bytes] = []
    sink = node.plane.add_sink(node.plane.account("$G"), b"foo", batches.append)
    node.plane.trace_sink(sink, "S")
    watcher = node.client(b"SUB tr 1")

    def handle(batch: bytes) -> None:
        batches.append(batch)

    node.publish(watcher, b"foo", DEST, ONLY)
    node.publish(watcher, b"foo", DEST)
    only, stored = (Candidate.at(batch, 0) for batch in batches)
    assert (only.trace, only.is_trace_only, stored.trace, stored.is_trace_only) == (0, True, 0, False)
    assert b"trace disabled" in stored.hdr
    assert [trace["events"][1]["stream"] for trace in traces(node, watcher)] == ["S", "S"]


def test_what_the_leader_says_is_part_of_the_trace() -> None:
    node = Node()
    plane = node.plane

    def settle(_batch: bytes) -> None:
        plane.settle_trace(0, "S", subject="foo", no_interest=False, error="no room")
        plane.settle_trace(7, "S", subject="foo", no_interest=False, error="of no trace")

    plane.trace_sink(plane.add_sink(plane.account("$G"), b"foo", settle), "S")
    watcher = node.client(b"SUB tr 1")
    node.publish(watcher, b"foo", DEST)
    assert receivers(traces(node, watcher)[0]) == [("js", None, "no room")]


def test_a_trace_to_nobody_is_answered_like_any_message() -> None:
    node = Node()
    cid = node.client(b"SUB in 1")
    node.publish(cid, b"nobody", DEST, ONLY, reply=b"in")
    assert b"503" in node.plane.take(cid)


def test_a_message_is_traced_on_every_node_with_its_hop() -> None:
    one, two = Node("n1"), Node("n2")
    receiver = two.client(b"SUB foo 1")
    watcher = one.client(b"SUB tr 1")
    there, back = linked(one, two)
    one.publish(watcher, b"foo", DEST, ONLY)
    for _route, records in one.plane.take_routes():
        two.plane.on_route(back, records)
    two.plane.run_sinks()
    assert two.plane.take(receiver) == b""
    for _route, records in two.plane.take_routes():
        one.plane.on_route(there, records)
    first, second = traces(one, watcher)
    assert (first["hops"], receivers(first)) == (1, [("eg", "n2", "")])
    assert second["request"]["header"]["Nats-Trace-Hop"] == ["1"]
    assert (second["events"][0]["kind"], second["events"][0]["name"]) == (1, "n1")
    assert receivers(second) == [("eg", "c1", "")]


@pytest.mark.parametrize(("headers", "error"), [((DEST, ONLY), NOT_UNDERSTOOD), ((DEST,), SILENT)])
def test_an_older_peer_gets_nothing_that_is_for_a_trace_only(headers: tuple[bytes, ...], error: str) -> None:
    one, two = Node("n1"), Node("n2")
    two.client(b"SUB foo 1")
    watcher = one.client(b"SUB tr 1")
    linked(one, two, understands=False)
    one.plane.take_routes()
    one.publish(watcher, b"foo", *headers)
    assert bool(one.plane.take_routes()) == (ONLY not in headers)
    assert receivers(traces(one, watcher)[0]) == [("eg", "n2", error)]


def test_a_parent_is_traced_where_the_account_says_so() -> None:
    for dest, sampling, count in (("tr", 100, 1), ("", 100, 0), ("other", 100, 0)):
        node = Node(trace_dest=dest, sampling=sampling)
        watcher = node.client(b"SUB tr 1")
        node.publish(watcher, b"foo", PARENT)
        assert len(traces(node, watcher)) == count


def test_what_is_not_sampled_is_not_traced_elsewhere_either() -> None:
    node = Node(trace_dest="tr", sampling=1)
    node.tracer.rng.seed(1)
    watcher, receiver = node.client(b"SUB tr 1"), node.client(b"SUB foo 1")
    for _ in range(200):
        node.publish(watcher, b"foo", PARENT)
    count = len(traces(node, watcher))
    assert 0 < count < 20
    assert node.plane.take(receiver).count(b"trace disabled") == 200 - count


def test_a_bad_destination_is_logged_and_a_trace_only_dropped(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    receiver = node.client(b"SUB foo 1")
    node.publish(receiver, b"foo", b"Nats-Trace-Dest: a.*", ONLY)
    assert node.plane.take(receiver) == b""
    node.publish(receiver, b"foo", b"Nats-Trace-Dest: a.*")
    assert node.plane.take(receiver) != b""
    assert (
        caplog.messages
        == ['127.0.0.1:1 - cid:1 - "c1" - Destination "a.*" is not valid, won\'t be able to trace events'] * 2
    )


def test_traces_keep_nothing_after_their_turn() -> None:
    node = Node()
    watcher = node.client(b"SUB tr 1")
    node.publish(watcher, b"foo", DEST)
    node.plane.take(watcher)
    gc.collect()
    assert not [item for item in gc.get_objects() if type(item).__name__ == "Trace"]


def test_the_events_of_a_turn_are_bounded_and_the_next_turn_has_its_own(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    watcher = node.client(b"SUB tr 1")
    receiver = node.client()
    feed_all(node.plane, receiver, b"".join(b"SUB foo %d\r\n" % sid for sid in range(1000)))
    block = b"NATS/1.0\r\n" + DEST + b"\r\n" + ONLY + b"\r\n\r\n"
    message = b"HPUB foo %d %d\r\n%s\r\n" % (len(block), len(block), block)
    for _ in range(2):
        node.plane.feed(receiver, message * 20)  # fewer than a turn takes of a connection
        node.plane.run_sinks()
        found = traces(node, watcher)
        assert 0 < len(found) <= EVENTS_MAX // 1000
        assert all(len(trace["events"]) == 1001 for trace in found)
    assert node.plane.take(receiver) == b""
    assert "Too many message traces at a time" in caplog.messages[0]


@pytest.mark.parametrize("spoke", [False, True])
def test_a_leaf_node_chooses_no_destination_of_other_nodes(spoke: bool) -> None:  # noqa: FBT001
    one, other = Node("n1"), Node("n2")
    watcher, receiver = other.client(b"SUB tr 1"), other.client(b"SUB foo 1")
    near = one.client(b"SUB foo 1")
    there, back = linked(one, other)
    leaf = one.plane.open_leaf(-1, solicited=spoke)
    assert one.plane.admit_leaf(
        leaf, account="$G", cluster=b"leaf", spoke=spoke, isolated=False, headers=True, permissions=None
    )
    for lines, count in (((DEST,), 1), ((DEST, ONLY), 0)):
        block = b"NATS/1.0\r\n" + b"\r\n".join(lines) + b"\r\n\r\n"
        one.plane.feed(leaf, b"HMSG foo %d %d\r\n%s\r\n" % (len(block), len(block), block))
        for _route, records in one.plane.take_routes():
            other.plane.on_route(back, records)
        other.plane.run_sinks()
        assert one.plane.take(near).count(b"trace disabled") == count
        assert other.plane.take(receiver).count(b"HMSG") == (0 if spoke else count)
        assert traces(other, watcher) == []
    assert there
