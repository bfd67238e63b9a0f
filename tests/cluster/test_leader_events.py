"""Log lines of who leads, through a failover."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.server import Server

META_LINE = re.compile(r"the meta group: (n\d) leads in term (\d+)")


def test_the_log_says_who_leads_before_and_after_a_failover(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        with RawClient(cluster.nodes[0].address) as client:
            made = client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["o"], "num_replicas": 3})
        first = cluster.named(made["cluster"]["leader"])
        line = first.running.wait_for_line(f"stream $G > ORDERS: {first.name} leads in term ")
        assert "[INF]" in line
        first.running.signal(signal.SIGKILL)
        others = [node for node in cluster if node is not first]
        alive = others[0]
        alive.running.wait_until(
            lambda: any(f"stream $G > ORDERS: {node.name} leads" in text for node in others for text in lines_of(node)),
            what="another node says that it leads the stream",
        )
        alive.running.wait_until(
            lambda: all(leads(node) in {each.name for each in others} for node in others),
            what="every node says who leads the meta group",
        )
        assert leads(others[0]) == leads(others[1])
        assert not any("leads" in text for node in cluster for text in lines_of(node) if "term 0" in text)


def lines_of(node: Server) -> list[str]:
    return list(node.running.lines)


def leads(node: Server) -> str:
    """Who leads the meta group, as the node's log says last."""
    found = [match[1] for line in lines_of(node) if (match := META_LINE.search(line))]
    return found[-1] if found else ""
