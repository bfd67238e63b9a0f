"""Three real servers that speak TLS to each other: they are one cluster, and who has no certificate stays outside."""

import json
from pathlib import Path

from tests.harness.cluster import CLUSTER_NAME, Cluster
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.raft.stranger import Stranger

PEMS = Path(__file__).parents[1] / "raft" / "mesh" / "certificates"
LARGE = bytes(300_000)


def config(name: str = "node") -> str:
    files = f"cert_file: '{PEMS / name}.pem', key_file: '{PEMS / name}.key', ca_file: '{PEMS}/ours-ca.pem'"
    return f"cluster {{ tls {{ {files} }} }}\n"


def seq_of(client: RawClient, payload: bytes) -> int:
    return int(client.acknowledged("s", payload)["seq"])


def test_a_cluster_that_speaks_tls_replicates_and_fails_over_and_lets_nobody_else_in(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=config()) as cluster:
        with RawClient(cluster[0].address) as client:
            created = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
            assert "error" not in created
            assert [seq_of(client, LARGE) for _ in range(20)] == list(range(1, 21))
        port = cluster[0].cluster_port or 0
        with Stranger(port, cluster=CLUSTER_NAME, secret=b"") as plain:
            plain.sock.sendall(plain.hello().encode())
            assert plain.is_hung_up_on()
        cluster[0].running.wait_for_line("refused: TLS")
        outside = Server(
            "jetraft",
            directory=tmp_path / "outside",
            name="outside",
            cluster=CLUSTER_NAME,
            cluster_port=0,
            routes=(f"nats://{HOST}:{port}",),
            config=config("stranger"),
        )
        outside.start(wait=False)
        try:
            outside.running.wait_for_line("refused: TLS")
        finally:
            outside.close()
        assert "outside" not in (cluster[0].directory / "server.log").read_text(encoding="utf-8")
        leader = cluster.named(str(created["cluster"]["leader"]))
        leader.kill()
        survivor = next(node for node in cluster if node is not leader)
        survivor.running.wait_until(lambda: acknowledged(survivor) == 21, what="a publish was acknowledged")


def acknowledged(node: Server) -> int | None:
    """The sequence of a publish under one id, None while nobody leads."""
    with RawClient(node.address) as client:
        found = client.request("s", b"after", headers=[("Nats-Msg-Id", "after")])
    answer = json.loads(found[0].payload) if found and found[0].payload else {}
    return answer.get("seq")


def test_a_certificate_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    server = Server("jetraft", directory=tmp_path, cluster="C", cluster_port=0, routes=(), config=config("missing"))
    server.routes = (f"nats://{HOST}:6222",)
    server.start(wait=False)
    server.running.wait_for_line("cluster tls: cannot use")
    assert server.running.wait() == 1
