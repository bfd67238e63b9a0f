"""Three nodes whose clients speak TLS."""

from pathlib import Path

from tests.clients.nats_py import connection, run
from tests.harness.certificates import Authority
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Kind

RETRY_S = 2.0


def test_a_client_moves_to_a_node_that_it_was_told_of(kind: Kind, authority: Authority, tmp_path: Path) -> None:
    files = f'cert_file: "{authority.directory}/server.pem"\nkey_file: "{authority.directory}/server-key.pem"'
    with Cluster(kind, 3, directory=tmp_path, config=f"tls {{\n{files}\n}}\n") as cluster:
        first = cluster.nodes[0]

        async def scenario() -> None:
            options = {"tls": authority.client_context(), "tls_hostname": "localhost", "reconnect_time_wait": 0.1}
            async with connection(first.url.replace("nats://", "tls://"), **options) as nc:
                js = nc.jetstream()
                await js.add_stream(name="S", subjects=["s"], num_replicas=3)
                assert (await js.publish("s", b"one", timeout=PATIENCE_S)).seq == 1
                assert len(nc.discovered_servers) == 2
                first.kill()
                for _ in range(100):
                    try:
                        ack = await js.publish("s", b"two", timeout=RETRY_S, headers={"Nats-Msg-Id": "two"})
                        break
                    except Exception:  # noqa: BLE001  the stream's leader may have been the killed node
                        continue
                assert ack.seq == 2
                assert nc.connected_url is not None
                assert nc.connected_url.port != first.client_port

        run(scenario)
