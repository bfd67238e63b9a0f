"""A node comes back with an older copy of its store, as a snapshot of a virtual machine is: nothing acknowledged goes.

The copy is sound, and has forgotten what the node acknowledged since. Together with a member that was away meanwhile it
would be a majority without those messages.
"""

import base64
import shutil
from pathlib import Path

from tests.api.cli.test_recover import fill, publish, store
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

PRECIOUS = b"what only two of them have"
OLD = "runs on an older copy of its store"


def started(*nodes: Server) -> None:
    for node in nodes:
        node.start(wait=False)
    for node in nodes:
        node.wait_listening()


def told(node: Server) -> bool:
    _, body = node.get("/healthz")
    return isinstance(body, dict) and OLD in body.get("error", "")


def test_an_older_copy_of_a_store_does_not_vote_what_was_acknowledged_away(tmp_path: Path) -> None:
    cluster = Cluster("jetraft", 3, directory=tmp_path)
    first, second, third = cluster
    with cluster:
        fill(second)
        first.stop()
        shutil.copytree(store(first), tmp_path / "copy")
        started(first)
        cluster.wait_healthy()
        third.stop()
        with RawClient(second.address) as client:
            second.running.wait_until(lambda: "seq" in publish(client, b"x"), what="the other two had a leader")
            last_seq = publish(client, PRECIOUS)["seq"]
        first.kill()
        second.kill()

        shutil.rmtree(store(first))
        shutil.copytree(tmp_path / "copy", store(first))
        started(first, third)
        first.running.wait_until(lambda: told(first), what="the third node told the first one of its store")
        started(second)
        with RawClient(second.address) as client:
            second.running.wait_until(lambda: "seq" in publish(client, b"on"), what="the other two had a leader")
            message = client.api("STREAM.MSG.GET.S", {"seq": last_seq})["message"]
            assert base64.b64decode(message["data"]) == PRECIOUS
