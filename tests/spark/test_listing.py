"""The states of many streams come by pages, and are those that a question about each gives."""

from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream.client import Connection, ConnectionCache
from pyspark_jetstream.errors import StreamNotFoundError
from pyspark_jetstream.leader import Leader
from pyspark_jetstream.listing import PAGE, WANTED_MIN, WANTED_SHARE, pages_of
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner
from pyspark_jetstream.wire import Frame
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server
from tests.spark.streams import create, delete, publish

COUNT = 300  # more than a page
PAGES = 2


@given(st.lists(st.integers(0, 4 * PAGE - 1), unique=True, max_size=3 * PAGE).map(sorted))
def test_a_page_has_enough_streams_and_shares_none_with_another(places: list[int]) -> None:
    pages = list(pages_of(places, 4 * PAGE))
    covered = [[place for place in places if offset <= place < offset + PAGE] for offset in pages]
    assert all(len(page) >= WANTED_MIN for page in covered)
    assert len({place for page in covered for place in page}) == sum(map(len, covered))


def test_streams_that_lie_side_by_side_take_the_fewest_pages() -> None:
    assert list(pages_of(range(100, 100 + 2 * PAGE), 9 * PAGE)) == [100, 100 + PAGE]
    assert list(pages_of(range(100, 100 + WANTED_MIN), 100 + WANTED_MIN)) == [100]  # the last page, a short one


def test_a_page_with_few_of_the_streams_is_not_asked_for() -> None:
    assert list(pages_of(range(0, 4 * PAGE, WANTED_SHARE), 4 * PAGE)) == [0, PAGE, 2 * PAGE, 3 * PAGE]
    assert list(pages_of(range(0, 4 * PAGE, WANTED_SHARE + 1), 4 * PAGE)) == []
    assert list(pages_of(range(WANTED_MIN - 1), WANTED_MIN - 1)) == []


@pytest.fixture(scope="module")
def many(server: Server) -> Server:
    """A server with many streams, some of them with messages."""
    with RawClient(server.address) as client:
        for number in range(COUNT):
            create(client, f"M{number:03}", storage="memory")
        for name in ("M007", "M299"):
            publish(client, name, 3)
        create(client, "OTHER")
    return server


def planner(server: Server, **options: str) -> Planner:
    return Planner(parse_options({"servers": server.url, "streams": "M*", **options}), ConnectionCache())


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions to the API that are asked from now on."""
    found: list[str] = []
    original = Connection.request

    def request(self: Connection, subject: str, payload: bytes, *, timeout_s: float) -> Frame:
        found.append(subject.removeprefix("$JS.API."))
        return original(self, subject, payload, timeout_s=timeout_s)

    monkeypatch.setattr(Connection, "request", request)
    return found


def test_the_states_of_a_page_are_those_of_the_leaders(many: Server) -> None:
    made, connections = planner(many), ConnectionCache()
    try:
        views = dict(made.views())
        assert len(views) == COUNT
        for name in ("M000", "M007", "M255", "M256", "M299"):
            expected = Leader(made.of(name).options.access, name, connections).view()
            assert attrs.evolve(views[name], replicas=expected.replicas) == expected  # a lone server lists no members
        assert views["M299"].last_seq == 3
    finally:
        made.close()
        connections.close()


def test_a_micro_batch_of_many_streams_is_planned_with_a_question_for_each_page(
    many: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = asked(monkeypatch)
    made = planner(many)
    try:
        start = made.initial().to_json_dict()
        assert [one for one in questions if one != "STREAM.NAMES"] == ["STREAM.LIST"] * PAGES
        end = made.next_end(start, None).to_json_dict()
        assert questions.count("STREAM.LIST") == 2 * PAGES
        planned = made.partitions(start, end)
        assert [(one.options.stream, one.start_seq, one.end_seq) for one in planned] == [("M007", 1, 4), ("M299", 1, 4)]
        assert [one for one in questions if one.startswith("STREAM.INFO")] == ["STREAM.INFO.M007", "STREAM.INFO.M299"]
    finally:
        made.close()


def test_the_members_of_a_cluster_are_in_a_page(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawClient(cluster[0].address) as client:
        for number in range(WANTED_MIN):
            create(client, f"M{number:03}", storage="memory", num_replicas=3)
    questions = asked(monkeypatch)
    made = planner(cluster[1])
    try:
        members = {frozenset(view.replicas) for _, view in made.views()}
        assert questions == ["STREAM.NAMES", "STREAM.LIST"]
        assert members == {frozenset(node.name for node in cluster)}
    finally:
        made.close()


def test_a_stream_that_is_gone_when_its_page_is_made_is_asked_for_and_missed(many: Server) -> None:
    made = planner(many)
    with RawClient(many.address) as client:
        create(client, "M150x", storage="memory")
        start = made.initial().to_json_dict()
        assert "M150x" in start["streams"]
        delete(client, "M150x")
    try:
        with pytest.raises(StreamNotFoundError, match="M150x"):
            made.next_end(start, None)
    finally:
        made.close()


def test_a_user_who_may_not_list_asks_for_each_stream(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = """authorization { users = [
      {user: all, password: all}
      {user: reader, password: reader, permissions: {
        publish: ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*"], subscribe: "_INBOX.>"}}
    ] }
    """
    with Server(kind, directory=tmp_path, config=users) as server:
        with RawClient(server.address, connect=False) as client:
            client.connect(**{"user": "all", "pass": "all"})
            for number in range(WANTED_MIN):
                create(client, f"M{number:03}", storage="memory")
        questions = asked(monkeypatch)
        made = planner(server, user="reader", password="reader")
        try:
            start = made.initial().to_json_dict()
            assert len(start["streams"]) == WANTED_MIN
            listed = questions.count("STREAM.LIST")
            assert made.next_end(start, None).to_json_dict() == start
            assert questions.count("STREAM.LIST") == listed > 0
            assert sum(one.startswith("STREAM.INFO") for one in questions) == 2 * WANTED_MIN
        finally:
            made.close()
