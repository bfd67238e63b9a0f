"""Three nodes with 24 MB each, as of small volumes: the reserve is a part of the disk, so messages fit all the same."""

import json
import shutil
from pathlib import Path

from tests.harness.cluster import Cluster
from tests.harness.log_lines import wait_for_event
from tests.harness.raw import RawClient
from tests.harness.small_disk import small_disks

DISK_MIB = 24
MESSAGE_BYTES = 100_000
TAKEN_MIN = 0.55  # of the disk: a quarter is the reserve, and blocks are not full
CONFIG = "jetstream { max_file: 10GB }"  # what deploy/docker-compose.yml says, whatever the volume has


def test_a_small_disk_takes_messages_to_more_than_half_of_it_then_refuses_by_name(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("n1", "n2", "n3")]
    with (
        small_disks(places, DISK_MIB << 10),
        Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster,
        RawClient(cluster[0].address) as client,
    ):
        created = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
        assert "error" not in created
        assert client.acknowledged("s", b"first")["seq"] == 1
        refused: dict[str, object] = {}
        for _ in range(2 * (DISK_MIB << 20) // MESSAGE_BYTES):
            answer = json.loads(client.request("s", bytes(MESSAGE_BYTES))[0].payload)
            refused = answer.get("error") or {}
            if refused:
                break
        assert refused["err_code"] == 10047
        used = [1 - shutil.disk_usage(place).free / shutil.disk_usage(place).total for place in places]
        assert max(used) > TAKEN_MIN
        leader = cluster.named(client.api("STREAM.INFO.S")["cluster"]["leader"])
        wait_for_event(leader.running, "text", "disk_nearly_full")
        assert "error" not in client.api("STREAM.PURGE.S")
        cluster[0].running.wait_until(
            lambda: "seq" in client.acknowledged("s", b"again"), what="messages are taken again"
        )
        wait_for_event(leader.running, "text", "disk_has_room")
