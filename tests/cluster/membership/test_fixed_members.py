"""With the engine that keeps a group's members, whatever would change them is refused at once, and changes nothing."""

import time
from pathlib import Path

from jetraft.cluster.meta.leader_duties import CHANGE_WAIT_S
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

CONFIG = 'jetstream { raft_engine: "pysyncobj" }'
STREAM = {"name": "S", "subjects": ["s"], "num_replicas": 3}
AT_ONCE_S = CHANGE_WAIT_S - 1.0  # what waits for the commit of a change never takes less
TRIES = 5  # one of them meets a moment in which the machine has time


def refusal(node: Server, subject: str, body: object) -> object:
    took_s = []
    with RawClient(node.address) as client:
        for _ in range(TRIES):
            began = time.monotonic()
            answer = client.api(subject, body)
            took_s.append(time.monotonic() - began)
            if took_s[-1] < AT_ONCE_S:
                break
    assert min(took_s) < AT_ONCE_S
    error = answer["error"]
    assert isinstance(error, dict)
    return error["err_code"]


def test_pysyncobj_refuses_to_change_replicas_or_servers(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster:
        node = cluster[0]
        with RawClient(node.address) as client:
            created = client.api("STREAM.CREATE.S", STREAM)
        assert "error" not in created, created
        assert refusal(node, "STREAM.UPDATE.S", {**STREAM, "num_replicas": 1}) == 10061
        assert refusal(node, "STREAM.PEER.REMOVE.S", {"peer": "n2"}) == 10061
        assert refusal(node, "SERVER.REMOVE", {"peer": "n2"}) == 10036
        with RawClient(node.address) as client:
            info = client.api("STREAM.INFO.S")
        assert info["config"] == created["config"]
