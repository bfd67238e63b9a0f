"""Permissions of routes: what a node with them takes and gives in a cluster, on both servers; JetStream needs none."""

import json
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.monitored import KINDS
from tests.harness.cluster import Cluster
from tests.harness.patience import until
from tests.harness.ports import HOST, free_port
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
PERMISSIONS: Final = """{
    import: { allow: ["foo.>", "mark.>"], deny: ["foo.no"] }
    export: { allow: ["bar.>", "x.*", "mark.>"], deny: ["bar.no"] }
}"""
MARK: Final = "mark."  # both directions let it through: what was sent before it has come, or will not
# a subscription, its queue, what is published on the other node, and whether it comes
TO_THE_NODE: Final = (  # the wildcards first: interest in what they reach may outlast its row
    (">", "", "foo.a", False),
    ("*.a", "", "foo.a", False),
    ("foo.a", "", "foo.a", True),
    ("foo.no", "", "foo.no", False),
    ("foo.no", "q", "foo.no", False),
    ("foo.>", "", "foo.a", True),
    ("foo.>", "", "foo.no", True),  # interest in it was not told, but that below the wildcard was
    ("foo.*", "q", "foo.no", True),
    ("bar.a", "", "bar.a", False),
)
FROM_THE_NODE: Final = (
    (">", "", "bar.a", False),
    ("bar.a", "", "bar.a", True),
    ("bar.no", "", "bar.no", False),
    ("bar.>", "", "bar.a", True),
    ("bar.>", "", "bar.no", False),  # what is denied is kept back from wildcards
    ("bar.*", "q", "bar.no", False),
    ("bar.*", "q", "bar.a", True),
    ("x.*", "", "x.a", True),
    ("foo.a", "", "foo.a", False),
)


@contextmanager
def pair(kind: Kind, directory: Path, permissions: str) -> Iterator[tuple[Server, Server]]:
    """A node with permissions of routes, and one without."""
    ports = [free_port(), free_port()]
    nodes = []
    for name, port, other, given in zip(("a", "b"), ports, reversed(ports), (permissions, ""), strict=True):
        config = f"server_name: {name}\n" + cluster_block(port, other, given)
        nodes.append(Server(kind, directory=directory / name, name=name, config=config, jetstream=False))
    with nodes[0] as first, nodes[1] as second:
        first.running.wait_until(lambda: all(map(routes_of, nodes)), what="the nodes are linked")
        yield first, second


def cluster_block(port: int, other: int, permissions: str) -> str:
    """The block of a node; `permissions` may be empty."""
    given = f"permissions: {permissions}" if permissions else ""
    secret = "authorization { user: u, password: p }"
    return (
        f'cluster {{ name: C, listen: "{HOST}:{port}", routes: ["nats://u:p@{HOST}:{other}"]\n{given}\n{secret}\n }}\n'
    )


def routes_of(node: Server) -> int:
    _, page = node.get("/routez")
    return int(page["num_routes"]) if page else 0


def comes(publisher: RawClient, subscriber: RawClient, row: tuple[str, str, str, bool]) -> bool:
    """Whether a message comes over the route. Interest in the mark gets around behind that in the subject.

    The first mark that comes says that both have; only what is published after it shows anything.
    """
    subject, queue, published, _ = row
    last = MARK + secrets.token_hex(4)
    sid, mark = subscriber.subscribe(subject, queue), subscriber.subscribe(last)
    subscriber.settle()
    marks = 0
    while marks < 2:
        publisher.publish(published)
        publisher.publish(last)
        publisher.settle()
        marks += len(subscriber.messages(mark, 1, timeout_s=0.05))
    found = any(message.subject == published for message in subscriber.messages(sid, 0))
    subscriber.send(f"UNSUB {sid}\r\nUNSUB {mark}\r\n".encode())
    subscriber.settle()
    return found


def is_as_told(publisher: RawClient, subscriber: RawClient, row: tuple[str, str, str, bool]) -> bool:
    """Whether a message comes over the route if it is to come."""
    return comes(publisher, subscriber, row) is row[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_interest_that_is_not_permitted_is_neither_told_nor_believed(kind: Kind, tmp_path: Path) -> None:
    with (
        pair(kind, tmp_path, PERMISSIONS) as (node, other),
        RawClient(node.address) as here,
        RawClient(other.address) as there,
    ):
        for row in TO_THE_NODE:
            assert comes(there, here, row) is row[-1], row
        for row in FROM_THE_NODE:
            assert comes(here, there, row) is row[-1], row
        _, own = node.get("/routez")
        _, others = other.get("/routez")
    shown = {
        "import": {"allow": ["foo.>", "mark.>"], "deny": ["foo.no"]},
        "export": {"allow": ["bar.>", "x.*", "mark.>"], "deny": ["bar.no"]},
    }
    assert permissions_in(own) == shown
    assert permissions_in(others) == {}
    assert permissions_in(others["routes"][0]) == shown


def permissions_in(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("import", "export") if key in found}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reload_tells_and_believes_by_the_new_permissions(kind: Kind, tmp_path: Path) -> None:
    with (
        pair(kind, tmp_path, PERMISSIONS) as (node, other),
        RawClient(node.address) as here,
        RawClient(other.address) as there,
    ):
        sids = {name: (here.subscribe(f"foo.{name}"), there.subscribe(f"bar.{name}")) for name in ("a", "no")}
        here.settle()
        there.settle()
        old = (node.directory / "server.conf").read_text(encoding="utf-8")
        turned = old.replace('allow: ["foo.>", "mark.>"], deny: ["foo.no"]', 'allow: ["foo.no", "mark.>"]')
        turned = turned.replace('allow: ["bar.>", "x.*", "mark.>"], deny: ["bar.no"]', 'allow: ["bar.no", "mark.>"]')
        assert turned.count("deny") == 0
        (node.directory / "server.conf").write_text(turned, encoding="utf-8")
        node.running.signal(signal.SIGHUP)
        node.running.wait_for_line("Reloaded: cluster", timeout_s=20)
        # The line is in the log before the peer has heard what is taken back.
        for row in (("foo.x", "", "foo.x", False), ("foo.no", "", "foo.no", True)):
            until(partial(is_as_told, there, here, row))
        for row in (("bar.x", "", "bar.x", False), ("bar.no", "", "bar.no", True)):
            until(partial(is_as_told, here, there, row))
        there.publish("foo.a")
        here.publish("bar.a")
        assert comes(there, here, ("foo.no", "", "foo.no", True))
        assert comes(here, there, ("bar.no", "", "bar.no", True))
        assert not here.messages(sids["a"][0], 0), "what was told before is taken back"
        assert not there.messages(sids["a"][1], 0), "what was believed before is forgotten"
        assert here.messages(sids["no"][0], 1)
        assert there.messages(sids["no"][1], 1), "what may be believed only now is told again"


@pytest.mark.parametrize(
    ("permissions", "text"),
    [
        ("{ import: foo, allow_responses: true }", "Cluster permissions do not support dynamic responses"),
        ('{ export: ["foo q"] }', 'cluster export allow: subject "foo q" is not a valid subject'),
        ('{ export: { deny: "foo q" } }', 'cluster export deny: subject "foo q" is not a valid subject'),
        ('{ import: "foo..x" }', 'subject "foo..x" is not a valid subject'),
        ("{ import: foo, nope: 1 }", 'Unknown field "nope" parsing permissions'),
        ('"foo"', "Expected permissions to be a map/struct, got foo"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_permissions_are_refused(kind: Kind, permissions: str, text: str, tmp_path: Path) -> None:
    config = cluster_block(free_port(), free_port(), permissions)
    server = Server(kind, directory=tmp_path, config=config, jetstream=False)
    with pytest.raises(ServerFailed) as failed:
        server.start()
    assert text in str(failed.value)


def test_streams_and_the_api_work_with_any_permissions_of_routes(tmp_path: Path) -> None:
    config = 'cluster { permissions { import: "no.thing", export: "no.thing" } }\n'
    with Cluster("jetraft", directory=tmp_path, config=config) as cluster:
        for number, node in enumerate(cluster):
            with RawClient(node.address) as client:
                created = client.api(
                    f"STREAM.CREATE.S{number}",
                    {"name": f"S{number}", "subjects": [f"s{number}.>"], "num_replicas": 3},
                )
                assert "error" not in created, created
        with RawClient(cluster[0].address) as client:
            assert len(client.api("STREAM.NAMES")["streams"]) == len(cluster.nodes)
            for number in range(len(cluster.nodes)):
                assert client.api(f"STREAM.INFO.S{number}")["config"]["num_replicas"] == len(cluster.nodes)
                leader = cluster.named(client.api(f"STREAM.INFO.S{number}")["cluster"]["leader"])
                with RawClient(leader.address) as at_the_leader:
                    answer = at_the_leader.acknowledged(f"s{number}.x", b"1")
                assert answer["seq"] == 1, json.dumps(answer)
