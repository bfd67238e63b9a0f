"""Pages are made in slices, between which streams come and go: each answer is whole, and has what is there then."""

import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jetraft.api.jetstream import figures
from jetraft.api.jetstream.jsz import Jsz
from jetraft.api.monitor.questions import JszQuestion
from jetraft.cluster.meta.directory import ReplicaDirectory, Running
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Server

STREAMS, ROUNDS = 200, 12
DETAILS = "/jsz?consumers=1&config=1&raft=1"


def created(client: RawClient, number: int) -> None:
    name = f"S{number}"
    assert "error" not in client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"s{number}.>"]})
    for durable in ("a", "b"):
        config = {"durable_name": durable, "ack_policy": "explicit"}
        assert "error" not in client.api(f"CONSUMER.CREATE.{name}.{durable}", {"stream_name": name, "config": config})


def churn(server: Server, until: threading.Event) -> None:
    """Delete and create the odd streams, and consumers of the even ones."""
    with RawClient(server.address) as client:
        while not until.is_set():
            for number in range(1, STREAMS, 2):
                client.api(f"CONSUMER.DELETE.S{number - 1}.b", {})
                client.api(f"STREAM.DELETE.S{number}", {})
                created(client, number)
                if until.is_set():
                    return


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with Server("jetraft", directory=tmp_path) as running:
        with RawClient(running.address) as client:
            for number in range(STREAMS):
                created(client, number)
        yield running


def test_each_answer_is_whole_while_streams_come_and_go(server: Server) -> None:
    until = threading.Event()
    changer = threading.Thread(target=churn, args=(server, until))
    changer.start()
    try:
        for _ in range(ROUNDS):
            status, page = server.get(DETAILS)
            assert status == 200, page
            details = page["account_details"][0]["stream_detail"]
            names = [stream["name"] for stream in details]
            assert {f"S{number}" for number in range(0, STREAMS, 2)} <= set(names)
            assert len(names) == len(set(names))
            for stream in details:
                consumers = [consumer["name"] for consumer in stream.get("consumer_detail", ())]
                assert "a" in consumers or int(stream["name"][1:]) % 2, stream  # of odd ones it may not be there yet
            with urllib.request.urlopen(f"http://{HOST}:{server.http_port}/metrics", timeout=PATIENCE_S) as answer:
                assert answer.read().count(b"\njetraft_stream_messages{") >= STREAMS // 2
    finally:
        until.set()
        changer.join()
    assert server.running.running


def test_offset_and_limit_are_those_of_the_accounts(tmp_path: Path) -> None:
    accounts = "\n".join(f"A{at}: {{ jetstream: enabled, users: [ {{user: a{at}, password: x}} ] }}" for at in range(9))
    config = f"accounts {{\n{accounts}\n}}"
    shown: dict[str, list[list[str]]] = {}
    for kind in ("reference", "jetraft"):
        with Server(kind, directory=tmp_path / kind, config=config) as running:
            found = []
            for query in ("limit=4", "offset=2&limit=3", "offset=7", "offset=30", "acc=A3", "offset=2&acc=A3"):
                _, page = running.get(f"/jsz?accounts=1&{query}")
                found.append([row["name"] for row in page.get("account_details") or ()])
            shown[kind] = found
    assert shown["jetraft"] == shown["reference"]


def test_a_stream_and_a_consumer_that_went_between_two_steps_have_no_row() -> None:
    """The rows are made of a directory from which a replica is taken while the page is made."""
    directory: ReplicaDirectory[Any] = ReplicaDirectory()
    row = SimpleNamespace(key=("$G", "S"), account="$G")
    replica = SimpleNamespace(assignment=row, is_leader=True)  # asking it for anything else fails
    jsz: Any = Jsz.__new__(Jsz)
    object.__setattr__(jsz, "node", SimpleNamespace(directory=directory))
    directory.set(cast("Any", row.key), Running(replica=replica, assignment=cast("Any", row)))
    with pytest.raises(AttributeError):
        jsz._stream(replica, JszQuestion())
    directory.set(cast("Any", row.key), None)
    assert jsz._stream(replica, JszQuestion()) is None
    assert jsz._consumer(replica, "c", ()) is None
    assert figures._consumer(jsz, cast("Any", replica), "c") is None
