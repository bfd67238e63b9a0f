"""WebSocket with TLS, in a cluster, and with clients for browsers."""

import json
import os
import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest

from tests.api.websocket.conftest import Start, web_address
from tests.clients.nats_py import connection, run
from tests.harness.certificates import Authority
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import Line
from tests.harness.raw_websocket import WebSocketClient, request
from tests.harness.server import Kind

# nats-py gives aiohttp its timeout in a form of the past, and its session to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:parameter 'timeout' of type 'float':DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def tls_block(authority: Authority, more: str = "") -> str:
    """A `tls` block with the server's certificate."""
    files = f'cert_file: "{authority.directory}/server.pem"\nkey_file: "{authority.directory}/server-key.pem"'
    return f"tls {{\n{files}\n{more}\n}}"


def test_wss_maps_certificates_and_says_so(start: Start, authority: Authority) -> None:
    block = tls_block(authority, f'ca_file: "{authority.ca_file}"\nverify_and_map: true')
    server = start(block, 'authorization { users [{ user: "CN=client" }] }')
    address = web_address(server)
    server.running.wait_for_line("Listening for websocket clients on wss://")
    context = authority.client_context()
    context.load_cert_chain(authority.directory / "client.pem", authority.directory / "client-key.pem")
    with WebSocketClient(address, context=context) as client:
        assert (client.info["tls_required"], client.info["tls_available"]) == (True, True)
        client.settle()
        (row,) = server.get("/connz?auth=1")[1]["connections"]
        assert (row["type"], row["authorized_user"], row["tls_version"]) == ("websocket", "CN=client", "1.3")
        assert "tls_first" not in row
    section = server.get("/varz")[1]["websocket"]
    assert section["tls_map"] is True
    assert "tls_cert_not_after" in section
    with pytest.raises((ssl.SSLError, ConnectionError)), WebSocketClient(address, context=authority.client_context()):
        pass
    server.running.wait_for_line("websocket: TLS handshake error from")


def test_a_handshake_of_tls_counts_for_the_time_of_the_upgrade(start: Start, authority: Authority) -> None:
    server = start(tls_block(authority, "timeout: 60") + "\nhandshake_timeout: 300ms", debug=False)
    with closing(socket.create_connection(web_address(server), PATIENCE_S)) as sock:
        assert sock.recv(1) == b""
    with closing(socket.create_connection(web_address(server), PATIENCE_S)) as plain:
        secure = authority.client_context().wrap_socket(plain, server_hostname="localhost")
        secure.sendall(request()[:40])
        assert secure.recv(1) == b""


def test_the_same_origin_of_wss_is_https(start: Start, authority: Authority) -> None:
    address = web_address(start(tls_block(authority) + "\nsame_origin: true"))
    for scheme, status in (("https", 101), ("http", 403)):
        upgrade = request(headers={"Origin": f"{scheme}://localhost"})
        with WebSocketClient(address, context=authority.client_context(), upgrade=upgrade) as client:
            assert client.status == status


def test_nats_py_works_over_wss(start: Start, authority: Authority) -> None:
    pytest.importorskip("aiohttp")
    _, port = web_address(start(tls_block(authority), debug=False))

    async def check() -> None:
        async with connection(f"wss://localhost:{port}", tls=authority.client_context()) as client:
            subscription = await client.subscribe("a")
            for size in (0, 1000, 200_000):
                await client.publish("a", os.urandom(size))
                assert len((await subscription.next_msg(timeout=PATIENCE_S)).data) == size

    run(check)


def test_clients_learn_the_websocket_addresses_of_a_cluster(kind: Kind, tmp_path: Path) -> None:
    config = f'websocket {{ listen: "{HOST}:-1", no_tls: true }}'
    with Cluster(kind, 3, directory=tmp_path, config=config) as cluster:
        addresses = [web_address(server) for server in cluster.nodes]
        expected = {f"{host}:{port}" for host, port in addresses}
        with WebSocketClient(addresses[0]) as client:
            known = set(client.info.get("connect_urls", ()))
            while known != expected:
                event = client.next_event(PATIENCE_S)
                assert isinstance(event, Line), known
                if event.text.startswith("INFO "):
                    known = set(json.loads(event.text[5:]).get("connect_urls", ()))
        assert set(cluster.nodes[0].get("/varz")[1]["ws_connect_urls"]) == expected
        assert expected.isdisjoint(cluster.nodes[0].get("/varz")[1]["connect_urls"])


def test_the_ports_file_has_the_listener(start: Start, tmp_path: Path) -> None:
    server = start(rest=f'ports_file_dir: "{tmp_path}"', debug=False)
    host, port = web_address(server)
    (found,) = tmp_path.glob("*.ports")
    assert json.loads(found.read_text())["websocket"] == [f"ws://{host}:{port}"]
