"""Log lines of who leads, through a failover and in a flood of them."""

from __future__ import annotations

import logging
import re
import signal
from typing import TYPE_CHECKING

from jetraft.cluster.leader_news import LINES_MAX, PERIOD_NS, LeaderNews
from jetraft.store.model.clock import ManualClock
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.harness.server import Server

META_LINE = re.compile(r"the meta group: (n\d) leads in term (\d+)")


class Timers:
    """Calls that a test makes."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Callable[[], None]]] = []

    def call_at(self, mono_ns: int, callback: Callable[[], None]) -> Timers:
        self.calls.append((mono_ns, callback))
        return self

    def cancel(self) -> None:
        self.calls.clear()


def test_of_many_changes_some_are_told_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    news = LeaderNews(timers, ManualClock())
    with caplog.at_level(logging.INFO):
        for number in range(LINES_MAX + 480):
            news.stream_leads("A", f"S{number}", "n2", 7)
        assert len(caplog.messages) == LINES_MAX
        assert caplog.messages[0] == "stream A > S0: n2 leads in term 7"
        ((at_ns, end_period),) = timers.calls
        assert at_ns == ManualClock().mono_ns() + PERIOD_NS
        end_period()
        assert caplog.messages[LINES_MAX:] == ["480 more changes of streams' leaders on this node in the last 10 s"]
        news.stream_lost("A", "S1", "n2", 7)
        assert "n2 leads no longer in term 7" in caplog.messages[-1]
        timers.calls[-1][1]()
        assert len(caplog.messages) == LINES_MAX + 2, "nothing was left out of the second period"
        news.meta_leads(None, 8)
        assert caplog.records[-1].levelno == logging.WARNING


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
