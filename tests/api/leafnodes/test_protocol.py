"""What a hub says to a leaf node that is a socket: jetraft and nats-server side by side."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.leafs import RawLeaf
from tests.harness.ports import HOST, free_port
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
CONFIG = """
jetstream {{ domain: hub }}
accounts {{ A {{ users: [{{user: a, password: pa}}] }} }}
leafnodes {{ host: "{host}", port: {port}, authorization {{ user: u, password: "p p", account: A }}, {more} }}
"""
LEAF = {
    "user": "u",
    "password": "p p",
    "name": "raw",
    "cluster": "raw",
    "headers": True,
    "remote_account": "R",
    "version": "2.15.1",
    "domain": "raw",
}
FIELDS = ("server_name", "version", "host", "port", "headers", "auth_required", "max_payload", "jetstream", "domain",
          "api_lvl", "info_on_connect", "leafnode_urls", "tls_required", "ip")  # fmt: skip


class Hub(Server):
    """A hub, and the port for its leaf nodes."""

    leaf_port: int

    def leaf(self, **fields: object) -> RawLeaf:
        return RawLeaf(self.leaf_port, **{**LEAF, **fields})

    def admitted(self, **fields: object) -> RawLeaf:
        leaf = self.leaf(**fields)
        leaf.until("LS+ $LDS.")
        leaf.lines()
        return leaf

    def client(self) -> RawClient:
        client = RawClient(self.address, connect=False)
        client.connect(**{"user": "a", "pass": "pa"})
        return client


@pytest.fixture(scope="module", params=["jetraft", "reference"])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    kind: Kind = request.param
    port = free_port()
    config = CONFIG.format(host=HOST, port=port, more="min_version: 2.9.5")
    server = Hub(kind, directory=tmp_path_factory.mktemp("hub"), name="hub", config=config)
    server.leaf_port = port
    with server:
        yield server


def test_the_greeting_and_the_admission(hub: Hub) -> None:
    with hub.leaf() as leaf:
        wanted = {
            "server_name": "hub", "version": "2.15.1", "host": HOST, "port": hub.leaf_port, "headers": True,
            "auth_required": True, "max_payload": 1 << 20, "jetstream": True, "domain": "hub", "api_lvl": 5,
            "info_on_connect": True, "leafnode_urls": [f"{HOST}:{hub.leaf_port}"],
            "ip": f"{HOST}:{hub.leaf_port}",
        }  # fmt: skip
        assert {key: leaf.info[key] for key in FIELDS if key in leaf.info} == wanted
        assert leaf.info["nonce"]
        lines = [*leaf.until("LS+ $LDS."), *leaf.lines()]
        assert '"connect_info":true' in lines[0]
        assert '"remote_account":"A"' in lines[0]
        assert "nonce" not in lines[0]
        told = {line for line in lines if line.startswith("LS+ $JS.hub.API.")}
        names = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>", "$KV.>", "$OBJ.>")
        assert told == {f"LS+ $JS.hub.API.{name}" for name in names}


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b'CONNECT {"user":"u","pass":"wrong","name":"x"}\r\n', ["-ERR 'Authorization Violation'"]),
        (b'CONNECT {"user":"a","pass":"pa","name":"x"}\r\n', ["-ERR 'Authorization Violation'"]),
        (b"CONNECT {}\r\n", ["-ERR 'Authorization Violation'"]),
        (b"LS+ foo\r\n", ["-ERR 'Authorization Violation'"]),
        (b"PING\r\n", ["-ERR 'Authorization Violation'"]),
        (b"LMSG a 1\r\nx\r\n", ["-ERR 'Authorization Violation'"]),
        (b"CONNECT {\r\n", []),
    ],
)
def test_who_is_not_known_is_refused(hub: Hub, line: bytes, answer: list[str]) -> None:
    with RawLeaf(hub.leaf_port) as leaf:
        leaf.send(line)
        assert [getattr(event, "text", "") for event in leaf.rest()] == answer
        assert leaf.closed


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"LS+ a Q\r\n", []),
        (b"LS+ a b c d\r\n", []),
        (b"LMSG a\r\n", []),
        (b"LMSG a b c d e 0\r\n\r\n", []),
        (b"LMSG foo 2000000\r\n", ["-ERR 'Maximum Payload Violation'"]),
    ],
)
def test_bad_lines_end_the_connection(hub: Hub, line: bytes, answer: list[str]) -> None:
    with hub.admitted() as leaf:
        leaf.send(line)
        texts = [getattr(event, "text", "") for event in leaf.rest()]
        assert [text for text in texts if text != "PING"] == answer
        assert leaf.closed


def test_an_invalid_subject_is_refused_and_the_connection_stays(hub: Hub) -> None:
    with hub.admitted() as leaf:
        leaf.send(b"LS+ foo..bar\r\n")
        assert leaf.lines() == ["-ERR 'Invalid Subscription'"]


def test_jetstream_without_a_domain_stays_at_each_side(hub: Hub) -> None:
    with hub.admitted() as leaf, hub.client() as client:
        inbox = client.new_inbox()
        client.subscribe(inbox)
        client.settle()
        leaf.send(b"LS+ $JS.API.>\r\nLS+ $KV.>\r\nLS+ ok\r\nLMSG $JS.API.INFO %s 0\r\n\r\n" % inbox.encode())
        leaf.lines()
        client.publish("$JS.API.INFO", reply="nowhere")
        client.publish("$KV.b.k", b"x")
        client.publish("$OBJ.b.k", b"x")
        client.publish("ok", b"y")
        lines = leaf.until("LMSG ok")
        assert [line for line in lines if line.startswith(("LMSG", "HMSG"))] == ["LMSG ok 1"]
        assert not [event for event in client.settle() if getattr(event, "subject", "") == inbox]


def test_the_older_of_two_connections_of_a_server_is_closed(hub: Hub) -> None:
    with hub.admitted() as old, hub.admitted(name="other") as other, hub.admitted() as new:
        assert "-ERR 'Duplicate Remote LeafNode Connection'" in [getattr(event, "text", "") for event in old.rest()]
        assert old.closed
        for leaf in (new, other):
            leaf.send(b"LS+ alive\r\n")
            assert leaf.lines() in ([], ["LS+ alive"])
            assert not leaf.closed


def test_the_loop_check_of_the_hub_itself_means_a_loop(hub: Hub) -> None:
    with hub.leaf() as leaf:
        own = leaf.until("LS+ $LDS.")[-1]
        leaf.send(own.encode() + b"\r\n")
        texts = [getattr(event, "text", "") for event in leaf.rest()]
        assert any(text.startswith('-ERR \'Loop detected for leafnode account="A".') for text in texts)
        assert leaf.closed


def test_a_client_is_told_that_this_is_not_its_port(hub: Hub) -> None:
    with hub.leaf(lang="python") as leaf:
        texts = [getattr(event, "text", "") for event in leaf.rest()]
        assert "-ERR 'attempted to connect to leaf node port'" in texts
        assert leaf.closed


def test_an_old_leaf_node_is_refused(hub: Hub) -> None:
    with hub.leaf(version="2.9.4") as leaf:
        texts = [getattr(event, "text", "") for event in leaf.rest()]
        assert texts[-1] == "-ERR 'connection rejected since minimum version required is \"2.9.5\"'"


PERMITTED = """
cluster {{ name: C, listen: "{host}:{cluster}", routes: ["nats://{host}:{cluster}"] }}
authorization {{ users: [ {{user: u, password: "p p", permissions: {{
    publish: {{allow: ["p.>"], deny: "p.no"}}, subscribe: {{allow: "s.>"}} }} }} ] }}
leafnodes {{ host: "{host}", port: {port} }}
"""


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_the_permissions_of_a_user_are_those_of_its_leaf_node(kind: Kind, tmp_path: Path) -> None:
    port = free_port()
    config = PERMITTED.format(host=HOST, port=port, cluster=free_port())
    server = Hub(kind, directory=tmp_path, name="hub", config=config)
    server.leaf_port = port
    with server:
        with server.leaf(cluster="C") as leaf:
            assert [getattr(event, "text", "") for event in leaf.rest()] == [
                "-ERR 'remote leafnode has same cluster name'"
            ]
        with server.leaf() as leaf:
            info = json.loads(leaf.until("INFO")[-1].removeprefix("INFO "))
            assert (info["import"], info["export"]) == ({"allow": ["s.>"]}, {"allow": ["p.>"], "deny": ["p.no"]})
        for line, text in (
            (b"LMSG p.no 0\r\n\r\n", "-ERR 'Permissions Violation for Publish to \"p.no\"'"),
            (b"LMSG q 0\r\n\r\n", "-ERR 'Permissions Violation for Publish to \"q\"'"),
            (b"LS+ t.a\r\n", "-ERR 'Permissions Violation for Subscription to \"t.a\"'"),
        ):
            with server.admitted() as leaf:
                leaf.send(b"LS+ s.a\r\nLMSG p.a 0\r\n\r\n")
                assert leaf.lines() == []
                leaf.send(line)
                assert text in [getattr(event, "text", "") for event in leaf.rest()]
                assert leaf.closed


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_a_user_of_clients_comes_into_its_own_account(kind: Kind, tmp_path: Path) -> None:
    port = free_port()
    accounts = "accounts {\nA { users: [{user: a, password: pa}] }\nB { users: [{user: b, password: pb}] }\n}"
    config = f'{accounts}\nleafnodes {{ host: "{HOST}", port: {port}, authorization {{ account: A }} }}'
    with Server(kind, directory=tmp_path, config=config), RawLeaf(port, **{**LEAF, "user": "b", "pass": "pb"}) as leaf:
        assert '"remote_account":"B"' in leaf.until("LS+ $LDS.")[0]


@pytest.mark.parametrize("kind", ["jetraft", pytest.param("reference", marks=pytest.mark.reference)])
def test_a_hub_without_users_wants_to_hear_a_name_too(kind: Kind, tmp_path: Path) -> None:
    port = free_port()
    with Server(kind, directory=tmp_path, config=f'leafnodes {{ listen: "{HOST}:{port}" }}'), RawLeaf(port) as leaf:
        assert leaf.info["auth_required"] is True
