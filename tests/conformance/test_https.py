"""The monitoring pages over TLS, on both servers: what is served, and what keeps a server from starting."""

import http.client
import json
import socket
from pathlib import Path

import pytest

from tests.conformance.monitored import KINDS
from tests.harness.certificates import Authority
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.process import ServerFailed
from tests.harness.raw import exchange_to_end
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verify", [False, True])
def test_pages_are_served_over_tls_to_clients_without_a_certificate(
    tmp_path: Path,
    kind: Kind,
    verify: bool,  # noqa: FBT001  (a parameter)
) -> None:
    authority = Authority.make(tmp_path)
    signed = authority.server()
    verified = f'verify: true\nca_file: "{authority.ca_file}"\n' if verify else ""
    config = f"http_base_path: /nats\ntls {{\n{signed.block}{verified}}}\n"
    with Server(
        kind, directory=tmp_path / kind, config=config, monitor="-ms", flags=("--ports_file_dir", str(tmp_path))
    ) as server:
        context = authority.client_context(None)
        connection = http.client.HTTPSConnection(HOST, server.http_port, context=context, timeout=PATIENCE_S)
        for target, status in (("/nats/varz", 200), ("/varz", 404), ("/nats/connz?limit=x", 400)):
            connection.request("GET", target)
            response = connection.getresponse()
            body = response.read()
            assert response.status == status
            if status == 200:
                varz = json.loads(body)
                assert (varz["http_port"], varz["https_port"]) == (0, server.http_port)
                assert varz["http_base_path"] == "/nats"
        connection.close()
        assert server.running.wait_for_line("Starting https monitor on").endswith(f"{HOST}:{server.http_port}")
        server.running.wait_until(lambda: any(tmp_path.glob("*.ports")), what="the ports file")
        [ports] = tmp_path.glob("*.ports")
        assert json.loads(ports.read_text())["monitoring"] == [f"https://{HOST}:{server.http_port}"]


def test_plain_http_is_not_answered_with_a_page(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    config = f"tls {{\n{authority.sign('server').block}}}\n"
    with Server("jetraft", directory=tmp_path / "jetraft", config=config, monitor="-ms") as server:
        with socket.create_connection((HOST, server.http_port), timeout=PATIENCE_S) as sock:
            answer = exchange_to_end(sock, b"GET /varz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"server_id" not in answer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("config", "monitor", "said"),
    [
        ("", "-ms", "Can't start monitoring: TLS cert and key required for HTTPS"),
        ("https_port: 4", "-m", "Can't start monitoring: can't specify both HTTP (PORT) and HTTPs (4) ports"),
    ],
)
def test_a_server_that_cannot_serve_its_pages_does_not_start(
    tmp_path: Path, kind: Kind, config: str, monitor: str, said: str
) -> None:
    server = Server(kind, directory=tmp_path, config=config + "\n", monitor=monitor)
    with pytest.raises(ServerFailed) as caught:
        server.start()
    server.close()
    assert said.replace("PORT", str(server.http_port)) in str(caught.value)
