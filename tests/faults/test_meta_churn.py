"""The meta leader is killed while streams are created and deleted: what is stored becomes what is assigned, by itself.

A request that met the kill may or may not have been carried out. Either way the servers must agree in the end: a stream
that is listed has a leader and its groups, and no group is left that no listed stream owns.
"""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest

from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # connects that failed
NAMES = tuple(f"C{number}" for number in range(40))
CHURNERS = 3
KILLS = 4
BETWEEN_S = 1.5  # kills: time enough for dozens of requests
CONVERGED_WITHIN_S = 30.0  # nobody does anything meanwhile
TRY_S = 1.0


def ask(node: Server, subject: str, body: object = None) -> dict[str, Any]:
    """One request, whatever becomes of it: nothing is asked again."""
    with contextlib.suppress(OSError, EOFError, AssertionError, ValueError), RawClient(node.address) as client:
        inbox = client.new_inbox()
        client.subscribe(inbox)
        client.publish(f"$JS.API.{subject}", b"" if body is None else json.dumps(body).encode(), reply=inbox)
        event = client.next_event(TRY_S)
        answer: dict[str, Any] = json.loads(getattr(event, "payload", b"") or b"{}")
        return answer
    return {}


class Churn:
    """Creates and deletes streams through all servers until it is ended."""

    def __init__(self, cluster: Cluster) -> None:
        self.requests = 0
        self._cluster = cluster
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(seed,)) for seed in range(CHURNERS)]

    def _work(self, seed: int) -> None:
        random = Random(seed)
        while not self._over.is_set():
            name, node = random.choice(NAMES), random.choice(self._cluster.nodes)
            if random.random() < 0.6:
                config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": random.choice((1, 3, 3))}
                config["storage"] = random.choice(("file", "file", "memory"))
                created = ask(node, f"STREAM.CREATE.{name}", config)
                if "error" not in created and random.random() < 0.5:
                    consumer = {"stream_name": name, "config": {"durable_name": "D", "ack_policy": "explicit"}}
                    ask(node, f"CONSUMER.DURABLE.CREATE.{name}.D", consumer)
            else:
                ask(node, f"STREAM.DELETE.{name}")
            self.requests += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def meta_leader(cluster: Cluster) -> Server:
    for node in cluster:
        body = node.get("/jsz")[1]
        leader = ((body or {}).get("meta_cluster") or {}).get("leader")
        if leader:
            return cluster.named(leader)
    raise AssertionError("no meta leader")


def stored(node: Server) -> set[str]:
    """The groups with a directory, the meta group left out."""
    found = (path.name.rpartition(".")[0] for path in (node.store_dir / "jetstream" / "groups").iterdir())
    return {name for name in found if name != "meta"}


def running(node: Server) -> dict[str, str]:
    """Stream to group of the replicas that run on a server."""
    (account,) = node.get("/jsz?streams=1")[1]["account_details"]
    return {each["name"]: each["cluster"]["raft_group"] for each in account.get("stream_detail", ())}


def differences(cluster: Cluster) -> Iterator[str]:
    """What keeps the servers from agreeing."""
    names = ask(cluster[0], "STREAM.NAMES").get("streams") or []
    listed = ask(cluster[0], "STREAM.LIST")
    if listed.get("missing") or len(listed.get("streams") or []) != len(names) or "total" not in listed:
        yield f"of {names} the list is missing {listed.get('missing')}"
        return
    replicas: dict[str, set[str]] = {node.name: set() for node in cluster}
    in_files = {info["config"]["name"] for info in listed["streams"] or [] if info["config"]["storage"] == "file"}
    for name in names:
        described = ask(cluster[0], f"STREAM.INFO.{name}").get("cluster") or {}
        for member in [described.get("leader"), *(peer["name"] for peer in described.get("replicas") or [])]:
            replicas.setdefault(member or "no leader", set()).add(name)
    for node in cluster:
        groups = running(node)
        if groups.keys() != replicas[node.name]:
            yield f"{node.name} runs {sorted(groups)}, and members say {sorted(replicas[node.name])}"
        wanted = {group for name, group in groups.items() if name in in_files}
        if (held := stored(node)) != wanted:
            yield f"{node.name} stores {held - wanted} besides, and lacks {wanted - held}"


def test_stored_groups_are_the_assigned_ones_after_kills_of_the_meta_leader(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        with Churn(cluster) as churn:
            for _ in range(KILLS):
                time.sleep(BETWEEN_S)
                victim = meta_leader(cluster)
                victim.running.signal(signal.SIGKILL)
                victim.running.wait()
                time.sleep(0.3)
                victim.start(wait=False)
                victim.wait_listening()
        began = time.monotonic()
        while left := list(differences(cluster)):
            if time.monotonic() - began > CONVERGED_WITHIN_S:
                raise AssertionError(left)
            time.sleep(0.2)
        assert churn.requests > KILLS, "there was something to be interrupted"
