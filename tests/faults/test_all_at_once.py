"""Three nodes with 256 MiB each live through everything at once that takes memory, and serve when it is over.

On each node at the same time: a stream in memory that is full, 10,000 idle connections, 50 readers of all subjects that
read nothing, and 1,000 batches of direct gets that nobody reads, whose answers go to the readers too. One node catches
up meanwhile. Clients that lose their connections come back. The long form has a minute of it; in the short one two of
the nodes have fewer idle connections.
"""

import json
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.crowd import GETS_OF_ONE, CrowdProcess, files_max
from tests.harness.cluster import Cluster
from tests.harness.forms import examples
from tests.harness.memory_group import Lowest, command_within, memory_group, was_killed
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

pytestmark = pytest.mark.campaign

MIB = 1 << 20
LIMIT_BYTES = 256 * MIB
MESSAGE_BYTES = 256 * 1024
LARGE_BYTES = 1_000_000
SMALL, SMALL_BYTES = 100, 10 * 1024  # what batches begin with
MISSED = 30  # messages of LARGE_BYTES that the node which is away has to fetch
NEVER_USED_BYTES = LIMIT_BYTES // 16  # 40 MiB are left on a quiet machine; without a common budget it was 10 to 15
CONNECTIONS, READERS, ASKERS = 10_000, 50, 1_000 // GETS_OF_ONE
CONNECTIONS_OF_OTHERS = examples(500, long=CONNECTIONS)
SECONDS = examples(3, long=60)
SLOW = examples(5, long=READERS)  # readers that have lost their connections, of each node
REFUSED = 10023
LOOK_S = 0.05


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Each node in a control group of its own; none comes near its limit."""
    with ExitStack() as stack:
        groups = [stack.enter_context(memory_group(f"at-once-{number}", LIMIT_BYTES)) for number in range(3)]
        cluster = Cluster("jetraft", 3, directory=tmp_path)
        for node, group in zip(cluster, groups, strict=True):
            node.starter = shlex.split(command_within(group))
        with cluster:
            lowest = [stack.enter_context(Lowest(group, LIMIT_BYTES)) for group in groups]
            yield cluster
            assert not any(was_killed(group) for group in groups)
            assert min(one.free_bytes for one in lowest) > NEVER_USED_BYTES, [one.free_bytes // MIB for one in lowest]


def publish(client: RawClient, subject: str, size: int = MESSAGE_BYTES) -> int:
    """One message: 0, or the code with which it was refused."""
    return int((client.acknowledged(subject, b"x" * size).get("error") or {}).get("err_code", 0))


def fill(client: RawClient, away: Server) -> None:
    """A stream in files of which a node lacks the rest, and one in memory that is full, of which it lacks all."""
    for name in ("memory", "file"):
        config = {"name": name, "subjects": [f"{name}.>"], "storage": name, "num_replicas": 3, "allow_direct": True}
        assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
    for _ in range(SMALL):
        assert publish(client, "file.small", SMALL_BYTES) == 0
    away.stop()
    for _ in range(MISSED):
        assert publish(client, "file.large", LARGE_BYTES) == 0
    while (code := publish(client, "memory.a", LARGE_BYTES)) == 0:
        pass
    assert code == REFUSED


def figures(node: Server) -> dict[str, Any]:
    """The page of general figures; empty when the node is too busy to serve it."""
    _, page = node.get("/varz")
    return page if isinstance(page, dict) else {}


def has(node: Server, figure: str, count: int) -> bool:
    """Whether a figure of the page has come so far."""
    return bool(figures(node).get(figure, 0) >= count)


def why_closed(node: Server, client: RawClient) -> str:
    """What the server says of a connection that should be open: who publishes is not a slow reader."""
    cid = client.info["client_id"]
    _, page = node.get(f"/connz?state=any&cid={cid}")
    return f"{[one.get('reason', 'open') for one in (page or {}).get('connections', [])]}"


def is_purged(client: RawClient) -> bool:
    """Whether a request to empty the stream in memory was answered; on a busy machine that takes more than one."""
    return any(b'"success":true' in answer.payload for answer in client.request("$JS.API.STREAM.PURGE.memory"))


def is_current(client: RawClient, stream: str) -> bool:
    """Whether all replicas of a stream have what its leader has."""
    replicas = client.api(f"STREAM.INFO.{stream}")["cluster"].get("replicas", [])
    return len(replicas) == 2 and all(one["current"] and not one.get("lag") for one in replicas)


def publish_through(cluster: Cluster, client: RawClient) -> None:
    """Publish until readers have lost their connections on all nodes, for SECONDS at least.

    Nothing is waited for: where three nodes and their crowds share two processors, an answer takes seconds.
    """
    answers: Counter[tuple[str, int]] = Counter()
    inbox = client.new_inbox()
    client.subscribe(f"{inbox}.*")
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or not all(has(node, "slow_consumers", SLOW) for node in cluster):
        assert time.monotonic() < until + PATIENCE_S, answers
        for stream in ("memory", "file"):
            client.publish(f"{stream}.a", b"x" * MESSAGE_BYTES, reply=f"{inbox}.{stream}")
        while (event := client.next_event(LOOK_S)) is not None:
            if isinstance(event, Message) and event.payload:
                error = json.loads(event.payload).get("error") or {}
                answers[event.subject.rpartition(".")[2], int(error.get("err_code", 0))] += 1
    assert not answers["memory", 0], answers


@pytest.mark.long_form
def test_three_nodes_live_through_everything_at_once(cluster: Cluster) -> None:
    first, second, away = cluster
    with RawClient(first.address) as client, ExitStack() as crowds:
        fill(client, away)
        for node, count in ((first, CONNECTIONS), (second, CONNECTIONS_OF_OTHERS)):
            idle = min(count, files_max())
            crowds.enter_context(CrowdProcess(node.client_port, idle=idle))
            node.running.wait_until(partial(has, node, "connections", idle), what="all have come")
        away.start()
        crowds.enter_context(CrowdProcess(away.client_port, idle=CONNECTIONS_OF_OTHERS))
        for node in cluster:
            crowds.enter_context(CrowdProcess(node.client_port, stream="file", readers=READERS, askers=ASKERS))
        publish_through(cluster, client)
        assert all(node.running.running for node in cluster)
        assert not client.closed, why_closed(first, client)
        crowds.close()
        first.running.wait_until(partial(is_purged, client), what="the stream in memory was purged")
        away.running.wait_until(lambda: publish(client, "memory.a") == 0, what="a message was taken again")
        for stream in ("memory", "file"):
            first.running.wait_until(partial(is_current, client, stream), what=f"all replicas of {stream} are current")
