"""What the system account hears of a cluster: leaders, lost quorums, removed servers; both servers are provoked alike.

Compared are which events come in which account, the fields of each with the types of their values, and which of them
have values.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.test_advisory_envelopes import PREFIX, Shape, shape
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]

CONFIG: Final = """
system_account: SYS
accounts { SYS { users: [{user: system, password: x}] }, A { jetstream: enabled, users: [{user: mine, password: x}] } }
no_auth_user: mine
"""
REMOVED: Final = "ADVISORY.SERVER.REMOVED"
DOMAIN: Final = "ADVISORY.DOMAIN.LEADER_ELECTED"
OF_BOTH: Final = (
    "ADVISORY.STREAM.LEADER_ELECTED.S",
    "ADVISORY.CONSUMER.LEADER_ELECTED.S.d",
    "ADVISORY.STREAM.QUORUM_LOST.S",
    "ADVISORY.CONSUMER.QUORUM_LOST.S.d",
)
EXPECTED: Final = (
    *(("system", kind) for kind in (REMOVED, DOMAIN)),
    *((user, kind) for user in ("system", "mine") for kind in OF_BOTH),
)
API: Final = "$JS.API."
LOSS_S: Final = 30.0  # nats-server looks every 10 s
Heard = dict[tuple[str, str], Shape]


def connected(node: Server, user: str) -> RawClient:
    login: dict[str, Any] = {"user": user, "pass": "x"}
    return RawClient(node.address, **login)


class Listener:
    """Hears of events as one user at one node."""

    def __init__(self, client: RawClient, user: str) -> None:
        self.user = user
        self.client = client
        self.client.subscribe(PREFIX + ">")
        self.client.settle()

    def listen(self, heard: Heard, *kinds: str, patience_s: float = PATIENCE_S) -> None:
        """Return when each of these was heard, or not in time."""
        deadline = time.monotonic() + patience_s
        while not {(self.user, kind) for kind in kinds} <= set(heard):
            left_s = deadline - time.monotonic()
            event = self.client.next_event(left_s) if left_s > 0 else None
            if event is None:
                return
            if isinstance(event, Message):
                body = json.loads(event.payload)
                told = {name: str(bool(body[name])) for name in ("account", "server_id", "leader") if name in body}
                place = (self.user, event.subject.removeprefix(PREFIX))
                heard.setdefault(place, {**shape(body), **told, "type": body["type"]})


def meta_leader(cluster: Cluster) -> str:
    found: list[str | None] = [(node.get("/jsz")[1] or {}).get("meta_cluster", {}).get("leader") for node in cluster]
    return next(name for name in found if name)


def insist(client: RawClient, subject: str, body: object = None) -> dict[str, Any]:
    """Ask until it is done: the reference answers nothing, or with an error, to what it is asked during an election."""
    payload = b"" if body is None else json.dumps(body).encode()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = client.request(API + subject, payload)
        answer: dict[str, Any] = json.loads(found[0].payload) if found else {}
        cluster = answer.get("cluster", {"leader": "none is shown"})
        if answer and "error" not in answer and cluster.get("leader"):
            return answer
        assert time.monotonic() < deadline, f"{subject}: {answer}"


def provoked(kind: Kind, directory: Path) -> Heard:
    """What was heard, by user and kind."""
    heard: Heard = {}
    with Cluster(kind, 4, directory=directory, config=CONFIG) as cluster, ExitStack() as clients:
        first = cluster[0]
        system = Listener(clients.enter_context(connected(first, "system")), "system")
        gone = next(node for node in cluster if node.name not in {meta_leader(cluster), first.name})
        api = clients.enter_context(connected(first, "system"))
        insist(api, "SERVER.REMOVE", {"peer": gone.name})
        system.listen(heard, REMOVED)
        insist(api, "META.LEADER.STEPDOWN")
        system.listen(heard, DOMAIN)
        gone.kill()
        _lose_quorum([node for node in cluster if node is not gone], heard, clients)
    return heard


def _lose_quorum(nodes: list[Server], heard: Heard, clients: ExitStack) -> None:
    listeners = [
        (node, Listener(clients.enter_context(connected(node, user)), user))
        for node in nodes
        for user in ("system", "mine")
    ]
    mine = clients.enter_context(connected(nodes[0], "mine"))
    insist(mine, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
    insist(mine, "CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}})
    leader = insist(mine, "STREAM.INFO.S")["cluster"]["leader"]
    if insist(mine, "CONSUMER.INFO.S.d")["cluster"]["leader"] != leader:  # the replicas that are ended lead nothing
        insist(mine, "CONSUMER.LEADER.STEPDOWN.S.d", {"placement": {"preferred": leader}})
        nodes[0].running.wait_until(
            lambda: insist(mine, "CONSUMER.INFO.S.d")["cluster"]["leader"] == leader, what="one node led both"
        )
    for node in nodes:
        if node.name != leader:
            node.kill()
    for node, listener in listeners:
        if node.name == leader:
            listener.listen(heard, *OF_BOTH, patience_s=LOSS_S)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Heard]]:
    directory = tmp_path_factory.mktemp("clusters")
    kinds: tuple[Kind, Kind] = ("reference", "jetraft")
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = [pool.submit(provoked, kind, directory / kind) for kind in kinds]
        yield [one.result() for one in running]


@pytest.mark.parametrize(("user", "kind"), EXPECTED)
def test_operators_hear_what_the_reference_tells(both: list[Heard], user: str, kind: str) -> None:
    expected, actual = (heard.get((user, kind)) for heard in both)
    assert expected is not None, "the reference was not provoked"
    assert actual is not None, "no such event"
    assert actual == expected
