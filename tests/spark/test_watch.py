"""Waiting for messages of idle streams: what is new ends it, and nothing else costs a request."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_jetstream import watch
from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.leader import Leader
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.spark.streams import create, delete, publish


@pytest.fixture
def planners() -> Iterator[list[Planner]]:
    made: list[Planner] = []
    yield made
    for one in made:
        one.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The streams whose leader was asked, in order."""
    names: list[str] = []
    view = Leader.view

    def noted(leader: Leader) -> Any:
        names.append(leader.stream)
        return view(leader)

    monkeypatch.setattr(Leader, "view", noted)
    return names


def planner(planners: list[Planner], url: str, streams: str, **options: str) -> Planner:
    key = "streams" if "," in streams or "*" in streams else "stream"
    planners.append(Planner(parse_options({"servers": url, key: streams, **options}), ConnectionCache()))
    return planners[-1]


def consumers(client: RawClient, stream: str) -> list[str]:
    return list(client.api(f"CONSUMER.NAMES.{stream}")["consumers"] or ())


def waiting(one: Planner) -> dict[str, Any]:
    """Ask for ends until the query waits; where it does."""
    start = one.initial().to_json_dict()
    deadline_s = time.monotonic() + PATIENCE_S
    while one._watch._until_s == 0.0:
        start = one.next_end(start, None).to_json_dict()
        assert time.monotonic() < deadline_s
    return start


def end_of(one: Planner, start: dict[str, Any]) -> dict[str, Any]:
    """The next end that is not `start`."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (end := one.next_end(start, None).to_json_dict()) == start:
        assert time.monotonic() < deadline_s
    return end


def test_an_idle_query_waits_without_a_request_until_a_message_comes(
    server: Server, client: RawClient, planners: list[Planner], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 10 * PATIENCE_S)
    create(client, "IDLE")
    publish(client, "IDLE", 5)
    one = planner(planners, server.url, "IDLE")
    start = waiting(one)
    assert len(consumers(client, "IDLE")) == 1
    for _ in range(3):
        asked.clear()
        assert one.next_end(start, None).to_json_dict() == start
        assert asked == []
        publish(client, "IDLE", 3)
        end = end_of(one, start)
        assert (end["seq"] - start["seq"], asked) == (3, ["IDLE"])
        start = end
        while one._watch._until_s == 0.0:
            assert one.next_end(start, None).to_json_dict() == start
    one.close()
    assert consumers(client, "IDLE") == []


def test_a_query_that_was_busy_for_long_is_not_woken_by_what_it_has_read(
    server: Server, client: RawClient, planners: list[Planner], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 10 * PATIENCE_S)
    create(client, "BUSY")
    one = planner(planners, server.url, "BUSY")
    start = waiting(one)
    for count in (50, 3 * watch.BEHIND_MAX):
        publish(client, "BUSY", count)
        start = end_of(one, start)
        while one._watch._until_s == 0.0:
            assert one.next_end(start, None).to_json_dict() == start
        asked.clear()
        for _ in range(3):
            assert one.next_end(start, None).to_json_dict() == start
        assert asked == []
    assert len(consumers(client, "BUSY")) == 1


def test_several_streams_are_waited_for_together(
    server: Server, client: RawClient, planners: list[Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 10 * PATIENCE_S)
    for name in ("MANYA", "MANYB"):
        create(client, name)
    one = planner(planners, server.url, "MANY*")
    start = waiting(one)
    for name in ("MANYB", "MANYA"):
        publish(client, name, 1)
        end = end_of(one, start)
        assert {key for key, value in end["streams"].items() if value["seq"] > 1} >= {name}
        start = end
        while one._watch._until_s == 0.0:
            assert one.next_end(start, None).to_json_dict() == start


@pytest.mark.parametrize("config", [{"retention": "interest"}, {"retention": "workqueue"}, {"max_consumers": 3}])
def test_a_stream_that_a_consumer_would_change_gets_none(
    server: Server, client: RawClient, planners: list[Planner], config: dict[str, Any]
) -> None:
    name = "NOT" + "".join(config).upper() + "".join(str(value) for value in config.values()).upper()
    create(client, name, **config)
    one = planner(planners, server.url, name)
    start = one.initial().to_json_dict()
    for _ in range(3):
        assert one.next_end(start, None).to_json_dict() == start
    assert consumers(client, name) == []


def test_a_consumer_that_is_lost_delays_a_message_once(
    server: Server, client: RawClient, planners: list[Planner]
) -> None:
    create(client, "LOSES")
    one = planner(planners, server.url, "LOSES")
    start = waiting(one)
    client.api(f"CONSUMER.DELETE.LOSES.{consumers(client, 'LOSES')[0]}")
    publish(client, "LOSES", 1)
    assert end_of(one, start)["seq"] == 2


def test_a_stream_that_is_deleted_while_it_is_waited_for_is_missed(
    server: Server, client: RawClient, planners: list[Planner]
) -> None:
    from pyspark_jetstream.errors import StreamNotFoundError, StreamRecreatedError  # noqa: PLC0415

    create(client, "GOES")
    one = planner(planners, server.url, "GOES")
    start = waiting(one)
    delete(client, "GOES")
    with pytest.raises((StreamNotFoundError, StreamRecreatedError)):
        end_of(one, start)


def test_a_user_without_rights_for_consumers_reads_with_pauses(
    kind: Any, tmp_path: Any, planners: list[Planner], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pyspark_jetstream")
    users = """authorization { users = [
      {user: all, password: all}
      {user: reader, password: reader, permissions: {
        publish: ["$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>"], subscribe: "_INBOX.>"}}
    ] }"""
    with (
        Server(kind, directory=tmp_path, config=users) as server,
        RawClient(server.address, connect=False) as client,
    ):
        client.connect(**{"user": "all", "pass": "all"})
        create(client, "READ")
        one = planner(planners, server.url, "READ", user="reader", password="reader")
        start = one.initial().to_json_dict()
        for _ in range(4):
            assert one.next_end(start, None).to_json_dict() == start
        publish(client, "READ", 2)
        assert end_of(one, start)["seq"] == 3
        assert consumers(client, "READ") == []
        one.close()
    assert caplog.text.count("no consumer waits for new messages") == 1
