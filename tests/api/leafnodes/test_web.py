"""Leaf node connections over WebSocket, with jetraft at either end or at both, and through a proxy."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.web import Agreed, AnswerError, agreed
from jetraft.api.options.leafnodes import RemoteOptions, RemoteUrl
from jetraft.api.websocket.upgrade import DEFLATE_ANSWER, accept_of
from tests.harness.certificates import Authority
from tests.harness.leafs import PAIR_IDS, PAIRS, block, joined, real_messages, wait_interest
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
CASES = {
    "plain": ("", ""),
    "both": ("compression: true", "ws_compression: true\nws_no_masking: true"),
}


def hub_config(web: str, more: str = "") -> str:
    """A listener for WebSocket beside that for leaf nodes."""
    return f'{block(f"""host: "{HOST}", port: -1""")}{more}websocket {{\nhost: "{HOST}", port: LEAFPORT\n{web}\n}}\n'


def leaf_config(scheme: str, more: str, path: str = "") -> str:
    """A remote over WebSocket."""
    return block(f'reconnect: "100ms"\nremotes: [ {{ url: "{scheme}://{HOST}:LEAFPORT{path}"\n{more} }} ]')


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
@pytest.mark.parametrize("case", CASES)
def test_messages_cross_in_frames(case: str, hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    of_hub, of_leaf = CASES[case]
    path = "/a/b/" if case == "both" else ""
    configs = {"hub_more": hub_config(f"no_tls: true\n{of_hub}"), "leaf_more": leaf_config("ws", of_leaf, path)}
    with joined(hub, leaf, tmp_path, **configs) as pair, pair.clients() as (centre, edge):
        for receiver, sender in ((centre, edge), (edge, centre)):
            sid = receiver.subscribe("big.*")
            wait_interest(sender, "big.probe")
            sizes = [0, 1, 63, 64, 126, 65_535, 65_536, 300_000]
            for size in sizes:
                sender.publish(f"big.{size}", bytes(range(256)) * (size // 256) + b"x" * (size % 256))
            assert [len(payload) for payload in real_messages(receiver, sid, len(sizes))] == sizes
            receiver.send(f"UNSUB {sid}\r\n".encode())
            wait_interest(sender, "big.probe", wanted=False)


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_messages_cross_in_frames_in_records(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    configs = {
        "hub_more": hub_config(f"tls {{ {authority.server().block} }}"),
        "leaf_more": leaf_config("wss", f'tls {{ ca_file: "{authority.ca_file}" }}'),
    }
    with joined(hub, leaf, tmp_path, **configs) as pair, pair.clients():
        pass


def test_a_hub_with_another_certificate_is_not_spoken_to(tmp_path: Path) -> None:
    authority, other = Authority.make(tmp_path), Authority.make(tmp_path, "other ca")
    configs = {
        "hub_more": hub_config(f"tls {{ {authority.server().block} }}"),
        "leaf_more": leaf_config("wss", f'tls {{ ca_file: "{other.ca_file}" }}'),
    }
    with joined("jetraft", "jetraft", tmp_path, **configs) as pair:
        line = pair.leaf.running.wait_for_line("signed by unknown authority")
        assert "lid_ws:" in line
        assert pair.hub.get("/varz")[1]["leafnodes"] == 0


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_without_a_listener_for_leaf_nodes_there_are_none_over_websocket(kind: Kind, tmp_path: Path) -> None:
    port = free_port()
    config = f'websocket {{\nhost: "{HOST}", port: {port}, no_tls: true\n}}\n'
    with Server(kind, directory=tmp_path, config=config) as server:
        with socket.create_connection((HOST, port), PATIENCE_S) as sock:
            sock.sendall(
                b"GET /leafnode HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            with sock.makefile("rb") as file:
                found = file.read()
        assert found.startswith(b"HTTP/1.1 101 ")
        assert found.endswith(b"\r\n\r\n")
        server.running.wait_for_line("Not configured to accept leaf node connections")


ANSWER = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept_of(KEY)}


def link_of(*, compression: bool = False, no_masking: bool = False) -> LeafLink:
    url = RemoteUrl(host="h", port=1, web=True)
    remote = RemoteOptions(urls=(url,), ws_compression=compression, ws_no_masking=no_masking)
    return LeafLink(cid=1, ip="", port=0, start_unix_ns=0, remote=remote, url=url)


@pytest.mark.parametrize(
    ("status", "changes", "text"),
    [
        (200, {}, "invalid websocket connection"),
        (101, {"upgrade": "h2c"}, "invalid websocket connection"),
        (101, {"connection": "close"}, "invalid websocket connection"),
        (101, {"sec-websocket-accept": accept_of("other")}, "invalid websocket connection"),
        (101, {"sec-websocket-accept": ""}, "invalid websocket connection"),
        (101, {"sec-websocket-extensions": DEFLATE_ANSWER}, "compression negotiation error"),
        (101, {"sec-websocket-extensions": "x"}, "compression negotiation error"),
    ],
)
def test_what_is_no_answer_to_the_request_is_refused(status: int, changes: dict[str, str], text: str) -> None:
    with pytest.raises(AnswerError, match=text):
        agreed(link_of(), KEY, status, ANSWER | changes)


def test_an_answer_that_keeps_a_context_is_refused() -> None:
    for extension in ("permessage-deflate", "permessage-deflate; server_no_context_takeover"):
        with pytest.raises(AnswerError):
            agreed(link_of(compression=True), KEY, 101, ANSWER | {"sec-websocket-extensions": extension})


def test_frames_have_masks_unless_both_ends_do_without() -> None:
    without = ANSWER | {"nats-no-masking": "true"}
    assert agreed(link_of(), KEY, 101, without) == Agreed(masks=True, deflates=False)
    assert agreed(link_of(no_masking=True), KEY, 101, ANSWER) == Agreed(masks=True, deflates=False)
    assert agreed(link_of(no_masking=True), KEY, 101, without) == Agreed(masks=False, deflates=False)


@attrs.define
class Proxy:
    """A proxy for HTTP: one connection after the other. Its answer and what the hub says first come in one packet."""

    answer: bytes
    sock: socket.socket = attrs.field(factory=lambda: socket.create_server((HOST, 0)))
    requests: list[bytes] = attrs.field(factory=list)

    @property
    def port(self) -> int:
        port: int = self.sock.getsockname()[1]
        return port

    def run(self) -> None:
        with suppress(OSError):
            while True:
                self.serve(self.sock.accept()[0])

    def serve(self, client: socket.socket) -> None:
        head = b""
        with closing(client), suppress(OSError):
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(4096)
            self.requests.append(head)
            if not self.answer.startswith(b"HTTP/1.1 200"):
                client.sendall(self.answer)
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            hub = socket.create_connection((host, int(port)))
            with closing(hub):
                client.sendall(self.answer + hub.recv(65536))
                back = threading.Thread(target=relay, args=(hub, client), daemon=True)
                back.start()
                relay(client, hub)
                back.join(PATIENCE_S)


def relay(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(answer: bytes) -> Iterator[Proxy]:
    proxy = Proxy(answer)
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.sock.shutdown(socket.SHUT_RDWR)
        proxy.sock.close()


def test_a_hub_is_reached_through_a_proxy(tmp_path: Path) -> None:
    with proxied(b"HTTP/1.1 200 Connection established\r\n\r\n") as proxy:
        behind = f'proxy {{ url: "http://{HOST}:{proxy.port}", username: ab, password: "c:d" }}'
        configs = {"hub_more": block(f'host: "{HOST}", port: LEAFPORT'), "leaf_more": leaf_config("nats", behind)}
        with joined("reference", "jetraft", tmp_path, **configs) as pair, pair.clients():
            assert b"Proxy-Authorization: Basic YWI6Yzpk\r\n" in proxy.requests[0]


@pytest.mark.parametrize("leaf", ["jetraft", "reference"])
def test_a_proxy_that_refuses_is_named_in_the_log(leaf: Kind, tmp_path: Path) -> None:
    with proxied(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as proxy:
        config = leaf_config("ws", f'proxy {{ url: "http://{HOST}:{proxy.port}" }}').replace("LEAFPORT", "1")
        with Server(leaf, directory=tmp_path, config=config) as server:
            server.running.wait_for_line("proxy CONNECT failed: 407 Proxy Authentication Required")
