"""Connecting to hubs: again, at other addresses, in other roles; and what ends a connection. Hubs here are sockets."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.reload.test_reload import REFUSED, reload
from tests.harness.leafs import PAIR_IDS, PAIRS, PROBE, block, joined, listener, wait_interest
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

GREETING: dict[str, Any] = {
    "server_id": "NHUB", "server_name": "fake", "version": "2.15.1", "proto": 3, "headers": True, "max_payload": 1024,
    "client_id": 1, "info_on_connect": True, "leafnode_urls": [],
}  # fmt: skip


class FakeHub:
    """Accepts leaf nodes one after the other."""

    def __init__(self) -> None:
        self.sock = socket.create_server((HOST, free_port()))
        self.sock.settimeout(PATIENCE_S)
        self.port: int = self.sock.getsockname()[1]
        self.peer: socket.socket | None = None
        self.buffer = b""

    def accept(self, **fields: Any) -> None:
        """Take the next connection and greet it."""
        self.close_peer()
        self.peer, _ = self.sock.accept()
        self.peer.settimeout(PATIENCE_S)
        self.buffer = b""
        if fields.get("silent"):
            return
        self.send(b"INFO " + json.dumps({**GREETING, **fields}).encode() + b"\r\n")

    def send(self, data: bytes) -> None:
        assert self.peer is not None
        self.peer.sendall(data)

    def some(self) -> bytes:
        """What comes next, whatever it is; empty when the connection has ended."""
        assert self.peer is not None
        try:
            return self.peer.recv(65536)
        except ConnectionResetError:
            return b""

    def rest(self) -> bytes:
        """All that comes until the connection ends."""
        found = b""
        while data := self.some():
            found += data
        return found

    def line(self) -> bytes:
        """The next line; empty when the connection has ended."""
        assert self.peer is not None
        while b"\r\n" not in self.buffer:
            data = self.peer.recv(65536)
            if not data:
                return b""
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def until(self, start: bytes) -> list[bytes]:
        """The lines up to one that begins like this, or to the end."""
        lines = [self.line()]
        while lines[-1] and not lines[-1].startswith(start):
            lines.append(self.line())
        return lines

    def admit(self, **fields: Any) -> None:
        self.send(b"INFO " + json.dumps({**GREETING, "connect_info": True, **fields}).encode() + b"\r\n")

    def close_peer(self) -> None:
        if self.peer is not None:
            self.peer.close()

    def close(self) -> None:
        self.close_peer()
        self.sock.close()


@contextmanager
def leaf_of(directory: Path, remote: str, kind: Kind = "jetraft", more: str = "") -> Iterator[Server]:
    config = "jetstream { domain: leaf }\n" + more + block(f'reconnect: "50ms"\nremotes: [ {{ {remote} }} ]')
    with Server(kind, directory=directory, name="edge", config=config) as server:
        yield server


@pytest.fixture
def hubs() -> Iterator[list[FakeHub]]:
    with ExitStack() as stack:
        found = [FakeHub(), FakeHub()]
        for hub in found:
            stack.callback(hub.close)
        yield found


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_what_a_leaf_node_says_to_its_hub(kind: Kind, hubs: list[FakeHub], tmp_path: Path) -> None:
    with leaf_of(tmp_path, f'url: "nats://u:p%40@{HOST}:{hubs[0].port}"', kind):
        hubs[0].accept()
        connect = json.loads(hubs[0].line().removeprefix(b"CONNECT "))
        connect.pop("server_id")
        connect.pop("protocol")  # jetraft does not trace messages of leaf nodes
        assert connect == {
            "version": "2.15.1", "user": "u", "pass": "p@", "domain": "leaf", "name": "edge", "cluster": "edge",
            "headers": True, "jetstream": True, "compress_mode": "not supported", "remote_account": "$G",
        }  # fmt: skip
        hubs[0].admit(remote_account="X")
        told = {hubs[0].line().decode() for _ in range(10)}
        names = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>", "$KV.>", "$OBJ.>")
        wanted = {f"LS+ $JS.leaf.API.{name}" for name in names}
        while not wanted <= told:
            told.add(hubs[0].line().decode())
        hubs[0].send(b"PING\r\n")
        assert hubs[0].until(b"PONG")[-1] == b"PONG"


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_it_comes_again_also_to_addresses_that_the_hub_told(kind: Kind, hubs: list[FakeHub], tmp_path: Path) -> None:
    first, second = hubs
    with leaf_of(tmp_path, f'url: "nats://u:secret@{HOST}:{first.port}"', kind):
        first.accept(leafnode_urls=[f"{HOST}:{first.port}", f"{HOST}:{second.port}", "nonsense", "x:99999"])
        first.until(b"CONNECT")
        first.admit()
        first.until(b"LS+ $LDS.")
        first.close()
        second.accept()
        assert b'"pass":"secret"' in second.until(b"CONNECT")[-1]


def test_it_does_not_wait_for_a_hub_that_is_silent(hubs: list[FakeHub], tmp_path: Path) -> None:
    with leaf_of(tmp_path, f'url: "nats://{HOST}:{hubs[0].port}", first_info_timeout: "100ms"'):
        hubs[0].accept(silent=True)
        assert hubs[0].line() == b""
        hubs[0].accept()
        assert hubs[0].line().startswith(b"CONNECT ")


def test_a_server_that_is_no_hub_is_left(hubs: list[FakeHub], tmp_path: Path) -> None:
    with leaf_of(tmp_path, f'url: "nats://{HOST}:{hubs[0].port}"') as leaf:
        hubs[0].accept(client_ip=HOST, leafnode_urls=None)
        assert hubs[0].line() == b""
        leaf.running.wait_for_line("a port that is not one for leafnodes")


def test_an_address_that_refuses_is_reported_once(tmp_path: Path) -> None:
    port = free_port()
    with leaf_of(tmp_path, f'url: "nats://u:sesame@{HOST}:{port}"', more="debug: true\n") as leaf:
        refused = f"dial tcp {HOST}:{port}: connect: connection refused"
        leaf.running.wait_for_line(f"(attempt 3): {refused}")
        lines = [line for line in (tmp_path / "server.log").read_text().splitlines() if refused in line]
        assert [("[ERR]" in line, "sesame" in line) for line in lines[:3]] == [(True, False)] + 2 * [(False, False)]


def test_a_password_is_in_no_line_of_the_log(hubs: list[FakeHub], tmp_path: Path) -> None:
    with leaf_of(tmp_path, f'url: "nats://user:sesame@{HOST}:{hubs[0].port}"') as leaf:
        hubs[0].accept()
        assert b"sesame" in hubs[0].until(b"CONNECT")[-1]
        hubs[0].send(b"-ERR 'Authorization Violation'\r\n")
        leaf.running.wait_for_line("Leafnode Error 'Authorization Violation'")
        assert "sesame" not in (tmp_path / "server.log").read_text()
        assert "sesame" not in json.dumps(leaf.get("/varz")[1])


def test_what_the_hub_permits_is_kept(hubs: list[FakeHub], tmp_path: Path) -> None:
    with leaf_of(tmp_path, f'url: "nats://{HOST}:{hubs[0].port}"') as leaf, RawClient(leaf.address) as client:
        hubs[0].accept()
        hubs[0].until(b"CONNECT")
        hubs[0].admit(**{"export": {"deny": ["no.in"]}, "import": {"allow": ["yes.>", "$JS.>", "$LDS.>"]}})
        hubs[0].until(b"LS+ $LDS.")
        hubs[0].send(b"LS+ >\r\n")
        client.subscribe("other")
        client.subscribe("yes.a")
        wait_interest(client, "anything")
        client.publish("no.in", b"1")
        client.publish("fine", b"2")
        lines = hubs[0].until(b"LMSG fine")
        assert b"LS+ yes.a" in lines
        assert b"LS+ other" not in lines
        assert not any(line.startswith(b"LMSG no.in") for line in lines)


@pytest.mark.reference
@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_the_side_that_connects_may_be_the_hub(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    """`hub: true`: here `leaf` accepts nothing and is the hub all the same."""
    more = block(f'reconnect: "100ms"\nremotes: [ {{ url: "nats://{HOST}:LEAFPORT", hub: true }} ]')
    with joined(hub, leaf, tmp_path, leaf_more=more) as pair, pair.clients() as (accepted, connected):
        assert [row["is_spoke"] for row in pair.hub.get("/leafz")[1]["leafs"]] == [True]
        assert [row["is_spoke"] for row in pair.leaf.get("/leafz")[1]["leafs"]] == [False]
        sid = connected.subscribe("x")
        wait_interest(accepted, "x")
        accepted.publish("x", b"1")
        assert [m.payload for m in connected.messages(sid, 2) if m.payload != PROBE] == [b"1"]


@pytest.mark.reference
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=PAIR_IDS)
def test_servers_that_are_connected_in_a_loop_find_out(one: Kind, other: Kind, tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    servers = []
    for number, kind in enumerate((one, other)):
        (tmp_path / f"s{number}").mkdir()
        remotes = f'remotes: [ {{ url: "nats://{HOST}:{ports[1 - number]}" }} ]\nreconnect: "100ms"'
        config = f"jetstream {{ domain: d{number} }}\n" + listener(ports[number], remotes)
        servers.append(Server(kind, directory=tmp_path / f"s{number}", name=f"s{number}", config=config))
    with servers[0], servers[1]:
        logs = [server.directory / "server.log" for server in servers]
        servers[0].running.wait_until(
            lambda: any("Loop detected for leafnode account" in log.read_text() for log in logs),
            what="a loop was found",
            timeout_s=PATIENCE_S,
        )


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_a_reload_leaves_a_hub_and_goes_to_another(kind: Kind, hubs: list[FakeHub], tmp_path: Path) -> None:
    old, kept = hubs
    new = FakeHub()
    remotes = [f'{{ url: "nats://{HOST}:{hub.port}" }}' for hub in (old, kept, new)]
    name = "server_name: edge\n"  # nats-server forgets that of the command line
    config = name + block(f'reconnect: "50ms"\nremotes: [ {", ".join(remotes[:2])} ]')
    with closing(new), Server(kind, directory=tmp_path, name="edge", config=config) as edge:
        for hub in (old, kept):
            hub.accept()
            assert hub.until(b"CONNECT")[-1]
            hub.admit()
        done = reload(edge, name + block(f'reconnect: "50ms"\nremotes: [ {", ".join(remotes[1:])} ]'))
        new.accept()
        assert new.until(b"CONNECT")[-1]
        assert b"LS+" in old.rest()
        kept.send(b"PING\r\n")
        assert kept.until(b"PONG")[-1]
        title = f'LeafNode Remote urls=["nats://{HOST}:{old.port}"], account="$G" removed'
        assert "Reloaded server configuration" in done
        assert any(title in line for line in edge.running.lines)
        other = block(f'reconnect: "50ms"\nremotes: [ {remotes[1]} ]\nno_advertise: true')
        refused = reload(edge, name + other, REFUSED)
        assert refused.endswith('config reload not supported for LeafNode: field "NoAdvertise": old=false, new=true')
