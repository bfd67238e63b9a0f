"""On three nodes, with the leader killed: mapped subjects, copies, sums and schedules."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetraft.store.model.gotime import parse_time
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

NODES = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster("jetraft", NODES, directory=tmp_path) as running:
        yield running


def create(cluster: Cluster, name: str, **config: Any) -> None:
    body = {"name": name, "subjects": [f"{name.lower()}.>"], "num_replicas": NODES, "allow_direct": True, **config}
    with RawClient(cluster[0].address) as client:
        answer = client.api(f"STREAM.CREATE.{name}", body)
    assert "error" not in answer, answer


def alive(cluster: Cluster) -> Server:
    return next(node for node in cluster if node.running.running)


def info(cluster: Cluster, name: str) -> dict[str, Any]:
    with RawClient(alive(cluster).address) as client:
        return client.api(f"STREAM.INFO.{name}")


def kill_leader(cluster: Cluster, name: str) -> Server:
    found = cluster.named(info(cluster, name)["cluster"]["leader"])
    found.kill()
    return found


def stored(client: RawClient, name: str, first_seq: int, last_seq: int) -> dict[int, dict[str, Any]]:
    """The live messages of a range, from the stream's leader."""
    answers = {seq: client.api(f"STREAM.MSG.GET.{name}", {"seq": seq}) for seq in range(first_seq, last_seq + 1)}
    return {seq: answer["message"] for seq, answer in answers.items() if "message" in answer}


def headers_of(message: dict[str, Any]) -> dict[str, str]:
    block = base64.b64decode(message.get("hdrs", "")).decode()
    return {name: value for name, _, value in (line.partition(": ") for line in block.split("\r\n")[1:]) if value}


def add(client: RawClient, subject: str, count: int) -> None:
    """Add one so many times; what is repeated, because its leader was lost, counts once."""
    for _ in range(count):
        answer = client.acknowledged(subject, b"", headers=(("Nats-Incr", "+1"),))
        assert "error" not in answer, answer


def value(client: RawClient, name: str, subject: str) -> object:
    answer = client.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": subject})
    return json.loads(base64.b64decode(answer["message"]["data"]))


def test_a_leader_that_is_killed_leaves_mapped_subjects_copies_and_sums_as_they_were(cluster: Cluster) -> None:
    mapping = {"src": "t.*.*", "dest": "t.{{wildcard(2)}}"}
    create(cluster, "T", subject_transform=mapping, republish={"src": ">", "dest": "copy.>"}, allow_msg_counter=True)
    survivor = cluster.named(info(cluster, "T")["cluster"]["replicas"][0]["name"])
    with RawClient(survivor.address) as client:
        copies = client.subscribe("copy.>")
        client.settle()
        add(client, "t.a.x", 3)
        assert value(client, "T", "t.x") == {"val": "3"}
        found = client.messages(copies, 3)
        assert [message.subject for message in found] == ["copy.t.x"] * 3
        assert [dict(message.headers)["Nats-Last-Sequence"] for message in found] == ["0", "1", "2"]
        kill_leader(cluster, "T")
        add(client, "t.b.x", 3)
        assert value(client, "T", "t.x") == {"val": "6"}
        assert {message.subject for message in client.messages(copies, 1)} == {"copy.t.x"}


def test_each_time_that_is_due_is_produced_once_though_leaders_are_killed(cluster: Cluster) -> None:
    create(cluster, "S", allow_msg_schedules=True)
    headers = (("Nats-Schedule", "@every 1s"), ("Nats-Schedule-Target", "s.t"))
    with RawClient(cluster[0].address) as client:
        client.acknowledged("s.a", b"x", headers=headers)

    def has_produced(count: int) -> None:
        node = alive(cluster)
        node.running.wait_until(lambda: info(cluster, "S")["state"]["last_seq"] > count, what=f"{count} were produced")

    has_produced(2)
    for _ in range(2):
        before = info(cluster, "S")["state"]["last_seq"]
        killed = kill_leader(cluster, "S")
        has_produced(before + 2)
        killed.start()
        cluster.wait_healthy()
    with RawClient(alive(cluster).address) as client:
        last_seq = info(cluster, "S")["state"]["last_seq"]
        messages = stored(client, "S", 2, last_seq)
    assert sorted(messages) == list(range(2, last_seq + 1))
    assert {message["subject"] for message in messages.values()} == {"s.t"}
    nexts = [parse_time(headers_of(messages[seq])["Nats-Schedule-Next"]) or 0 for seq in sorted(messages)]
    times = [parse_time(messages[seq]["time"]) or 0 for seq in sorted(messages)]
    assert nexts == sorted(set(nexts)), "a time that was due has been produced twice"
    assert all(due <= at for due, at in zip(nexts, times[1:], strict=False)), "nothing is produced before its time"
