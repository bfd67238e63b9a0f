"""Traces of messages that go on to other accounts, from both servers: services, streams, mappings; one node and two."""

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
KINDS: Final[tuple[Kind, Kind]] = ("reference", "jetraft")
CONFIG: Final = """
accounts {
  A { users [{user: a, password: x}], mappings { "m.one": "s.mapped" }
      exports [ {service: "s.*", allow_trace: true}, {service: "n.*"}, {service: "m.*", allow_trace: true}
                {stream: "st.>"}, {stream: "pre.>"}, {service: "ch.*", allow_trace: true}
                {service: "deep.*"} ] }
  B { users [{user: b, password: x}], mappings { "map.*": "mapped.$1", "tosvc": "s.x" }
      imports [ {service: {account: A, subject: "s.*"}}, {service: {account: A, subject: "n.*"}}
                {service: {account: A, subject: "m.*"}, to: "loc.*"}
                {stream: {account: A, subject: "st.>"}, allow_trace: true}
                {stream: {account: A, subject: "pre.>"}, prefix: "p"}
                {service: {account: C, subject: "cc.*"}, to: "chain.*"}
                {service: {account: C, subject: "dd.*"}, to: "deeper.*"} ] }
  C { users [{user: c, password: x}]
      imports [ {service: {account: A, subject: "ch.*"}, to: "cc.*"}
                {service: {account: A, subject: "deep.*"}, to: "dd.*"} ]
      exports [ {service: "cc.*", allow_trace: true}, {service: "dd.*", allow_trace: true} ] }
}
"""
RECEIVED: Final = {
    "a": ("s.a", "s.mapped", "n.a", "m.two", "st.x", "pre.x", "ch.a", "deep.a"),
    "b": ("st.>", "p.pre.>", "mapped.z"),
}
PUBLISHED: Final = (
    ("b", "s.a"),
    ("b", "n.a"),
    ("b", "loc.one"),
    ("b", "loc.two"),
    ("b", "s.nobody"),
    ("b", "map.z"),
    ("b", "tosvc"),
    ("a", "st.x"),
    ("a", "pre.x"),
    ("b", "chain.a"),
    ("b", "deeper.a"),
)
ONLY: Final = (("Nats-Trace-Only", "true"),)


def shown(message: Message) -> str:
    """A trace without ids and times, or a message with what it says of its trace."""
    if message.subject != "tr.1":
        dest = re.search(rb"Nats-Trace-Dest: (.*?)\r\n", message.hdr or b"")
        return f"{message.subject} {re.sub('_R_.*', '_R_', dest[1].decode()) if dest else ''}"
    found = json.loads(message.payload)
    events: list[dict[str, Any]] = found["events"]
    for event in events:
        for key in ("ts", "cid"):
            event.pop(key, None)
    return json.dumps([found["server"]["name"], found["request"]["msgsize"] > 0, *events])


def told(nodes: Sequence[Server], published: Sequence[tuple[str, str]]) -> dict[Any, list[str]]:
    """What each publish leads to; those that receive are at the last node, those that publish at the first."""
    found: dict[Any, list[str]] = {}
    with ExitStack() as stack:

        def client(user: str, node: Server) -> RawClient:
            login: dict[str, Any] = {"user": user, "pass": "x", "name": f"{user}{nodes.index(node)}"}
            return stack.enter_context(RawClient(node.address, **login))

        receivers = {user: client(user, nodes[-1]) for user in RECEIVED}
        publishers = {user: client(user, nodes[0]) for user in RECEIVED}
        for user, subjects in RECEIVED.items():
            publishers[user].subscribe("tr.1")
            publishers[user].settle()
            for subject in (*subjects, "ready"):
                receivers[user].subscribe(subject)
            receivers[user].settle()
            while not settled(publishers[user], receivers[user], "ready"):
                pass
        for user, subject in published:
            for more in ((), ONLY):
                publishers[user].publish(subject, b"x", headers=(("Nats-Trace-Dest", "tr.1"), *more))
                lines = found.setdefault((user, subject, more), [])
                while len([line for line in lines if line.startswith("[")]) < len(nodes):  # each tells what it did
                    event = publishers[user].next_event(PATIENCE_S)
                    assert event is not None, f"no trace of {subject}, only {lines}"
                    lines += [shown(event)] if isinstance(event, Message) and event.subject != "ready" else []
                for each in (*publishers.values(), *receivers.values()):
                    lines += heard(each)
    return {key: sorted(lines) for key, lines in found.items()}


def settled(publisher: RawClient, receiver: RawClient, subject: str) -> bool:
    """Whether a message has gone from one to the other; messages on the way are received."""
    publisher.publish(subject, b"")
    publisher.settle()
    return any(isinstance(event, Message) for event in receiver.settle())


def heard(client: RawClient) -> list[str]:
    return [shown(event) for event in client.settle() if isinstance(event, Message) and event.subject != "ready"]


def of_one(kind: Kind, directory: Path) -> dict[Any, list[str]]:
    directory.mkdir()
    with Server(kind, directory=directory, config=CONFIG, jetstream=False) as server:
        return told([server], PUBLISHED)


def test_both_tell_the_same_of_other_accounts(tmp_path: Path) -> None:
    theirs, ours = (of_one(kind, tmp_path / kind) for kind in KINDS)
    assert ours == theirs
    assert any('"si"' in line for line in ours["b", "s.a", ()])
    assert not any(line.startswith("s.a") for line in ours["b", "s.a", ONLY])


def of_two(kind: Kind, directory: Path) -> dict[Any, list[str]]:
    directory.mkdir()
    ports = [free_port(), free_port()]
    routes = tuple(f"nats://{HOST}:{port}" for port in ports)
    with ExitStack() as stack:
        nodes = []
        for number, port in enumerate(ports, start=1):
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
            (directory / str(number)).mkdir()
            nodes.append(stack.enter_context(made))
        first = nodes[0]
        first.running.wait_until(lambda: first.get("/routez")[1]["num_routes"] > 0, what="a route")
        return told(nodes, [("b", "s.a"), ("b", "chain.a"), ("a", "st.x")])


def test_the_events_of_another_node_find_their_way_back(tmp_path: Path) -> None:
    theirs, ours = (of_two(kind, tmp_path / kind) for kind in KINDS)
    assert ours == theirs
    assert any('"n2"' in line for line in ours["b", "s.a", ()])
