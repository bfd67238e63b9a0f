"""One of three servers is cut off from the others, and clients reach it still: how long do they go without an ack?"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.faults import netns
from tests.faults.netns import Network, both_ways
from tests.faults.nodes import Node, Nodes
from tests.harness.log_lines import wait_for_event
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Line, RawClient

CONFIG = "cluster { reconnect_when_cut_off: true }\n"
STREAM = {"name": "S", "subjects": ["s.>"], "num_replicas": 3}
GAP_MAX_S = 3.0
ATTEMPT_S = 0.5
LDM = '"ldm":true'


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if (reason := netns.missing()) is not None:
        pytest.skip(f"CUT OFF NOT RUN: {reason}")
    directory = tmp_path_factory.mktemp("cut_off")
    with Network(3) as network, Nodes("jetraft", network, 3, directory=directory, config=CONFIG) as made:
        with RawClient(made.all[0].client_address) as client:
            assert "error" not in client.api("STREAM.CREATE.S", STREAM)
        yield made


class Publisher:
    """A client as drivers are: it stays where it is until its connection ends, then it tries the next server."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._client = RawClient(nodes[0].client_address, protocol=1)
        self.heard: list[str] = []

    @property
    def at(self) -> str:
        return self._nodes[0].name

    def close(self) -> None:
        self._client.close()

    def acknowledged(self) -> bool:
        """One message: whether it was acknowledged within ATTEMPT_S."""
        with suppress(OSError):
            inbox = self._client.new_inbox()
            self._client.subscribe(inbox)
            self._client.publish("s.x", b"x", reply=inbox)
            deadline = time.monotonic() + ATTEMPT_S
            while not self._client.closed and (left_s := deadline - time.monotonic()) > 0:
                event = self._client.next_event(left_s)
                if isinstance(event, Line):
                    self.heard.append(event.text)
                elif event is not None and event.subject == inbox:
                    return bool(event.payload) and "seq" in json.loads(event.payload)
        if self._client.closed:
            self._client.close()
            self._nodes = [*self._nodes[1:], self._nodes[0]]
            self._client = RawClient(self._nodes[0].client_address, protocol=1)
        return False


def test_a_client_of_a_server_that_is_cut_off_goes_on_at_another_one_within_three_seconds(nodes: Nodes) -> None:
    cut, *others = nodes.all
    publisher = Publisher([cut, *others])
    deadline = time.monotonic() + PATIENCE_S
    while not publisher.acknowledged():
        assert time.monotonic() < deadline
    lead_elsewhere(nodes, cut)
    while not publisher.acknowledged():
        assert time.monotonic() < deadline

    nodes.network.cut(both_ways([cut.place], [node.place for node in others]))
    last_s, longest_s = time.monotonic(), 0.0
    ends_s = last_s + 8
    while (now_s := time.monotonic()) < ends_s:
        if publisher.acknowledged():
            longest_s = max(longest_s, time.monotonic() - last_s)
            last_s = time.monotonic()
    assert now_s - last_s < GAP_MAX_S
    assert publisher.at != cut.name
    assert longest_s <= GAP_MAX_S, f"{longest_s:.2f} s without an acknowledgement"
    assert any(LDM in text.replace(" ", "") for text in publisher.heard), "it is told before its connection ends"

    with RawClient(cut.client_address) as client:
        began_s = time.monotonic()
        (answer,) = client.request("$JS.API.STREAM.INFO.S")
        assert time.monotonic() - began_s < GAP_MAX_S, "it is refused, not waited for"
        assert json.loads(answer.payload)["error"] == {
            "code": 503,
            "err_code": 10008,
            "description": "JetStream system temporarily unavailable",
        }
        (refused,) = client.request("s.x", b"x")
        assert refused.status.startswith("503"), "no responders"

    publisher.close()
    nodes.network.heal()
    wait_for_event(cut.running, "text", "cut_off")
    wait_for_event(cut.running, "text", "cut_off_ended")
    cut.running.wait_until(cut.healthy, what="the server was healthy")
    with RawClient(cut.client_address) as client:
        assert "seq" in client.acknowledged("s.x", b"x")


def lead_elsewhere(nodes: Nodes, cut: Node) -> None:
    """The stream's leader, and the meta group's, are among the others."""
    _, *others = nodes.all
    deadline = time.monotonic() + PATIENCE_S
    with RawClient(others[0].client_address) as client:
        while cut.leads("S"):
            client.api("STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": others[0].name}})
            assert time.monotonic() < deadline
            time.sleep(0.1)
