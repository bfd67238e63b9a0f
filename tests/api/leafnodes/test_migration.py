"""`js_cluster_migrate`: leaders move away from a node that does not reach its hub, and not from one that does."""

import socket
from pathlib import Path

from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.migration import LostHubs
from jetraft.api.options.leafnodes import RemoteOptions, RemoteUrl
from jetraft.store.model.clock import NS_PER_S, ManualClock
from tests.harness.cluster import Cluster
from tests.harness.leafs import block, listener
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.raw import RawClient
from tests.harness.server import Server

URL = RemoteUrl(host="h", port=1)


class Stage:
    """Two hubs of which one may be lost for two seconds, and a third that does not matter."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.remotes = [
            RemoteOptions(urls=(URL,), account="A", cluster_migrate=True),
            RemoteOptions(urls=(URL,), account="B", cluster_migrate=True, migrate_delay_ns=2 * NS_PER_S),
            RemoteOptions(urls=(URL,), account="C"),
        ]
        self.links: list[LeafLink] = []
        self.lost = LostHubs(
            clock=self.clock, remotes=lambda: self.remotes, links=lambda: self.links, tell=lambda _accounts: None
        )

    def fail(self) -> None:
        for remote in self.remotes:
            self.lost.failed(remote)


def test_an_account_has_lost_its_hub_after_its_delay_and_until_it_is_reached() -> None:
    stage = Stage()
    assert stage.lost.accounts() == frozenset()  # nothing was tried yet
    stage.fail()
    assert stage.lost.accounts() == {"A"}
    stage.clock.advance(2 * NS_PER_S)
    stage.fail()  # again: it counts from the first time
    assert stage.lost.accounts() == {"A", "B"}
    link = LeafLink(cid=1, ip="", port=0, start_unix_ns=0, remote=stage.remotes[1])
    stage.links.append(link)
    assert stage.lost.accounts() == {"A", "B"}
    link.admitted = True
    assert stage.lost.accounts() == {"A"}
    stage.links.clear()
    stage.fail()
    assert stage.lost.accounts() == {"A"}


def test_leaders_move_to_a_node_that_reaches_the_hub(tmp_path: Path) -> None:
    port, nowhere = free_port(), socket.socket()
    nowhere.bind((HOST, 0))  # and does not listen
    remote = f'reconnect: "100ms", remotes: [ {{ url: "nats://{HOST}:PORT", js_cluster_migrate: true }} ]'
    (tmp_path / "hub").mkdir()
    hub = Server(
        "jetraft", directory=tmp_path / "hub", name="hub", config="jetstream { domain: hub }\n" + listener(port)
    )
    cluster = Cluster("jetraft", directory=tmp_path, config="jetstream { domain: leaf }\n" + block(remote))
    for number, node in enumerate(cluster.nodes):
        assert node.config is not None
        node.config = node.config.replace("PORT", str(port if number == 2 else nowhere.getsockname()[1]))
    with hub, nowhere, cluster, RawClient(cluster[0].address) as client:
        for name in ("S0", "S1", "S2", "S3"):
            client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "num_replicas": 3})

        def leaders() -> set[str]:
            return {client.api(f"STREAM.INFO.S{number}")["cluster"]["leader"] for number in range(4)}

        running, what = cluster[0].running, "all streams are led by the node that reaches the hub"
        running.wait_until(lambda: leaders() == {"n3"}, what=what, timeout_s=PATIENCE_S)
